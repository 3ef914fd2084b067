package status

import (
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// MeshInsights returns the visible meshes, sorted by name, with the counts of their visible
// resources.
func (t *Tracker) MeshInsights(snap *store.Snapshot, visible func(resource.Key) bool) []api.MeshInsight {
	at := map[string]*api.MeshInsight{}
	for _, res := range snap.Set().Kind(kindMesh) {
		if rec, ok := snap.Get(res.Key); ok && visible(res.Key) {
			at[res.Name] = &api.MeshInsight{Head: HeadOf("MeshInsight", rec), Policies: map[string]api.Counts{}}
		}
	}
	for _, p := range t.All(snap, t.Last()) {
		x := at[p.Mesh]
		if x == nil || !p.Dataplane || !visible(Key(&p)) {
			continue
		}
		x.Dataplanes.Total++
		if slices.ContainsFunc(p.Clients, func(c api.ProxyStatus) bool { return c.Streams > 0 }) {
			x.Dataplanes.Online++
		} else {
			x.Dataplanes.Offline++
		}
	}
	for _, d := range t.Registry.All() {
		if !d.Policy && d.Kind != "ExternalService" {
			continue
		}
		for _, res := range snap.Set().Kind(d.Kind) {
			if x := at[res.Mesh]; x != nil && visible(res.Key) {
				x.Policies[d.Kind] = api.Counts{Total: x.Policies[d.Kind].Total + 1}
			}
		}
	}
	out := make([]api.MeshInsight, 0, len(at))
	for _, name := range slices.Sorted(maps.Keys(at)) {
		out = append(out, *at[name])
	}
	return out
}

// ServiceInsights returns a function that returns the state of a tag service in a view. An endpoint
// whose Envoy should be on this node and is not connected counts as offline. Endpoints of other
// nodes count as online if their dataplane is ready and their node responds.
func (t *Tracker) ServiceInsights(snap *store.Snapshot, rec store.Record,
	v *mesh.View) func(*api.Service) api.ServiceInsight {
	connected := map[resource.Key]bool{}
	if t.Proxies != nil {
		for _, c := range t.Proxies() {
			if c.Streams > 0 {
				connected[node.Ref{Type: c.Type, Mesh: c.Mesh, Name: c.Name}.Key()] = true
			}
		}
	}
	return func(x *api.Service) api.ServiceInsight {
		missing := 0
		if s := v.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: x.Name}); s != nil && t.Proxies != nil {
			for i := range s.Endpoints.List {
				e := &s.Endpoints.List[i]
				if e.Dead() || e.Resource.Kind == kindDataplane && !connected[e.Resource.Key] && isLocal(snap, e.Resource.Key) {
					missing++
				}
			}
		}
		return ServiceInsight(rec, x, missing)
	}
}

// isLocal reports whether this node owns a resource.
func isLocal(snap *store.Snapshot, k resource.Key) bool {
	rec, ok := snap.Get(k)
	return ok && rec.Source.Kind != store.SourcePeer
}

// ServiceInsight returns the state of a service, with the times of its mesh. missing is the number
// of ready endpoints whose Envoy is not connected.
func ServiceInsight(mesh store.Record, x *api.Service, missing int) api.ServiceInsight {
	item := api.ServiceInsight{Head: HeadOf("ServiceInsight", mesh)}
	item.Mesh, item.Name, item.Labels = mesh.Name, x.Name, nil
	zones := map[string]bool{}
	for _, p := range x.Ports {
		if p.Total > item.Dataplanes.Total {
			online := max(p.Ready-missing, 0)
			item.Dataplanes = api.Counts{Total: p.Total, Online: online, Offline: p.Total - online}
		}
		for _, z := range p.Zones {
			zones[z] = true
		}
	}
	item.Zones = slices.Sorted(maps.Keys(zones))
	switch c := item.Dataplanes; {
	case c.Total == 0:
		item.Status = "not_available"
	case c.Offline == 0:
		item.Status = "online"
	case c.Online == 0:
		item.Status = "offline"
	default:
		item.Status = "partially_degraded"
	}
	return item
}
