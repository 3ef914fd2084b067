package generate

import (
	"crypto/sha256"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/encode"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// arrival is a service, or a subset of its endpoints, that clients request from a zone proxy with
// TLS passthrough: at an ingress the clients are in other zones, at an egress in its own zone.
type arrival struct {
	mesh     string
	outbound mesh.Outbound
	list     []mesh.Endpoint // in the zone; at an egress, the ingresses of other zones
	owner    resource.Key
}

// ingress builds the config of an ingress. Its destinations are the services of its zone. Mutual
// TLS passes through, so an ingress needs no secrets.
func (b *border) ingress(prev *Proxy) (*Proxy, error) {
	arrivals, cut := b.in.arrivals()
	b.p.border.fingerprint = ingressFingerprint(b.in, arrivals, cut)
	if p, err := prev.reuseZone(b.in, b.p.border.fingerprint, b.memo); p != nil || err != nil {
		return p, err
	}
	inspector, err := newTLSInspector()
	if err != nil {
		return nil, err
	}
	b.listener.Message.ListenerFilters = []*listenerv3.ListenerFilter{inspector}
	var enc encode.Assignment
	for i := range arrivals {
		b.arrival(&arrivals[i], &enc)
	}
	for _, c := range cut {
		b.warn(b.in.Resource.Key, tooManyChoices, c.mesh, c.from)
	}
	return b.seal(), nil
}

// cutChoices records where tag combinations were dropped.
type cutChoices struct {
	mesh string
	from resource.Key
}

// arrivals returns what other zones can request, of all meshes with mutual TLS; without it there is
// no server name.
func (in *ZoneInput) arrivals() (out []arrival, cut []cutChoices) {
	for _, m := range in.Meshes {
		if m.View.Spec.MTLSEnabled() == nil {
			continue
		}
		choices := choicesOf(m)
		if choices.Cut != (resource.Key{}) {
			cut = append(cut, cutChoices{m.View.Name, choices.Cut})
		}
		for _, s := range m.View.Services() {
			if s.External || s.ID.Kind == mesh.KindMeshExternalService {
				continue
			}
			var list []mesh.Endpoint
			for i := range s.Endpoints.List {
				if e := &s.Endpoints.List[i]; e.Zone == in.Zone && !e.Relay() {
					list = append(list, *e)
				}
			}
			if len(list) == 0 {
				continue
			}
			out = appendArrivals(out, m.View.Name, s, list, choices)
		}
	}
	return out, cut
}

// appendArrivals adds the endpoints of a service, and each subset of them.
func appendArrivals(out []arrival, meshName string, s *mesh.Service, list []mesh.Endpoint,
	choices *policy.Choices) []arrival {
	owner := s.Resource
	if owner == (resource.Key{}) {
		owner = list[0].Resource.Key
	}
	out = append(out, arrival{meshName, mesh.Outbound{Service: s}, list, owner})
	if s.ID.Kind != mesh.KindTag {
		return out
	}
	for _, tags := range choices.Of(s.Tag) {
		if some := (&mesh.EndpointSet{List: list}).Subset(tags); len(some) > 0 {
			out = append(out, arrival{meshName, mesh.Outbound{Service: s, Subset: tags}, some, owner})
		}
	}
	return out
}

// arrival adds the chain, the cluster, and the endpoints of an arrival.
func (b *border) arrival(a *arrival, enc *encode.Assignment) {
	sni := b.serverName(a.mesh, &a.outbound, a.owner)
	if sni == "" || !b.take(sni, a.owner) {
		return
	}
	name := a.mesh + ":" + clusterName(&a.outbound)
	b.d.Clusters = append(b.d.Clusters,
		&draft.Cluster{Service: namedService(a.outbound.Service), Message: &clusterv3.Cluster{
			Name: name, AltStatName: draft.StatName(name), ConnectTimeout: seconds(externalConnectTimeout),
			ClusterDiscoveryType: clusterType(clusterv3.Cluster_EDS), EdsClusterConfig: draft.EDS,
		}})
	r := b.memo.sealed().Seal(draft.RankEndpoint, name, enc.Encode(name, a.list, nil, b.in.Flavor), nil)
	b.d.Ready[draft.RankEndpoint] = append(b.d.Ready[draft.RankEndpoint], r)
	b.listener.Chains = append(b.listener.Chains, &draft.Chain{
		Message: &listenerv3.FilterChain{Name: name, FilterChainMatch: &listenerv3.FilterChainMatch{
			TransportProtocol: transportTLS, ServerNames: []string{sni},
		}},
		TCP: tcpTo(name, name, seconds(localIdleTimeout)),
	})
}

// ingressFingerprint returns a hash of all inputs of an ingress.
func ingressFingerprint(in *ZoneInput, arrivals []arrival, cut []cutChoices) [sha256.Size]byte {
	d := newZoneDigest(in)
	for _, c := range cut {
		d.add(c.mesh, c.from.String())
	}
	d.add("")
	d.arrivals(arrivals)
	return d.sum()
}

func (d *digest) arrivals(list []arrival) {
	for i := range list {
		a := &list[i]
		s := a.outbound.Service
		d.add(a.mesh, s.ID.Kind, s.ID.Name, s.FullName, string(s.Protocol), a.owner.Name,
			mesh.TagString(single(a.outbound.Subset)))
		d.number(len(a.list))
		for j := range a.list {
			e := &a.list[j]
			d.add(e.Address)
			d.number(int(e.Port))
			d.number(int(e.Weight))
			e.EachTag(func(k, val string) { d.add(k, val) })
		}
	}
}
