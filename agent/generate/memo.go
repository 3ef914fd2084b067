package generate

import (
	"weak"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/policy"
)

// Memo remembers sealed resources as long as some proxy uses them, so that proxies with the same bytes share them. It
// is not safe for use by two goroutines at once. A nil Memo remembers nothing.
type Memo struct {
	resources map[internKey]weak.Pointer[draft.Resource]
	assigned  map[assignKey]weak.Pointer[draft.Resource]
	limit     int // entries at which dead ones are dropped
	chosen    map[string]chosen
}

// chosen are the choices of tags of a mesh as it was last.
type chosen struct {
	view     weak.Pointer[mesh.View]
	policies weak.Pointer[policy.Index]
	choices  *policy.Choices
}

// internKey names the bytes of a resource; its name is among them.
type internKey struct{ typeURL, version string }

type assignKey struct {
	set        weak.Pointer[mesh.EndpointSet]
	cluster    string
	localities string
	flavor     node.Flavor
}

// NewMemo returns an empty memo.
func NewMemo() *Memo {
	return &Memo{
		resources: map[internKey]weak.Pointer[draft.Resource]{},
		assigned:  map[assignKey]weak.Pointer[draft.Resource]{},
		limit:     4096,
		chosen:    map[string]chosen{},
	}
}

// choices returns the choices of tags that proxies of a mesh may make. All proxies at the border of the zone need them.
func (m *Memo) choices(of *Mesh) *policy.Choices {
	if m == nil {
		return policy.NewChoices(of.View, of.Policies)
	}
	have, view, policies := m.chosen[of.View.Name], weak.Make(of.View), weak.Make(of.Policies)
	if have.choices == nil || have.view != view || have.policies != policies {
		have = chosen{view, policies, policy.NewChoices(of.View, of.Policies)}
		m.chosen[of.View.Name] = have
	}
	return have.choices
}

// intern returns the resource in use that equals r, or r.
func (m *Memo) intern(typeURL string, r *draft.Resource) *draft.Resource {
	if m == nil {
		return r
	}
	k := internKey{typeURL, r.Version}
	if have := m.resources[k].Value(); have != nil {
		return have
	}
	m.sweep()
	m.resources[k] = weak.Make(r)
	return r
}

// endpoints returns the sealed load assignment of a cluster.
func (m *Memo) endpoints(enc *assignment, ref *endpointRef, f node.Flavor) *draft.Resource {
	if m == nil {
		return enc.seal(ref, f)
	}
	k := assignKey{weak.Make(ref.set), ref.cluster, ref.localities.Key(), f}
	if have := m.assigned[k].Value(); have != nil {
		return have
	}
	r := m.intern(draft.TypeEndpoint, enc.seal(ref, f))
	m.assigned[k] = weak.Make(r)
	return r
}

func (a *assignment) seal(ref *endpointRef, f node.Flavor) *draft.Resource {
	return draft.NewResource(ref.cluster, a.encode(ref.cluster, ref.set.Subset(ref.subset), ref.localities, f))
}

// sweep drops entries whose resource nobody uses any more, once there are twice as many as after the last sweep.
func (m *Memo) sweep() {
	if len(m.resources)+len(m.assigned) < m.limit {
		return
	}
	for k, p := range m.resources {
		if p.Value() == nil {
			delete(m.resources, k)
		}
	}
	for k, p := range m.assigned {
		if p.Value() == nil || k.set.Value() == nil {
			delete(m.assigned, k)
		}
	}
	m.limit = max(4096, 2*(len(m.resources)+len(m.assigned)))
}
