package meshtls

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
)

// closePorts limits the inbound passthrough to the ports of inbounds if all inbounds of the proxy
// demand a certificate of the mesh. Otherwise clients without one could reach every other port of
// the workload in plain text. A gateway without inbounds keeps all ports, because its clients are
// outside the mesh.
//
// Without a MeshTLS, Kuma 2.14 does so for proxies that report the feature
// feature-strict-inbound-ports. Here each connected Envoy counts as one.
func closePorts(c *policy.Context, d *draft.Draft, rules *policy.KindRules) {
	if rules == nil && !c.Host.EnvoyFrom(1, 0) || !strictProxy(c, rules) {
		return
	}
	var ports []uint32
	for i := range c.Dataplane().Networking.Inbound {
		ports = append(ports, c.Dataplane().Networking.Inbound[i].Port)
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	for l := range toolkit.Listeners(d, draft.InboundPassthrough) {
		all := l.Chains
		l.Chains = nil
		for _, open := range all {
			for _, port := range ports {
				ch := open.Clone()
				ch.Message = &listenerv3.FilterChain{
					FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(port)},
				}
				if port == noServicePort {
					ch.TCP = toEmptyCluster(d, open.TCP)
				}
				l.Chains = append(l.Chains, ch)
			}
		}
	}
}

// noServicePort is the port of an inbound that only carries tags and serves nothing (Kuma's
// convention).
const noServicePort = 49151

// toEmptyCluster returns a proxy that closes connections. A listener needs at least one chain.
func toEmptyCluster(d *draft.Draft, open *tcpv3.TcpProxy) *tcpv3.TcpProxy {
	toolkit.AddEmptyCluster(d, kind)
	return &tcpv3.TcpProxy{StatPrefix: open.GetStatPrefix(),
		ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: toolkit.ClusterEmpty}}
}

// strictProxy reports whether the proxy has inbounds and all of them demand a certificate.
func strictProxy(c *policy.Context, rules *policy.KindRules) bool {
	b := c.View.Spec.MTLSEnabled()
	if b == nil {
		return false
	}
	inbounds := c.Dataplane().Networking.Inbound
	for i := range inbounds {
		open := b.Permissive()
		conf := toolkit.Conf[Conf](rules.InboundAll(i))
		if conf != nil && conf.Mode != nil && !c.View.Switching {
			open = *conf.Mode == permissive
		}
		if open {
			return false
		}
	}
	return len(inbounds) > 0
}
