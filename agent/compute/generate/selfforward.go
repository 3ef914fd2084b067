package generate

import (
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// warnSelfForward warns about inbounds whose connections return to the inbound: its listener is
// bound to an address, and the address of the workload leads to this listener again, directly or
// through other inbounds. Each request then makes new ones until Envoy has no sockets left.
//
// It reads the draft after the policies. Listeners that redirection serves are not bound, so
// nothing returns to them.
func (g *generator) warnSelfForward() {
	targets := map[string]netip.AddrPort{} // by cluster
	for _, c := range g.d.Clusters {
		if c.Kind != draft.InboundCluster {
			continue
		}
		for _, l := range c.Message.GetLoadAssignment().GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				targets[c.Message.GetName()] = addrPortOf(e.GetEndpoint().GetAddress())
			}
		}
	}
	bound := make([]netip.AddrPort, len(g.dp.Networking.Inbound))
	next := map[netip.AddrPort]netip.AddrPort{}
	for _, l := range g.d.Listeners {
		if b := l.Message.GetBindToPort(); l.Kind != draft.Inbound || b != nil && !b.GetValue() {
			continue
		}
		at, target := addrPortOf(l.Message.GetAddress()), targets[g.localOf[l.Inbound]]
		if at.IsValid() && target.IsValid() {
			bound[l.Inbound], next[at] = at, target
		}
	}
	for i, at := range bound {
		if !at.IsValid() {
			continue
		}
		to := next[at]
		for range next { // a path without a loop visits each listener at most once
			if to == at {
				g.warnf("networking.inbound[%d]: it forwards to itself: the proxy listens on %s and forwards there, so each "+
					"request makes new ones without end; set servicePort to the port of the workload, or serviceAddress "+
					"to another address of it", i, at)
				break
			}
			to = next[to]
		}
	}
}

// addrPortOf returns the address of a socket as a kernel connects to it, or an invalid one.
func addrPortOf(a *corev3.Address) netip.AddrPort {
	ip, err := netip.ParseAddr(a.GetSocketAddress().GetAddress())
	if err != nil {
		return netip.AddrPort{}
	}
	switch ip = ip.Unmap(); ip {
	case netip.IPv4Unspecified():
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case netip.IPv6Unspecified():
		ip = netip.IPv6Loopback()
	}
	port := a.GetSocketAddress().GetPortValue()
	return netip.AddrPortFrom(ip, uint16(port)) // #nosec G115 -- ports of resources are checked
}
