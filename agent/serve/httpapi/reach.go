package httpapi

import (
	"sync"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// savings works savings out and remembers them while nothing changes that they depend on. It is
// safe for use by many goroutines.
type savings struct {
	mu      sync.Mutex
	of      map[savingKey]api.Saving
	weights map[weightKey]int
}

type savingKey struct {
	mesh      string
	catalog   [32]byte
	reach     [32]byte
	dataplane resource.Digest
}

type weightKey struct {
	mesh    string
	catalog [32]byte
	sort    serviceSort
}

// serviceSort is services whose configs are about of a size.
type serviceSort struct {
	kind string
	http bool
}

// maxSavings bounds what is remembered, maxSample the services of a sort that are weighed.
const (
	maxSavings = 10_000
	maxSample  = 16
)

// saving works out what a dataplane saves; nil when it cannot be said.
func (x *savings) saving(m *generate.Mesh, name string) *api.Saving {
	dp := m.View.Dataplane(name)
	if dp == nil || m.Policies == nil {
		return nil
	}
	key := savingKey{m.View.Name, m.View.Catalog, m.Policies.ReachDigest(dp), dp.Digest}
	x.mu.Lock()
	defer x.mu.Unlock()
	if s, ok := x.of[key]; ok {
		return &s
	}
	if x.of == nil || len(x.of) >= maxSavings {
		x.of, x.weights = map[savingKey]api.Saving{}, map[weightKey]int{}
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
	x.of[key] = out
	return &out
}

// weight is the mean size of the config for a service of a sort, of some that are spread over the
// list.
func (x *savings) weight(m *generate.Mesh, name string, sort serviceSort, list []*mesh.Service) int {
	key := weightKey{m.View.Name, m.View.Catalog, sort}
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
	x.weights[key] = max(0, with-without) / n
	return x.weights[key]
}
