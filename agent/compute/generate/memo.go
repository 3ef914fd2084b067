package generate

import (
	"maps"
	"slices"
	"weak"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Memo remembers sealed resources as long as some proxy uses them, so that proxies with the same
// bytes share them. It is not safe for use by two goroutines at once. A nil Memo remembers nothing.
type Memo struct {
	pool     *draft.Pool
	assigned map[assignKey]weak.Pointer[draft.Resource]
	limit    int // entries of assigned at which dead ones are dropped
	chosen   map[string]chosen
	parts    map[string]*sharedParts
	room     room // of one proxy after the other
	alike    alike
}

// chosen are the choices of tags of a mesh as it was last.
type chosen struct {
	view     weak.Pointer[mesh.View]
	policies weak.Pointer[policy.Index]
	choices  *policy.Choices
}

type assignKey struct {
	set        weak.Pointer[mesh.EndpointSet]
	cluster    string
	localities string
	flavor     node.Flavor
}

// NewMemo returns an empty memo.
func NewMemo() *Memo {
	return &Memo{
		pool:     draft.NewPool(),
		assigned: map[assignKey]weak.Pointer[draft.Resource]{},
		limit:    4096,
		chosen:   map[string]chosen{},
		parts:    map[string]*sharedParts{},
	}
}

// choices returns the choices of tags that proxies of a mesh may make. All proxies at the border of
// the zone need them.
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

// sealed returns where resources are sealed; nil for a nil Memo.
func (m *Memo) sealed() *draft.Pool {
	if m == nil {
		return nil
	}
	return m.pool
}

// endpoints returns the sealed load assignment of a cluster.
func (m *Memo) endpoints(enc *assignment, ref *endpointRef, f node.Flavor) *draft.Resource {
	if m == nil {
		return draft.NewResource(ref.cluster, enc.bodyOf(ref, f))
	}
	k := assignKey{weak.Make(ref.set), ref.cluster, ref.localities.Key(), f}
	if have := m.assigned[k].Value(); have != nil {
		return have
	}
	m.sweep()
	r := m.pool.Seal(draft.TypeEndpoint, ref.cluster, enc.bodyOf(ref, f))
	m.assigned[k] = weak.Make(r)
	return r
}

func (a *assignment) bodyOf(ref *endpointRef, f node.Flavor) []byte {
	return a.encode(ref.cluster, ref.set.Subset(ref.subset), ref.localities, f)
}

// sweep drops entries whose resource nobody uses any more, once there are twice as many as after
// the last sweep.
func (m *Memo) sweep() {
	if len(m.assigned) < m.limit {
		return
	}
	maps.DeleteFunc(m.assigned, func(k assignKey, p weak.Pointer[draft.Resource]) bool {
		return p.Value() == nil || k.set.Value() == nil
	})
	m.limit = max(4096, 2*len(m.assigned))
}

// Sweep drops all that nobody uses any more.
func (m *Memo) Sweep() {
	m.Rest()
	m.pool.Sweep()
	m.limit = 0
	m.sweep()
	for _, s := range m.parts {
		s.sweep()
	}
}

// reuse returns p brought up to a view, when nothing but endpoints has changed in what the proxy
// sees of the mesh; nil when it has to be made anew. The dataplane and the flavor are those of p.
func (p *Proxy) reuse(m *Mesh, r *resource.Resource, dp *resource.Dataplane, memo *Memo) *Proxy {
	v, reach := m.View, m.reach(r)
	if p.catalog == v.Catalog && p.reach == reach {
		if !slices.Equal(directServices(v, r, dp), p.fixed) {
			return nil
		}
		return p.refresh(v, memo)
	}
	// Something about some service is new. Most proxies reach few of them.
	if p.mesh != v.Spec || p.upgrades != v.WebSockets || p.zone != v.Zone || p.Mesh != v.Name {
		return nil
	}
	outbounds, warnings := m.outbounds(r)
	fixed := directServices(v, r, dp)
	if !slices.EqualFunc(outbounds, p.outbounds, sameOutbound) || !slices.Equal(fixed, p.fixed) {
		return nil
	}
	backends, ok := p.sameBackends(m, m.permits(r))
	if !ok {
		return nil
	}
	next := *p
	outbounds = memo.sharedOutbounds(outbounds)
	next.catalog, next.reach, next.outbounds, next.fixed = v.Catalog, reach, outbounds, fixed
	next.backends, next.parts = backends, onTop(p.parts, outbounds)
	next.Warnings = slices.Concat(warnings, p.notes)
	next.refs = memo.indexed(p.refs, outbounds, backends)
	return next.refresh(v, memo)
}

// sameOutbound reports whether the listener and the cluster of two outbounds of one dataplane are
// the same.
func sameOutbound(a, b mesh.Outbound) bool {
	s, t := a.Service, b.Service
	return a.Address == b.Address && a.Port == b.Port && s.ID == t.ID && s.Protocol == t.Protocol &&
		s.External == t.External && s.Egress == t.Egress && s.Denied == t.Denied &&
		(!s.External || s.Endpoints == t.Endpoints) && (s.Index < 0) == (t.Index < 0) && maps.Equal(a.Tags, b.Tags) &&
		s.FullName == t.FullName && s.TLSNotReady == t.TLSNotReady && slices.Equal(s.Identities, t.Identities)
}
