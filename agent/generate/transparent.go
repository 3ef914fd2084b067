package generate

import (
	"fmt"
	"net/netip"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// family is one IP version: its name, the address that stands for all of it, and where a proxy dials its workload from.
type family struct{ name, any, source string }

func families(mode string) []family {
	both := []family{{"ipv4", "0.0.0.0", inboundSourceV4}, {"ipv6", "::", inboundSourceV6}}
	switch mode {
	case resource.IPFamilyIPv4:
		return both[:1]
	case resource.IPFamilyIPv6:
		return both[1:]
	}
	return both
}

// transparent adds the listeners that redirected connections arrive at. Each hands connections to the listener that
// owns their original destination, and passes the rest through.
func (g *generator) transparent() {
	tp := g.dp.Networking.TransparentProxying
	if tp == nil {
		return
	}
	for _, f := range families(tp.IPFamilyMode) {
		if port := tp.RedirectPortInbound; port != 0 {
			if f.name == "ipv6" && tp.RedirectPortInboundV6 != 0 {
				port = tp.RedirectPortInboundV6
			}
			name := "inbound:passthrough:" + f.name
			c := originalDst(name)
			c.AltStatName = draft.StatName(name)
			c.UpstreamBindConfig = bindTo(f.source)
			g.d.Clusters = append(g.d.Clusters, &draft.Cluster{Kind: draft.PassthroughCluster, Message: c})
			l := passthrough(draft.InboundPassthrough, name, f, port, corev3.TrafficDirection_INBOUND)
			l.Message.EnableReusePort = sharedFalse
			g.d.Listeners = append(g.d.Listeners, l)
		}
		if port := tp.RedirectPortOutbound; port != 0 {
			name := "outbound:passthrough:" + f.name
			c := originalDst(name)
			if !g.v.Spec.Passthrough() {
				c = closed(name)
			}
			c.AltStatName = draft.StatName(name)
			g.d.Clusters = append(g.d.Clusters, &draft.Cluster{Kind: draft.PassthroughCluster, Message: c})
			g.d.Listeners = append(g.d.Listeners, passthrough(draft.OutboundPassthrough, name, f, port, corev3.TrafficDirection_OUTBOUND))
		}
	}
}

// closed is a cluster without endpoints: what is sent there is reset, on purpose and visibly, instead of by a
// reference that leads nowhere.
func closed(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: clusterType(clusterv3.Cluster_STATIC),
		ConnectTimeout:       seconds(passthroughConnectTimeout),
		LoadAssignment:       assignmentOf(name),
	}
}

func passthrough(kind draft.ListenerKind, name string, f family, port uint32, dir corev3.TrafficDirection) *draft.Listener {
	return &draft.Listener{
		Kind: kind, Port: port,
		Message: &listenerv3.Listener{
			Name:             name,
			Address:          socketAddress(f.any, port),
			TrafficDirection: dir,
			UseOriginalDst:   sharedTrue,
		},
		Chains: []*draft.Chain{{TCP: tcpTo(name, name, nil)}},
	}
}

// directAccessCluster dials what the workload dialled.
const directAccessCluster = "direct_access"

// directServices are the services that a workload dials by their own addresses.
func directServices(v *mesh.View, dp *resource.Dataplane) []endpointRef {
	tp := dp.Networking.TransparentProxying
	if tp == nil || len(tp.DirectAccessServices) == 0 {
		return nil
	}
	var out []endpointRef
	all := slices.Contains(tp.DirectAccessServices, "*")
	for _, s := range v.Services() {
		if s.ID.Kind == mesh.KindTag && s.Outside == nil && (all || slices.Contains(tp.DirectAccessServices, s.Tag)) {
			out = append(out, endpointRef{cluster: s.ID.Name, index: s.Index, set: s.Endpoints})
		}
	}
	return out
}

// directAccess adds a listener for each endpoint of those services.
func (g *generator) directAccess() {
	g.p.fixed = directServices(g.v, g.dp)
	if len(g.p.fixed) == 0 {
		return
	}
	taken := map[netip.AddrPort]bool{} // two listeners at one address would be refused
	for _, o := range g.p.outbounds {
		taken[netip.AddrPortFrom(o.Address, uint16(o.Port))] = true
	}
	for _, ref := range g.p.fixed {
		protocol := g.v.Services()[ref.index].Protocol
		for _, e := range ref.set.List {
			if e.Resource.Key == g.r.Key || e.Relay() {
				continue // its own inbounds have listeners at these addresses, and nobody dials an ingress
			}
			addr, err := netip.ParseAddr(e.Address)
			if err != nil || taken[netip.AddrPortFrom(addr, uint16(e.Port))] {
				continue
			}
			taken[netip.AddrPortFrom(addr, uint16(e.Port))] = true
			name := fmt.Sprintf("direct_access_%s:%d", e.Address, e.Port)
			g.d.Listeners = append(g.d.Listeners, &draft.Listener{
				Kind: draft.DirectAccess, Port: e.Port,
				Service: draft.Service{Name: ref.cluster, Protocol: string(protocol)},
				Message: &listenerv3.Listener{
					Name:             name,
					Address:          socketAddress(e.Address, e.Port),
					TrafficDirection: corev3.TrafficDirection_OUTBOUND,
					BindToPort:       sharedFalse,
				},
				Chains: []*draft.Chain{{TCP: tcpTo(name, directAccessCluster, nil)}},
			})
		}
	}
	if g.claim(directAccessCluster) {
		c := originalDst(directAccessCluster)
		g.tls.anybody(c)
		g.d.Clusters = append(g.d.Clusters, &draft.Cluster{Kind: draft.PassthroughCluster, Origin: draft.OriginDirectAccess, Message: c})
	}
}
