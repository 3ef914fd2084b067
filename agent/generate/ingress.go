package generate

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/clip"
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// originIngress is what patches of Envoy's config know the resources by.
const originIngress = "ingress"

// maxIngressChains bounds the filter chains of an ingress.
const maxIngressChains = 20_000

// ingress makes the config of one ingress: a listener with a filter chain for each service of its zone, told by the server
// name that proxies of other zones ask for, and the clusters with the endpoints of the zone. Mutual TLS passes through
// it unread, so that it has no secrets.
type ingress struct {
	in       *ZoneInput
	d        *draft.Draft
	p        *Proxy
	listener *draft.Listener
	names    map[string]resource.Key // server names that are taken, in lower case
	left     int                     // services beyond the bound
	eps      []*draft.Resource
	enc      assignment
	memo     *Memo
}

// arrival is a service, or a choice of its endpoints, that other zones can ask for.
type arrival struct {
	mesh     string
	outbound mesh.Outbound
	list     []mesh.Endpoint // of the zone
	owner    resource.Key
}

func generateIngress(in ZoneInput, spec *resource.ZoneIngress, prev *Proxy, memo *Memo) (*Proxy, error) {
	addr, err := netip.ParseAddr(spec.Networking.Address)
	if err != nil {
		return nil, fmt.Errorf("%s: networking.address: an ingress cannot listen at %q: give an IP address", in.Resource.Key, spec.Networking.Address)
	}
	arrivals, cut := in.arrivals(memo)
	fingerprint := ingressFingerprint(&in, arrivals, cut)
	if p, err := prev.reuseZone(&in, fingerprint, memo); p != nil || err != nil {
		return p, err
	}
	g := &ingress{in: &in, d: &draft.Draft{}, names: map[string]resource.Key{}, memo: memo}
	g.p = &Proxy{Name: in.Resource.Name, Flavor: in.Flavor, border: &zoneState{fingerprint: fingerprint}}
	g.listener = &draft.Listener{Kind: draft.OtherListener, Origin: originIngress, Port: spec.Networking.Port, Message: &listenerv3.Listener{
		Name:             "inbound:" + hostPort(addr, spec.Networking.Port),
		Address:          socketAddress(addr.String(), spec.Networking.Port),
		TrafficDirection: corev3.TrafficDirection_INBOUND,
		EnableReusePort:  sharedFalse,
	}}
	for i := range arrivals {
		g.add(&arrivals[i])
	}
	for _, c := range cut {
		g.warn(in.Resource.Key, tooManyChoices, c.mesh, c.from)
	}
	if g.left > 0 {
		g.warn(in.Resource.Key, "more than %d services and choices of tags: %d are not reachable through the ingress", maxIngressChains, g.left)
	}
	return g.p, g.seal()
}

// cutChoices says where choices of tags were cut off.
type cutChoices struct {
	mesh string
	from resource.Key
}

// arrivals lists what other zones can ask for, of all meshes with mutual TLS: without it there is no server name.
func (in *ZoneInput) arrivals(memo *Memo) (out []arrival, cut []cutChoices) {
	for _, m := range in.Meshes {
		if m.View.Spec.MTLSEnabled() == nil {
			continue
		}
		choices := memo.choices(m)
		if choices.Cut != (resource.Key{}) {
			cut = append(cut, cutChoices{m.View.Name, choices.Cut})
		}
		for _, s := range m.View.Services() {
			if s.External || s.ID.Kind == mesh.KindMeshExternalService {
				continue
			}
			var list []mesh.Endpoint
			for i := range s.Endpoints.List {
				if e := &s.Endpoints.List[i]; e.Zone == in.Zone && !e.Ingress() {
					list = append(list, *e)
				}
			}
			if len(list) == 0 {
				continue
			}
			owner := s.Resource
			if owner == (resource.Key{}) {
				owner = list[0].Resource.Key
			}
			out = append(out, arrival{m.View.Name, mesh.Outbound{Service: s}, list, owner})
			if s.ID.Kind != mesh.KindTag {
				continue
			}
			for _, tags := range choices.Of(s.Tag) {
				if some := (&mesh.EndpointSet{List: list}).Subset(tags); len(some) > 0 {
					out = append(out, arrival{m.View.Name, mesh.Outbound{Service: s, Subset: tags}, some, owner})
				}
			}
		}
	}
	return out, cut
}

