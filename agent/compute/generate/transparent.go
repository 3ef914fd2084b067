package generate

import (
	"fmt"
	"net/netip"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// family is an IP version: its name, its unspecified address, and the address from which a proxy
// connects to its workload.
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

// transparent adds the listeners for redirected connections. Each passes a connection to the
// listener with its original destination, or else through to that destination.
func (g *generator) transparent() {
	tp := g.dp.Networking.TransparentProxying
	if tp == nil {
		return
	}
	virtual, err := mesh.VirtualPort(g.r, g.dp)
	if err != nil {
		g.warnf("%v", err)
	}
	if tp.RedirectPortOutbound != 0 && g.claim(draft.VirtualCluster) {
		c := closed(draft.VirtualCluster)
		c.AltStatName = draft.StatName(draft.VirtualCluster)
		g.d.Clusters = append(g.d.Clusters, &draft.Cluster{Kind: draft.PassthroughCluster, Message: c})
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
			l := passthrough(draft.OutboundPassthrough, name, f, port, corev3.TrafficDirection_OUTBOUND)
			if !g.v.Spec.Passthrough() {
				l.Chains[0].TCP.StatPrefix = draft.ClosedStatName(name)
			}
			l.Chains = append(l.Chains, g.unassigned(f))
			g.d.Listeners = append(g.d.Listeners, l)
		}
		if virtual != 0 {
			l := passthrough(draft.OutboundPassthrough, draft.VirtualListener+":"+f.name, f, virtual,
				corev3.TrafficDirection_OUTBOUND)
			l.Chains = []*draft.Chain{{TCP: tcpTo(draft.VirtualCluster, draft.VirtualCluster, nil)}}
			g.d.Listeners = append(g.d.Listeners, l)
		}
	}
}

// unassigned returns the chain that closes connections to virtual addresses that no listener has.
// Nothing else has such an address, so a connection there would only time out.
func (g *generator) unassigned(f family) *draft.Chain {
	m := &listenerv3.FilterChainMatch{}
	for _, p := range g.v.VirtualRanges(f.name == "ipv6") {
		m.PrefixRanges = append(m.PrefixRanges, &corev3.CidrRange{
			AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits())), // #nosec G115 -- at most 128
		})
	}
	return &draft.Chain{Message: &listenerv3.FilterChain{Name: draft.VirtualListener, FilterChainMatch: m},
		TCP: tcpTo(draft.VirtualCluster, draft.VirtualCluster, nil)}
}

// closed returns a cluster without endpoints. Envoy resets connections to it, which is more visible
// than a reference to a missing cluster.
func closed(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: clusterType(clusterv3.Cluster_STATIC),
		ConnectTimeout:       seconds(passthroughConnectTimeout),
		LoadAssignment:       assignmentOf(name),
	}
}

func passthrough(kind draft.ListenerKind, name string, f family, port uint32,
	dir corev3.TrafficDirection) *draft.Listener {
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

// directAccessCluster connects to the address that the workload dialed.
const directAccessCluster = "direct_access"

// directServices returns the instances of the services that a workload dials directly by instance
// address. It excludes the workload itself.
func directServices(v *mesh.View, r *resource.Resource, dp *resource.Dataplane) []mesh.Instance {
	tp := dp.Networking.TransparentProxying
	if tp == nil || len(tp.DirectAccessServices) == 0 {
		return nil
	}
	return slices.DeleteFunc(v.Instances(tp.DirectAccessServices), func(i mesh.Instance) bool {
		return i.Dataplane == r.Key
	})
}

// directAccess adds a listener for each of these instances.
func (g *generator) directAccess() {
	if len(g.fixed) == 0 {
		return
	}
	taken := map[netip.AddrPort]bool{} // Envoy rejects two listeners with one address
	for _, o := range g.reachable {
		taken[netip.AddrPortFrom(o.Address, uint16(o.Port))] = true
	}
	for _, in := range g.fixed {
		if taken[in.At] {
			continue
		}
		taken[in.At] = true
		name := fmt.Sprintf("direct_access_%s:%d", in.At.Addr(), in.At.Port())
		g.d.Listeners = append(g.d.Listeners, &draft.Listener{
			Kind: draft.DirectAccess, Port: uint32(in.At.Port()),
			Service: draft.Service{Name: in.Service, Protocol: string(in.Protocol)},
			Message: &listenerv3.Listener{
				Name:             name,
				Address:          socketAddress(in.At.Addr().String(), uint32(in.At.Port())),
				TrafficDirection: corev3.TrafficDirection_OUTBOUND,
				BindToPort:       sharedFalse,
			},
			Chains: []*draft.Chain{{TCP: tcpTo(name, directAccessCluster, nil)}},
		})
	}
	if g.claim(directAccessCluster) {
		c := originalDst(directAccessCluster)
		g.tls.anybody(c)
		g.d.Clusters = append(g.d.Clusters,
			&draft.Cluster{Kind: draft.PassthroughCluster, Origin: draft.OriginDirectAccess, Message: c})
	}
}
