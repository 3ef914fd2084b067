package generate

import (
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// routed lets plugins build the chains of an outbound, and reports whether one did.
func (g *generator) routed(o *mesh.Outbound, l *draft.Listener) bool {
	if g.c == nil {
		return false
	}
	out := policy.Outbound{Service: l.Service, Tags: o.Tags, Listener: l, Headers: g.headers,
		Self: func(from *resource.Resource) policy.Destination { return g.own(from, o) }}
	for i := range g.plugins {
		plugin := &g.plugins[i]
		if plugin.Outbound != nil && plugin.Outbound(g.c, &out) {
			return true
		}
		for j := range plugin.Legacy {
			if f := plugin.Legacy[j].Outbound; f != nil && f(g.c, &out) {
				return true
			}
		}
	}
	return false
}

// self returns a reference to the destination of an outbound.
func self(o *mesh.Outbound) policy.BackendRef {
	if o.Service.ID.Kind == mesh.KindTag {
		return policy.BackendRef{Kind: "MeshServiceSubset", Name: o.Service.Tag, Tags: o.Subset}
	}
	return policy.BackendRef{Kind: o.Service.ID.Kind, Name: o.Service.Resource.Name, Port: o.Service.Port}
}

// apply lets the policies change the current batch.
func (g *generator) apply() {
	defer g.d.AskReal(g.v.AskedHosts)
	if g.c == nil {
		return
	}
	for i := range g.plugins {
		plugin := &g.plugins[i]
		for j := range plugin.Legacy {
			if f := plugin.Legacy[j].Apply; f != nil {
				f(g.c, g.d)
			}
		}
		if plugin.Apply != nil {
			plugin.Apply(g.c, g.d)
		}
	}
}

// own returns the destination of an outbound. from is the policy that refers to it.
func (g *generator) own(from *resource.Resource, o *mesh.Outbound) policy.Destination {
	if o.Service.Index < 0 && !o.Service.Denied {
		g.Warn(from.Key, nothingOffers, mesh.BackendRef(self(o)))
	}
	return g.destination(o)
}

const nothingOffers = "nothing offers %s: what leads there has no endpoints"

// destination adds the cluster of a destination once.
func (g *generator) destination(o *mesh.Outbound) policy.Destination {
	out := policy.Destination{Service: g.serviceOf(o.Service), Cluster: clusterName(o)}
	g.serviceCluster(o, &outboundMessages{}, out.Cluster, out.Service)
	return out
}

// Destination implements [policy.Host].
func (g *generator) Destination(from *resource.Resource, ref policy.BackendRef) (policy.Destination, bool) {
	o, ok := g.backend(from, ref)
	if !ok {
		return policy.Destination{}, false
	}
	return g.destination(&o), true
}

// Lookup implements [policy.Host].
func (g *generator) Lookup(from *resource.Resource, ref policy.BackendRef) (draft.Service, bool) {
	o, ok := g.backend(from, ref)
	if !ok {
		return draft.Service{}, false
	}
	return g.serviceOf(o.Service), true
}

// backend resolves a reference. The keys of batches include the result.
func (g *generator) backend(from *resource.Resource, ref policy.BackendRef) (mesh.Outbound, bool) {
	o, ok := g.v.Backend(from, mesh.BackendRef(ref))
	switch {
	case !ok:
		g.Warn(from.Key, "there is no %s: what leads there is left out", mesh.BackendRef(ref))
		return o, false
	case o.Service.Index < 0:
		g.Warn(from.Key, nothingOffers, mesh.BackendRef(ref))
	}
	return g.permits.restrict(o), true
}

// Claim implements [policy.Host].
func (g *generator) Claim(typeURL, name string) bool {
	if typeURL == draft.TypeCluster {
		return g.claim(name)
	}
	return !g.isClaimed(typeURL + "\x00" + name)
}

// isClaimed reports whether plugins have claimed a name.
func (g *generator) isClaimed(key string) bool {
	if g.claimed == nil {
		g.claimed = map[string]bool{}
	}
	before := g.claimed[key]
	g.claimed[key] = true
	return before
}

// Localities implements [policy.Host].
func (g *generator) Localities(cluster string, l *policy.Localities) {
	if g.localities == nil {
		g.localities = map[string]*policy.Localities{}
	}
	g.localities[cluster] = l
}

// localitiesOf returns the preferred localities of a cluster's endpoints: those of a plugin, or
// else the proxy's zone first, if the mesh enables that and for a MeshMultiZoneService.
func (g *generator) localitiesOf(ref *endpointRef) *policy.Localities {
	if l, said := g.localities[ref.cluster]; said || g.flavor == node.FlavorGRPC {
		return l
	}
	r := g.v.Spec.Routing
	aware := r != nil && r.LocalityAwareLoadBalancing
	if ref.service.Kind == mesh.KindMeshMultiZoneService {
		aware = true
	}
	if !aware {
		return nil
	}
	if g.localFirst == nil {
		g.localFirst = policy.NewLocalities(policy.Localities{Zone: g.v.Zone,
			Failover: []policy.Failover{{Priority: 1, Except: true}}})
	}
	return g.localFirst
}

// EnvoyFrom implements [policy.Host].
func (g *generator) EnvoyFrom(major, minor uint32) bool { return g.p.Build.From(major, minor) }

// egressEndpoints is the load assignment of all clusters that lead to egresses. No service can have
// this name.
const egressEndpoints = "egress/endpoints"

// Egress implements [policy.Host].
func (g *generator) Egress(c *draft.Cluster, serverName string) {
	c.Message.ClusterDiscoveryType = clusterType(clusterv3.Cluster_EDS)
	c.Message.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
	c.Message.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: draft.ADS, ServiceName: egressEndpoints}
	c.Message.TransportSocket = g.tls.egress(serverName)
	if g.claim(egressEndpoints) {
		g.refs = append(g.refs, endpointRef{cluster: egressEndpoints})
	}
}

// maxNotes is the maximum number of warnings about one proxy.
const maxNotes = 1000

// Warn implements [policy.Host].
func (g *generator) Warn(k resource.Key, format string, args ...any) {
	w := mesh.Warning{Resource: k, Reason: fmt.Sprintf(format, args...)}
	g.batches.note(w)
	g.note(w)
}

// note records a warning, unless it is already recorded.
func (g *generator) note(w mesh.Warning) {
	if len(g.p.notes) < maxNotes && !slices.Contains(g.p.notes, w) {
		g.p.notes = append(g.p.notes, w)
	}
}
