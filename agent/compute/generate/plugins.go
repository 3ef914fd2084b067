package generate

import (
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// backend is what a reference of a route led to.
type backend struct {
	from     *resource.Resource
	ref      policy.BackendRef
	outbound mesh.Outbound // its service is nil where there is none
}

// routed asks the plugins for the chains of an outbound, and reports whether one has made them.
func (g *generator) routed(o *mesh.Outbound, l *draft.Listener) bool {
	if g.c == nil {
		return false
	}
	out := policy.Outbound{Service: l.Service, Tags: o.Tags, Listener: l, Headers: g.headers, Self: self(o)}
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

// self refers to what an outbound leads to.
func self(o *mesh.Outbound) policy.BackendRef {
	if o.Service.ID.Kind == mesh.KindTag {
		return policy.BackendRef{Kind: "MeshServiceSubset", Name: o.Service.Tag, Tags: o.Subset}
	}
	return policy.BackendRef{Kind: o.Service.ID.Kind, Name: o.Service.Resource.Name, Port: o.Service.Port}
}

// apply lets the policies act on the part that was made.
func (g *generator) apply() {
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

// Destination implements [policy.Host].
func (g *generator) Destination(from *resource.Resource, ref policy.BackendRef) (policy.Destination, bool) {
	o, ok := g.backend(from, ref)
	if !ok {
		return policy.Destination{}, false
	}
	service, cluster := g.serviceOf(o.Service), clusterName(&o)
	if !g.has(cluster) {
		g.serviceCluster(&o, &outboundParts{}, cluster, service)
	}
	return policy.Destination{Cluster: cluster, Service: service}, true
}

// Lookup implements [policy.Host].
func (g *generator) Lookup(from *resource.Resource, ref policy.BackendRef) (draft.Service, bool) {
	o, ok := g.backend(from, ref)
	if !ok {
		return draft.Service{}, false
	}
	return g.serviceOf(o.Service), true
}

// backend finds what a reference leads to, and notes it: the config has to be made anew when that
// changes.
func (g *generator) backend(from *resource.Resource, ref policy.BackendRef) (mesh.Outbound, bool) {
	o, ok := g.v.Backend(from, mesh.BackendRef(ref))
	switch {
	case !ok:
		g.Warn(from.Key, "there is no %s: what leads there is left out", mesh.BackendRef(ref))
	case o.Service.Index < 0:
		g.Warn(from.Key, "nothing offers %s: what leads there has no endpoints", mesh.BackendRef(ref))
	}
	if ok {
		o = g.permits.restrict(o)
	}
	if !ok || !g.has(clusterName(&o)) {
		g.p.backends = append(g.p.backends, backend{from, ref, o})
	}
	return o, ok
}

// Claim implements [policy.Host].
func (g *generator) Claim(typeURL, name string) bool {
	if typeURL == draft.TypeCluster {
		return g.claim(name)
	}
	return !g.isClaimed(typeURL + "\x00" + name)
}

// isClaimed reports whether plugins have claimed something, which has happened then.
func (g *generator) isClaimed(key string) bool {
	if g.claimed == nil {
		g.claimed = map[string]bool{}
	}
	before := g.claimed[key]
	g.parts.claim(key, before)
	g.claimed[key] = true
	return before
}

// Localities implements [policy.Host].
func (g *generator) Localities(cluster string, l *policy.Localities) {
	if g.localities == nil {
		g.localities = map[string]*policy.Localities{}
	}
	g.localities[cluster] = l
	if p := g.parts.making(); p != nil {
		p.located = append(p.located, located{cluster, l})
	}
}

// localitiesOf says where the endpoints of a cluster are preferred to be: what a plugin has said,
// else in the zone of the proxy, where the mesh asks for that and for a MeshMultiZoneService.
func (g *generator) localitiesOf(ref *endpointRef) *policy.Localities {
	if l, said := g.localities[ref.cluster]; said || g.flavor == node.FlavorGRPC {
		return l
	}
	r := g.v.Spec.Routing
	aware := r != nil && r.LocalityAwareLoadBalancing
	if ref.index >= 0 && g.v.Services()[ref.index].ID.Kind == mesh.KindMeshMultiZoneService {
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

// EnvoyFrom implements [policy.Host]. What was asked is noted: the config has to be made anew for
// an Envoy of which the answer is another one.
func (g *generator) EnvoyFrom(major, minor uint32) bool {
	if v := (finding.Version{Major: major, Minor: minor}); !slices.Contains(g.p.versions, v) {
		g.p.versions = append(g.p.versions, v)
	}
	is := g.p.Build.From(major, minor)
	if p := g.parts.making(); p != nil {
		p.versions = append(p.versions, answer{finding.Version{Major: major, Minor: minor}, is})
	}
	return is
}

// fitsBuild reports whether the config of p is that for another Envoy too.
func (p *Proxy) fitsBuild(b *finding.Build) bool {
	return p.Build == b || !slices.ContainsFunc(p.versions, func(v finding.Version) bool {
		return p.Build.From(v.Major, v.Minor) != b.From(v.Major, v.Minor)
	})
}

// egressEndpoints is the load assignment that clusters share which lead to the egresses. No service
// has such a name.
const egressEndpoints = "egress/endpoints"

// atEgress is the index of an endpointRef to the egresses.
const atEgress = -2

// Egress implements [policy.Host].
func (g *generator) Egress(c *draft.Cluster, serverName string) {
	c.Message.ClusterDiscoveryType = clusterType(clusterv3.Cluster_EDS)
	c.Message.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
	c.Message.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: draft.ADS, ServiceName: egressEndpoints}
	c.Message.TransportSocket = g.tls.egress(serverName)
	if g.claim(egressEndpoints) {
		g.refs = append(g.refs, endpointRef{cluster: egressEndpoints, index: atEgress, set: g.v.Egresses()})
	}
}

// maxNotes bounds what is noted about one proxy.
const maxNotes = 1000

// Warn implements [policy.Host].
func (g *generator) Warn(k resource.Key, format string, args ...any) {
	w := mesh.Warning{Resource: k, Reason: fmt.Sprintf(format, args...)}
	if p := g.parts.making(); p != nil && len(p.notes) < maxNotes && !slices.Contains(p.notes, w) {
		p.notes = append(p.notes, w)
	}
	g.note(w)
}

// note notes a warning once.
func (g *generator) note(w mesh.Warning) {
	if len(g.p.notes) < maxNotes && !slices.Contains(g.p.notes, w) {
		g.p.notes = append(g.p.notes, w)
	}
}

// sameBackends looks up again what routes lead to, and reports whether listeners and clusters are
// still the same.
func (p *Proxy) sameBackends(m *Mesh, permits *permits) ([]backend, bool) {
	out := make([]backend, len(p.backends))
	for i, b := range p.backends {
		o, ok := m.View.Backend(b.from, mesh.BackendRef(b.ref))
		if ok {
			o = permits.restrict(o)
		}
		if ok != (b.outbound.Service != nil) || ok && !sameOutbound(o, b.outbound) {
			return nil, false
		}
		out[i] = backend{b.from, b.ref, o}
	}
	return out, true
}
