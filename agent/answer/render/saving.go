package render

import (
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Savings computes how much smaller a proxy's config is because the proxy does not reach all
// services. It measures each serviceSort of a mesh once and caches the result. The zero value is
// ready to use. It is not safe for concurrent use.
type Savings struct {
	weights map[weightKey]int
}

type weightKey struct {
	mesh string
	sort serviceSort
}

// serviceSort groups services whose configs have about the same size.
type serviceSort struct {
	kind string
	http bool
}

// maxSample limits the services of one serviceSort that are measured.
const maxSample = 16

// Of returns the saving of a dataplane, or nil if the dataplane or its policies are unknown.
func (x *Savings) Of(m *generate.Mesh, name string) *api.Saving {
	dp := m.View.Dataplane(name)
	if dp == nil || m.Policies == nil {
		return nil
	}
	var out api.Saving
	omitted := map[serviceSort][]*mesh.Service{}
	reach, mode := m.Policies.Reach(dp), m.View.Spec.ServicesMode()
	for _, s := range m.View.Services() {
		switch v := reach.Of(s); {
		case v.Reachable:
			out.Clusters++
		case v.Cause != mesh.CauseNotListed && v.Cause != mesh.CauseNoPermission:
		case s.ID.Kind != mesh.KindTag && mode == resource.MeshServicesReachableBackends:
			// The mode of the mesh omits services that are not listed, so listing saves nothing.
		default:
			k := serviceSort{s.ID.Kind, s.Protocol.HTTP()}
			omitted[k] = append(omitted[k], s)
		}
	}
	out.Of = out.Clusters
	for sort, list := range omitted {
		out.Of += len(list)
		out.Bytes += len(list) * x.weight(m, name, sort, list)
	}
	return &out
}

// weight returns the mean config size of a service of a sort in bytes, measured on a sample spread
// over the list.
func (x *Savings) weight(m *generate.Mesh, name string, sort serviceSort, list []*mesh.Service) int {
	key := weightKey{m.View.Name, sort}
	if w, ok := x.weights[key]; ok {
		return w
	}
	n := min(len(list), maxSample)
	sample := make([]*mesh.Service, n)
	for i := range sample {
		sample[i] = list[i*len(list)/n]
	}
	with, err := m.Weigh(name, sample)
	if err != nil {
		return 0
	}
	without, err := m.Weigh(name, nil)
	if err != nil {
		return 0
	}
	if x.weights == nil {
		x.weights = map[weightKey]int{}
	}
	x.weights[key] = max(0, with-without) / n
	return x.weights[key]
}