// add adds the chain, the cluster and the endpoints of one arrival.
func (g *ingress) add(a *arrival) {
	sni := strings.ToLower(sniOf(a.mesh, &a.outbound))
	other, taken := g.names[sni]
	switch {
	case sni == "":
		g.warn(a.owner, "its server name, which is made of the mesh, the service and %d tags, is longer than %d bytes: it is not reachable through the ingress; give shorter names", len(a.outbound.Subset), maxSNI)
		return
	case strings.Contains(sni, "*"):
		g.warn(a.owner, "its server name %q has a *, which stands for more than itself: it is not reachable through the ingress", clip.Text(sni, maxSNI))
		return
	case taken:
		g.warn(a.owner, "its server name %q is that of %s, or differs from it in the case of letters alone, which TLS does not tell apart: it is not reachable through the ingress; rename one", clip.Text(sni, maxSNI), other)
		return
	case len(g.names) == maxIngressChains:
		g.left++
		return
	}
	g.names[sni] = a.owner
	name := a.mesh + ":" + clusterName(&a.outbound)
	g.d.Clusters = append(g.d.Clusters, &draft.Cluster{Origin: originIngress, Service: serviceOf(a.outbound.Service), Message: &clusterv3.Cluster{
		Name: name, AltStatName: statName(name), ConnectTimeout: seconds(externalConnectTimeout),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}, EdsClusterConfig: draft.EDS,
	}})
	g.eps = append(g.eps, g.memo.intern(draft.TypeEndpoint, draft.NewResource(name, g.enc.encode(name, a.list, nil, g.in.Flavor))))
	g.listener.Chains = append(g.listener.Chains, &draft.Chain{
		Message: &listenerv3.FilterChain{Name: name, FilterChainMatch: &listenerv3.FilterChainMatch{
			TransportProtocol: transportTLS, ServerNames: []string{sni},
		}},
		TCP: externalTCP(name),
	})
}

// seal packs the draft. A listener without chains would be refused, so there is none.
func (g *ingress) seal() error {
	if len(g.listener.Chains) > 0 {
		inspector, err := newTLSInspector()
		if err != nil {
			return err
		}
		g.listener.Message.ListenerFilters = []*listenerv3.ListenerFilter{inspector}
		g.d.Listeners = append(g.d.Listeners, g.listener)
	}
	slices.SortFunc(g.eps, func(a, b *draft.Resource) int { return strings.Compare(a.Name, b.Name) })
	g.d.Ready[draft.Rank(draft.TypeEndpoint)] = g.eps
	g.p.Sealed = g.in.seal(g.d, g.memo, g.warn)
	return nil
}

func (g *ingress) warn(k resource.Key, format string, args ...any) {
	if len(g.p.Warnings) < maxNotes {
		g.p.Warnings = append(g.p.Warnings, mesh.Warning{Resource: k, Reason: fmt.Sprintf(format, args...)})
	}
}

// ingressFingerprint is a hash of all that an ingress is made from.
func ingressFingerprint(in *ZoneInput, arrivals []arrival, cut []cutChoices) [sha256.Size]byte {
	h := sha256.New()
	var b []byte
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = append(b, in.Resource.Digest[:]...)
	str(in.Resource.Name)
	str(in.Zone)
	for _, c := range cut {
		str(c.mesh)
		str(c.from.String())
	}
	str("")
	for i := range arrivals {
		a := &arrivals[i]
		s := a.outbound.Service
		str(a.mesh)
		str(s.ID.Kind)
		str(s.ID.Name)
		str(s.FullName)
		str(string(s.Protocol))
		str(a.owner.Name)
		str(mesh.TagString(single(a.outbound.Subset)))
		b = binary.AppendUvarint(b, uint64(len(a.list)))
		for j := range a.list {
			e := &a.list[j]
			str(e.Address)
			b = binary.AppendUvarint(b, uint64(e.Port))
			e.EachTag(func(k, val string) { str(k); str(val) })
		}
		if len(b) > 4096 {
			h.Write(b)
			b = b[:0]
		}
	}
	h.Write(b)
	return [sha256.Size]byte(h.Sum(nil))
}
