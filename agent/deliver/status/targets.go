package status

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// targets finds references of policies that lead nowhere. It is computed when someone asks, and
// cached until the mesh changes. It is safe for concurrent use.
type targets struct {
	mu     sync.Mutex
	meshes map[string]meshTargets
}

// meshTargets holds the result for one state of a mesh.
type meshTargets struct {
	of       *generate.Mesh
	problems []api.Problem
}

// targetProblems returns a problem for each reference of a policy that leads nowhere, sorted by
// mesh and policy.
func (t *Tracker) targetProblems(_ context.Context, f *Facts) (out []api.Problem) {
	if f.Last == nil {
		return nil
	}
	t.targets.mu.Lock()
	defer t.targets.mu.Unlock()
	known := map[string]meshTargets{}
	for _, name := range slices.Sorted(maps.Keys(f.Last.Meshes)) {
		m := t.targets.meshes[name]
		if of := f.Last.Meshes[name]; m.of != of {
			m = meshTargets{of: of, problems: problemsOfTargets(of)}
		}
		known[name] = m
		out = append(out, m.problems...)
	}
	t.targets.meshes = known
	return out
}

// problemsOfTargets returns the problems of one mesh, up to maxReported.
func problemsOfTargets(m *generate.Mesh) (out []api.Problem) {
	list := effect.MeshTargets(m)
	for i, w := range list {
		p := api.Problem{Resource: w.Resource.String(), Severity: api.SeverityWarning, Reason: w.Reason}
		if i == maxReported {
			p.Reason = plural.Count(len(list)-i, "more reference") + " of policies that lead nowhere"
			return append(out, p)
		}
		out = append(out, p)
	}
	return out
}
