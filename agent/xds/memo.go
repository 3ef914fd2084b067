package xds

import (
	"weak"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
)

// Memo remembers sealed resources as long as some proxy uses them, so that proxies with the same bytes share them. It
// is not safe for use by two goroutines at once. A nil Memo remembers nothing.
type Memo struct {
	resources map[string]weak.Pointer[draft.Resource] // by version, which covers type-specific bytes and name
	assigned  map[assignKey]weak.Pointer[draft.Resource]
	limit     int // entries at which dead ones are dropped
}

type assignKey struct {
	set     weak.Pointer[mesh.EndpointSet]
	cluster string
	flavor  Flavor
}

// NewMemo returns an empty memo.
func NewMemo() *Memo {
	return &Memo{
		resources: map[string]weak.Pointer[draft.Resource]{},
		assigned:  map[assignKey]weak.Pointer[draft.Resource]{},
		limit:     4096,
	}
}

// intern returns the resource in use that equals r, or r.
func (m *Memo) intern(typeURL string, r *draft.Resource) *draft.Resource {
	if m == nil {
		return r
	}
	k := typeURL + r.Version
	if have := m.resources[k].Value(); have != nil {
		return have
	}
	m.sweep()
	m.resources[k] = weak.Make(r)
	return r
}

// endpoints returns the sealed load assignment of a cluster.
func (m *Memo) endpoints(ref *endpointRef, set *mesh.EndpointSet, f Flavor) (*draft.Resource, error) {
	var list []mesh.Endpoint
	if set != nil {
		list = set.Subset(ref.subset)
	}
	if m == nil || set == nil {
		return draft.SealOne(ref.cluster, loadAssignment(ref.cluster, list, f))
	}
	k := assignKey{weak.Make(set), ref.cluster, f}
	if have := m.assigned[k].Value(); have != nil {
		return have, nil
	}
	r, err := draft.SealOne(ref.cluster, loadAssignment(ref.cluster, list, f))
	if err != nil {
		return nil, err
	}
	r = m.intern(draft.TypeEndpoint, r)
	m.assigned[k] = weak.Make(r)
	return r, nil
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
