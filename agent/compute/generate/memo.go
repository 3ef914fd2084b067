package generate

import (
	"maps"
	"weak"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Memo holds parts of configs by their inputs, and sealed resources by their content, as long as
// some proxy uses them. It is not safe for use by two goroutines at once. A nil Memo holds nothing.
type Memo struct {
	pool      *draft.Pool
	parts     cache[partKey, part]
	refs      cache[[32]byte, refList]
	endpoints cache[endpointsKey, endpoints]
	assigned  cache[assignKey, draft.Resource]
	room      room // of one proxy after the other
}

// cache holds immutable values by a key that stands for all inputs, as long as something else
// refers to them.
type cache[K comparable, V any] struct {
	values map[K]weak.Pointer[V]
	limit  int // entries at which those that nothing refers to are dropped
}

// minSweep is how many entries a cache has before it looks for unused ones.
const minSweep = 4096

func (c *cache[K, V]) get(k K) *V { return c.values[k].Value() }

func (c *cache[K, V]) put(k K, v *V) *V {
	if c.values == nil {
		c.values, c.limit = map[K]weak.Pointer[V]{}, minSweep
	}
	if len(c.values) >= c.limit {
		c.sweep()
	}
	c.values[k] = weak.Make(v)
	return v
}

// sweep drops unused entries. A map that has been larger keeps its memory, so there is a new one.
func (c *cache[K, V]) sweep() {
	maps.DeleteFunc(c.values, func(_ K, p weak.Pointer[V]) bool { return p.Value() == nil })
	c.values = maps.Clone(c.values)
	c.limit = max(minSweep, 2*len(c.values))
}

// endpointsKey stands for the EDS resources of a proxy: equal pointers mean equal views.
type endpointsKey struct {
	refs   [32]byte
	view   weak.Pointer[mesh.View]
	flavor node.Flavor
}

// assignKey stands for a load assignment: equal pointers mean equal endpoints.
type assignKey struct {
	set        weak.Pointer[mesh.EndpointSet]
	cluster    string
	localities string
	flavor     node.Flavor
}

// NewMemo returns an empty memo.
func NewMemo() *Memo { return &Memo{pool: draft.NewPool()} }

// sealed returns where resources are sealed; nil for a nil Memo.
func (m *Memo) sealed() *draft.Pool {
	if m == nil {
		return nil
	}
	return m.pool
}

func (m *Memo) part(k partKey) *part {
	if m == nil {
		return nil
	}
	return m.parts.get(k)
}

func (m *Memo) keep(list ...*part) {
	if m == nil {
		return
	}
	for _, p := range list {
		m.parts.put(p.key, p)
	}
}

// refList returns EDS resources as a list that parts with the same ones share.
func (m *Memo) refList(refs []endpointRef) *refList {
	l := &refList{digest: digestOf(refs), list: refs}
	if m == nil {
		return l
	}
	if have := m.refs.get(l.digest); have != nil {
		return have
	}
	return m.refs.put(l.digest, l)
}

// endpointsOf returns the EDS resources of a proxy in a view; last are those that it had, nil for
// none.
func (m *Memo) endpointsOf(lists []*refList, v *mesh.View, f node.Flavor, last *endpoints) *endpoints {
	if m == nil {
		return newEndpoints(lists, v, f, m, last)
	}
	d := newDigest()
	for _, l := range lists {
		d.bytes(l.digest[:])
	}
	k := endpointsKey{d.sum(), weak.Make(v), f}
	if have := m.endpoints.get(k); have != nil {
		return have
	}
	return m.endpoints.put(k, newEndpoints(lists, v, f, m, last))
}

// assignment returns the sealed load assignment of a cluster.
func (m *Memo) assignment(enc *assignment, ref *endpointRef, set *mesh.EndpointSet, f node.Flavor) *draft.Resource {
	encode := func() []byte { return enc.encode(ref.cluster, set.Subset(ref.subset), ref.localities, f) }
	if m == nil {
		return draft.NewResource(draft.RankEndpoint, ref.cluster, encode())
	}
	k := assignKey{weak.Make(set), ref.cluster, ref.localities.Key(), f}
	if have := m.assigned.get(k); have != nil {
		return have
	}
	return m.assigned.put(k, m.pool.Seal(draft.RankEndpoint, ref.cluster, encode()))
}

// choices returns the choices of tags that proxies of a mesh may make.
func choicesOf(m *Mesh) *policy.Choices { return policy.NewChoices(m.View, m.Policies) }

// Rest lets go of the memory in which the last configs were made.
func (m *Memo) Rest() { m.pool.Rest() }

// Sweep drops all that nothing uses any more.
func (m *Memo) Sweep() {
	m.pool.Sweep()
	m.parts.sweep()
	m.refs.sweep()
	m.endpoints.sweep()
	m.assigned.sweep()
}
