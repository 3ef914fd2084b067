package change

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// differ compares proxies one after the other.
type differ struct {
	*states
	listed    int  // differences in the result
	bytes     int  // approximate size of their patches
	work      int  // work spent on finding causes
	attempted bool // the causes of some proxy were searched for
	known     map[string][]api.Ref
	was, are  map[mesh.Warning]bool
	out       api.Diff
}

func newDiffer() *differ {
	return &differ{
		known: map[string][]api.Ref{},
		was:   map[mesh.Warning]bool{}, are: map[mesh.Warning]bool{},
		out: api.Diff{Proxies: []api.ProxyDiff{}, Warnings: []api.Problem{}, Findings: []api.Finding{}},
	}
}

// begin fails if the change is not possible or empty.
func (d *differ) begin(s *states, scope string, proxies int) error {
	d.states, d.out.Resources, d.out.Scope = s, s.resources, scope
	switch e := s.checkMeshes(s.after); {
	case e != nil:
		return e
	case proxies > 0 || s.Dataplane == "":
		return nil
	case s.Mesh != "":
		return api.NewNotFound("mesh %q has no dataplane %q", s.Mesh, s.Dataplane)
	}
	return api.NewNotFound("no mesh has a dataplane %q", s.Dataplane)
}

// warningsOf returns the warnings about one state of a mesh.
func (s *states) warningsOf(state *generate.Mesh) []mesh.Warning {
	if state == nil {
		return nil
	}
	if state.Policies == nil {
		return state.View.Warnings
	}
	out, ok := s.warnings[state]
	if !ok {
		out = slices.Concat(state.View.Warnings, state.Policies.Warnings, effect.MeshTargets(state))
		s.warnings[state] = out
	}
	return out
}

// note adds warnings to one side.
func note(to map[mesh.Warning]bool, lists ...[]mesh.Warning) {
	for _, w := range slices.Concat(lists...) {
		to[w] = true
	}
}

// maxWarnings is the maximum number of listed warnings.
const maxWarnings = 1000

// finish adds the results for all proxies.
func (d *differ) finish() {
	for _, m := range d.meshes {
		if m.compared && m.from != m.to {
			note(d.was, d.warningsOf(m.from), conflicts(m.from, m.candidates))
			note(d.are, d.warningsOf(m.to), conflicts(m.to, m.candidates))
		}
	}
	for w := range maps.Keys(d.are) {
		if !d.was[w] {
			d.out.Warnings = append(d.out.Warnings,
				api.Problem{Resource: w.Resource.String(), Severity: api.SeverityWarning, Reason: w.Reason})
		}
	}
	slices.SortFunc(d.out.Warnings, func(a, b api.Problem) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Reason, b.Reason))
	})
	d.out.Warnings = d.out.Warnings[:min(len(d.out.Warnings), maxWarnings)]
}
