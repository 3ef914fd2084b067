package change

import (
	"context"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Verified is the answer: what would be new, told once for all proxies on which it is alike.
type Verified struct {
	Proxies  int           // looked at
	Of       int           // that were to be looked at; more than Proxies when the check ended early
	Findings []api.Finding // that were not there before: those that block, then warnings
	Known    []api.Finding // of proxies that the change brings, what others had already
	More     int           // findings and warnings beyond the bounds
	Notes    []api.Problem // what could not be checked
	// Warnings are what the agent itself has to say about resources of the change: what of them has no
	// effect, or another one than it reads.
	Warnings []mesh.Warning
}

// Blocking returns those that Envoy refuses or cannot use.
func (v *Verified) Blocking() []api.Finding {
	i := slices.IndexFunc(v.Findings, func(f api.Finding) bool { return !f.Blocks() })
	if i < 0 {
		i = len(v.Findings)
	}
	return v.Findings[:i]
}

// NotBlocking returns the findings that are warnings or lint: Envoy accepts the resource.
func (v *Verified) NotBlocking() []api.Finding { return v.Findings[len(v.Blocking()):] }

// verifier checks one proxy after the other.
type verifier struct {
	*states
	ctx       context.Context
	keys      []resource.Key // of the resources of the change, in the order of the question
	changed   map[resource.Key]bool
	proxies   []generate.ProxyID
	byKey     map[string]*group
	groups    []*group
	newcomers []newcomer
	trials    int
	warned    map[mesh.Warning]bool
	out       Verified
}

func newVerifier(ctx context.Context) *verifier {
	return &verifier{ctx: ctx, changed: map[resource.Key]bool{}, warned: map[mesh.Warning]bool{},
		byKey: map[string]*group{},
		out:   Verified{Findings: []api.Finding{}, Known: []api.Finding{}, Notes: []api.Problem{}}}
}

// begin returns the proxies that are looked at: those that are compared, and the dataplanes of the
// change, where they may differ from before.
func (v *verifier) begin(s *states, keys []resource.Key, compared []generate.ProxyID) []generate.ProxyID {
	v.states, v.keys = s, keys
	for _, k := range keys {
		v.changed[k] = true
		if k.Kind == kindDataplane && s.Dataplane == "" && (s.Mesh == "" || s.Mesh == k.Mesh) {
			compared = append(compared, generate.ProxyID{Mesh: k.Mesh, Name: k.Name, Flavor: node.FlavorEnvoy})
		}
	}
	v.proxies = distinctProxies(compared)
	for _, id := range v.proxies {
		if s.after.Get(meshKey(id.Mesh)) != nil {
			v.out.Of++
		}
	}
	return v.proxies
}

// verifiedProxy is what there is to be said about a proxy.
type verifiedProxy struct {
	checked bool // its config after the change
	notes   []api.Problem
	newcome bool // the change brings it
	found   []finding.Finding
}

// exists reports whether the mesh of a proxy is there after the change.
func (v *verifier) exists(x *proxyStates) bool { return v.after.Get(meshKey(x.ProxyID.Mesh)) != nil }

// wants reports whether the config of a proxy after the change is to be checked. Without time left,
// nothing is said of it.
func (v *verifier) wants(x *proxyStates) bool {
	if v.ctx.Err() != nil || !v.exists(x) {
		return false
	}
	x.verified = &verifiedProxy{}
	return x.mesh.from != x.mesh.to && !x.mesh.same(x.Name)
}

// look checks one proxy.
func (v *verifier) look(w *worker, x *proxyStates) {
	out := x.verified
	if x.failed != nil {
		if err := x.worse(w); err != nil {
			x.note("no config can be made, it would keep its config: " + err.Error())
		}
		return
	}
	if x.to == nil {
		return
	}
	out.checked = true
	if x.now != nil && generate.SameConfig(x.now, x.to) {
		return
	}
	found := v.check(w, &w.checker, x, x.to)
	if x.now != nil && !slices.ContainsFunc(found, func(f finding.Finding) bool { return f.Severity.Blocks() }) {
		w.takes(x.to) // it is in force once the change is stored
	}
	found = slices.DeleteFunc(found, func(f finding.Finding) bool { return f.Severity > finding.Warning })
	switch {
	case len(found) == 0:
	case x.mesh.from == nil || x.mesh.from.View.Dataplane(x.Name) == nil:
		out.newcome, out.found = true, found
	default:
		out.found = fresh(v.findingsBefore(w, x), found)
	}
}

// take takes up what there is to be said about a proxy. It is called in the order of the proxies.
func (v *verifier) take(x *proxyStates) {
	out := x.verified
	if out == nil {
		return
	}
	v.out.Proxies++
	v.warnOf(x.mesh)
	if out.checked {
		v.warn(x.to.Warnings, nil)
	}
	for _, n := range out.notes {
		v.note(n)
	}
	switch {
	case len(out.found) == 0:
	case out.newcome:
		v.newcomers = append(v.newcomers, newcomer{x.ProxyID, x.mesh, out.found})
	default:
		v.add(x.mesh, x.ProxyID, out.found, false)
	}
}

// findingsBefore returns what there is to say about a proxy before the change.
func (v *verifier) findingsBefore(w *worker, x *proxyStates) []finding.Finding {
	if x.makeFrom(w); x.failedBefore != nil || x.from == nil {
		return nil
	}
	return v.check(w, &w.earlier, x, x.from)
}

// check asks the rules, and an Envoy, about a config of a proxy: what it has is known, or it starts
// with the config.
func (v *verifier) check(w *worker, by *check.Checker, x *proxyStates, p *generate.Proxy) []finding.Finding {
	against := w.accepted(x.now, x.Fit != nil && x.Fit(x.ProxyID))
	out := p.Check(by, against)
	if p == x.to {
		x.against, x.ruled = against, slices.Clone(out)
	}
	if v.Try == nil || p.Flavor == node.FlavorGRPC {
		return out
	}
	tried, err := v.Try(v.ctx, p)
	if err != nil {
		x.note(err.Error())
	}
	return append(out, tried...)
}

// accepted returns what the Envoy of a proxy has accepted of the config that is in force, all of
// it where that is fit.
func (w *worker) accepted(now *generate.Proxy, fit bool) *draft.Sealed {
	switch {
	case now == nil:
		return &draft.Sealed{}
	case fit:
		return now.Sealed
	}
	return w.takenOf(now).Sealed
}

// takenOf returns what an Envoy has taken of a config.
func (w *worker) takenOf(p *generate.Proxy) *generate.Proxy {
	if w.whole[wholeKeyOf(p)] {
		return p
	}
	taken := p.Accepted(p.Check(&w.earlier, nil))
	if taken == p {
		w.takes(p)
	}
	return taken
}

// takes notes that an Envoy takes all of a config.
func (w *worker) takes(p *generate.Proxy) {
	if len(w.whole) >= maxWhole {
		clear(w.whole)
	}
	w.whole[wholeKeyOf(p)] = true
}

// wholeKey is what decides about what an Envoy takes of a config, but for secrets, which are made
// for each proxy.
type wholeKey struct {
	versions [draft.NumTypes]string
	build    *finding.Build
	host     *finding.Host // nil: it has no say
}

func wholeKeyOf(p *generate.Proxy) wholeKey {
	k := wholeKey{p.Sealed.Versions, p.Build, p.Host}
	k.versions[draft.RankSecret] = ""
	if !p.Host.Matters() {
		k.host = nil
	}
	return k
}

// maxNotes bounds what is told of that could not be checked, and of that has no effect.
const maxNotes = 20

// warnOf takes up what there is to be said about a mesh, once.
func (v *verifier) warnOf(m *meshStates) {
	if m.from != m.to && !m.checked {
		m.checked = true
		before := map[mesh.Warning]bool{}
		note(before, warningsOf(m.from))
		v.warn(warningsOf(m.to), before)
	}
}

// warnOfOthers takes up what there is to be said about the meshes of the change that have no proxy
// which was looked at.
func (v *verifier) warnOfOthers() error {
	for _, r := range v.after.Kind(kindMesh) {
		if v.ctx.Err() != nil || v.Mesh != "" && r.Name != v.Mesh {
			continue
		}
		m, err := v.mesh(r.Name)
		if err != nil {
			return err
		}
		v.warnOf(m)
	}
	return nil
}

// warn takes up what there is to be said about resources of the change, and about those that no
// document has, such as a MeshService that is derived from tags, where it was not said before.
func (v *verifier) warn(list []mesh.Warning, before map[mesh.Warning]bool) {
	for _, w := range list {
		switch {
		case v.warned[w] || !v.changed[w.Resource] && (before == nil || before[w] || v.after.Get(w.Resource) != nil):
		case len(v.out.Warnings) >= v.MaxWarnings:
			v.out.More++
		default:
			v.warned[w] = true
			v.out.Warnings = append(v.out.Warnings, w)
		}
	}
}

// note notes of a proxy what could not be checked.
func (x *proxyStates) note(reason string) {
	key := resource.Key{Kind: kindDataplane, Mesh: x.ProxyID.Mesh, Name: x.Name}
	if x.verified != nil {
		x.verified.notes = append(x.verified.notes,
			api.Problem{Resource: key.String(), Severity: api.SeverityWarning, Reason: reason})
	}
}

func (v *verifier) note(n api.Problem) {
	if len(v.out.Notes) < maxNotes && !slices.Contains(v.out.Notes, n) {
		v.out.Notes = append(v.out.Notes, n)
	}
}
