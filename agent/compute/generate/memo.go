package generate

import (
	"maps"
	"slices"
	"strings"
	"weak"

	"github.com/nearside-mesh/nearside/agent/compute/classes"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/encode"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Memo caches batches of outbounds by their inputs, and sealed resources by their content, for as
// long as some proxy uses them. It also caches the policies of each class of proxies, until
// [Memo.DropMatches]. It is not safe for concurrent use. A nil Memo caches nothing.
type Memo struct {
	matched   []*matched                                    // the last ones, by last use
	rules     map[*mesh.View]map[[32]byte]*policy.KindRules // by their inputs
	pool      *draft.Pool
	batches   cache[batchKey, batch]    // by whole key
	shapes    cache[batchKey, batch]    // by shape
	templates cache[batchKey, template] // by shape
	refs      cache[[32]byte, refList]
	endpoints cache[endpointsKey, endpoints]
	assigned  cache[assignKey, draft.Resource]
	buffers   outboundBuffers // reused for each proxy
	addresses map[draft.Address][]draft.Address
}

// cache holds weak references to immutable values. The key of a value covers all its inputs.
type cache[K comparable, V any] struct {
	values map[K]weak.Pointer[V]
	limit  int // number of entries at which unused ones are dropped
}

// minSweep is the minimum number of entries before a sweep.
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

// sweep drops unused entries. It makes a new map, because a map never shrinks.
func (c *cache[K, V]) sweep() {
	maps.DeleteFunc(c.values, func(_ K, p weak.Pointer[V]) bool { return p.Value() == nil })
	c.values = maps.Clone(c.values)
	c.limit = max(minSweep, 2*len(c.values))
}

// endpointsKey identifies the EDS resources of a proxy. Equal pointers mean equal views.
type endpointsKey struct {
	refs   [32]byte
	view   weak.Pointer[mesh.View]
	flavor node.Flavor
}

// assignKey identifies a load assignment. Equal pointers mean equal endpoints.
type assignKey struct {
	set        weak.Pointer[mesh.EndpointSet]
	cluster    string
	localities string
	flavor     node.Flavor
}

// NewMemo returns an empty memo.
func NewMemo() *Memo { return &Memo{pool: draft.NewPool()} }

// sealed returns the pool for sealing, or nil for a nil Memo.
func (m *Memo) sealed() *draft.Pool {
	if m == nil {
		return nil
	}
	return m.pool
}

func (m *Memo) batch(k batchKey) *batch {
	if m == nil {
		return nil
	}
	return m.batches.get(k)
}

func (m *Memo) addBatches(list ...*batch) {
	if m == nil {
		return
	}
	for _, p := range list {
		m.batches.put(p.key.whole, p)
		if p.template == nil {
			m.shapes.put(p.key.shape, p)
		} else {
			m.templates.put(p.key.shape, p.template)
			m.pool.Adopt(&p.sealed)
		}
	}
}

// maxAddresses limits the lists of addresses that a memo remembers.
const maxAddresses = 256

// addressesOf returns the addresses of outbounds. Many proxies have the same ones, so lists are
// shared with the last batch that begins with the same address.
func (m *Memo) addressesOf(list []mesh.Outbound) []draft.Address {
	if m == nil || len(list) == 0 {
		return addressesOf(list)
	}
	first := draft.Address{IP: list[0].Address, Port: list[0].Port}
	have := m.addresses[first]
	if slices.EqualFunc(have, list, func(a draft.Address, o mesh.Outbound) bool {
		return a.IP == o.Address && a.Port == o.Port
	}) {
		return have
	}
	if m.addresses == nil || len(m.addresses) >= maxAddresses {
		m.addresses = map[draft.Address][]draft.Address{}
	}
	out := addressesOf(list)
	m.addresses[first] = out
	return out
}

// template returns the template of a shape, or nil if there is none.
func (m *Memo) template(shape batchKey) *template {
	if m == nil {
		return nil
	}
	if have := m.templates.get(shape); have != nil {
		return have
	}
	p := m.shapes.get(shape)
	if p == nil || p.addresses != nil && slices.ContainsFunc(p.notes, func(w mesh.Warning) bool {
		return strings.Contains(w.Reason, draft.OutboundPrefix)
	}) {
		return nil
	}
	t := &template{of: p, draft: draft.NewTemplate(&p.sealed, p.addresses)}
	if t.draft == nil {
		return nil
	}
	return m.templates.put(shape, t)
}

// refList returns a list of EDS resources, shared between batches with the same ones.
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

// endpointsOf returns the EDS resources of a proxy in a view. last are its previous ones, or nil.
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
func (m *Memo) assignment(enc *encode.Assignment, ref *endpointRef, set *mesh.EndpointSet,
	f node.Flavor) *draft.Resource {
	encode := func() []byte { return enc.Encode(ref.cluster, set.Subset(ref.subset), ref.localities, f) }
	if m == nil {
		return draft.NewResource(draft.RankEndpoint, ref.cluster, encode())
	}
	k := assignKey{weak.Make(set), ref.cluster, ref.localities.Key(), f}
	if have := m.assigned.get(k); have != nil {
		return have
	}
	return m.assigned.put(k, m.pool.Seal(draft.RankEndpoint, ref.cluster, encode(), nil))
}

// choicesOf returns the tag combinations that proxies of a mesh may select.
func choicesOf(m *Mesh) *policy.Choices { return policy.NewChoices(m.View, m.Policies) }

// matched holds the policies of the classes of an index. The first dataplane of an index is matched
// without a table, which often serves only that one.
type matched struct {
	index *policy.Index
	table *classes.Table // nil until the second dataplane
}

// maxMatched is the number of indexes whose classes are cached: those of the meshes of a node, or
// of the states of a mesh that a check compares.
const maxMatched = 16

// maxRules is the maximum number of cached rules of a view.
const maxRules = 4096

// Match selects the policies of a dataplane, like [policy.Index.Match]. Dataplanes that the
// policies do not distinguish share the result, and results with equal policies of a kind share the
// rules of that kind.
func (m *Memo) Match(x *policy.Index, dataplane *resource.Resource) *policy.Match {
	if m == nil {
		return x.Match(dataplane)
	}
	if m.rules == nil || len(m.rules) >= maxMatched {
		m.rules = map[*mesh.View]map[[32]byte]*policy.KindRules{}
	}
	if known := m.rules[x.View]; known == nil || len(known) >= maxRules {
		m.rules[x.View] = map[[32]byte]*policy.KindRules{}
	}
	out := m.match(x, dataplane)
	out.Share(m.rules[x.View])
	return out
}

func (m *Memo) match(x *policy.Index, dataplane *resource.Resource) *policy.Match {
	at := slices.IndexFunc(m.matched, func(t *matched) bool { return t.index == x })
	if at < 0 {
		if len(m.matched) >= maxMatched {
			m.matched = slices.Delete(m.matched, 0, 1)
		}
		m.matched = append(m.matched, &matched{index: x})
		return x.Match(dataplane)
	}
	t := m.matched[at]
	if at < len(m.matched)-1 {
		m.matched = append(slices.Delete(m.matched, at, at+1), t)
	}
	if t.table == nil {
		t.table = classes.New(x)
	}
	return t.table.Match(dataplane)
}

// DropMatches drops the policies of classes, which refer to whole meshes.
func (m *Memo) DropMatches() { m.matched, m.rules = nil, nil }

// Rest releases the memory in which the last configs were built, and the policies of classes.
func (m *Memo) Rest() {
	m.DropMatches()
	m.pool.Rest()
}

// Sweep drops everything that is unused.
func (m *Memo) Sweep() {
	m.DropMatches()
	m.addresses = nil
	m.pool.Sweep()
	m.batches.sweep()
	m.shapes.sweep()
	m.templates.sweep()
	m.refs.sweep()
	m.endpoints.sweep()
	m.assigned.sweep()
}
