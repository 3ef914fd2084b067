package render

import (
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Savings computes what proxies save by not reaching all services. The zero value is ready; it
// computes the size of the config for each sort of services once. It is not safe for concurrent
// use.
type Savings struct {
	weights map[weightKey]int
}

type weightKey struct {
	mesh string
	sort serviceSort
}

// serviceSort is services whose configs have about the same size.
type serviceSort struct {
	kind string
	http bool
}

// maxSample bounds the services of a sort that are weighed.
const maxSample = 16

// Of returns what a dataplane of a mesh saves; nil when it cannot be said.
func (x *Savings) Of(m *generate.Mesh, name string) *api.Saving {
	dp := m.View.Dataplane(name)
	if dp == nil || m.Policies == nil {
		return nil
	}
	var out api.Saving
	spared := map[serviceSort][]*mesh.Service{}
	reach, mode := m.Policies.Reach(dp), m.View.Spec.ServicesMode()
	for _, s := range m.View.Services() {
		switch v := reach.Of(s); {
		case v.Reachable:
			out.Clusters++
		case v.Cause != mesh.CauseNotListed && v.Cause != mesh.CauseNoPermission:
		case s.ID.Kind != mesh.KindTag && mode == resource.MeshServicesReachableBackends,
			s.ID.Kind == mesh.KindMeshService && mode == resource.MeshServicesDisabled:
			// The mode leaves it out where it is not listed.
		default:
			k := serviceSort{s.ID.Kind, s.Protocol.HTTP()}
			spared[k] = append(spared[k], s)
		}
	}
	out.Of = out.Clusters
	for sort, list := range spared {
		out.Of += len(list)
		out.Bytes += len(list) * x.weight(m, name, sort, list)
	}
	return &out
}

// weight is the mean size of the config for a service of a sort, of a sample spread over the list.
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
