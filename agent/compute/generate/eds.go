package generate

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/encode"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// endpointRef is one EDS resource of a proxy, without its endpoints.
type endpointRef struct {
	cluster    string
	service    mesh.ServiceID // zero for a service without endpoints, and for egresses
	index      int            // of the service in most views
	subset     map[string]string
	localities *policy.Localities // nil: no preference
}

// in returns the endpoints in a view.
func (r *endpointRef) in(v *mesh.View) *mesh.EndpointSet {
	if r.cluster == egressEndpoints {
		return v.Egresses()
	}
	if r.service == (mesh.ServiceID{}) {
		return noEndpoints
	}
	if list := v.Services(); r.index < len(list) && list[r.index].ID == r.service {
		return list[r.index].Endpoints
	}
	if s := v.Service(r.service); s != nil {
		return s.Endpoints
	}
	return noEndpoints
}

var noEndpoints = &mesh.EndpointSet{}

// refTo returns a reference to the endpoints of a service.
func refTo(cluster string, s *mesh.Service, subset map[string]string) endpointRef {
	out := endpointRef{cluster: cluster, subset: subset}
	if s.Index >= 0 {
		out.service, out.index = s.ID, s.Index
	}
	return out
}

// refList lists the EDS resources of a batch. It is immutable.
type refList struct {
	digest [32]byte
	list   []endpointRef
}

// endpoints holds the EDS resources of a proxy in a view, sorted by name.
type endpoints struct {
	lists   []*refList
	list    []*draft.Resource
	version string // of the list
}

// located returns the referenced EDS resources with their preferred localities.
func (g *generator) located() []endpointRef {
	for i := range g.refs {
		g.refs[i].localities = g.localitiesOf(&g.refs[i])
	}
	return g.refs
}

// digestOf returns a hash over EDS resources.
func digestOf(refs []endpointRef) [32]byte {
	d := newDigest()
	for i := range refs {
		r := &refs[i]
		d.add(r.cluster, r.service.Kind, r.service.Name, r.localities.Key())
		d.pairs(r.subset)
	}
	return d.sum()
}

// newEndpoints builds the EDS resources for a view. It returns last, which may be nil, if nothing
// changed.
func newEndpoints(lists []*refList, v *mesh.View, f node.Flavor, memo *Memo, last *endpoints) *endpoints {
	n := 0
	for _, l := range lists {
		n += len(l.list)
	}
	e, enc := &endpoints{lists: lists, list: make([]*draft.Resource, 0, n)}, encode.Assignment{}
	taken := make(map[string]bool, n)
	for _, l := range lists {
		for i := range l.list {
			if ref := &l.list[i]; !taken[ref.cluster] {
				taken[ref.cluster] = true
				e.list = append(e.list, memo.assignment(&enc, ref, ref.in(v), f))
			}
		}
	}
	slices.SortFunc(e.list, func(a, b *draft.Resource) int { return strings.Compare(a.Name, b.Name) })
	if n == 0 {
		e.list = nil
	}
	same := func(a, b *draft.Resource) bool { return a == b || a.Version == b.Version && a.Name == b.Name }
	switch {
	case last == nil || !slices.EqualFunc(e.list, last.list, same):
		e.version = draft.VersionOf(e.list)
	case slices.Equal(lists, last.lists):
		return last
	default:
		e.list, e.version = last.list, last.version
	}
	return e
}

// withEndpoints returns the config with EDS resources, in addition to those that policies added.
func withEndpoints(s *draft.Sealed, e *endpoints, added []*draft.Resource) *draft.Sealed {
	list, version := e.list, e.version
	if len(added) > 0 {
		list = draft.Merge(e.list, added, nil)
		version = draft.VersionOf(list)
	}
	if version == s.Versions[draft.RankEndpoint] {
		return s
	}
	return s.With(draft.RankEndpoint, list, version)
}
