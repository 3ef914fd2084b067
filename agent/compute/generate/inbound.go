package generate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/redirect"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// noServicePort is the port of an inbound that only carries tags and serves nothing (Kuma's
// convention for pods without a service).
const noServicePort = 49151

// inbounds adds a listener and a cluster for each port that the workload serves.
func (g *generator) inbounds() {
	n := &g.dp.Networking
	var err error
	if g.serverFirst, err = mesh.ServerFirst(g.r); err != nil {
		g.warnf("%v", err)
	}
	shared := n.SamePort()
	for i := range n.Inbound {
		in := &n.Inbound[i]
		if in.Port == noServicePort || in.State == resource.InboundIgnored && g.used(in) ||
			shared != nil && shared[i][0] != i {
			continue
		}
		host := cmp.Or(in.Address, n.Address)
		addr, err := netip.ParseAddr(host)
		if err != nil {
			g.warnf("networking.inbound[%d]: the address %q is not an IP address: the inbound is left out; "+
				"set networking.address to an IP", i, host)
			continue
		}
		if tp := g.dp.Networking.TransparentProxying; tp != nil && !redirected(tp.IPFamilyMode, addr) {
			effect := "reach the workload without the proxy"
			if g.r.Labels[redirect.Label] != "" { // both families are redirected
				effect = "fail"
			}
			g.warnf("networking.inbound[%d]: the address %s is not of a family that ipFamilyMode %s redirects: connections to "+
				"it %s; give an address of that family, or ipFamilyMode %s", i, addr, tp.IPFamilyMode, effect,
				resource.IPFamilyDualStack)
		}
		protocol := mesh.ParseProtocol(in.Speaks())
		if shared != nil {
			protocol = g.sharedProtocol(shared[i])
		}
		g.inbound(i, in, addr, protocol)
	}
}

// sharedProtocol returns the protocol of a listener that serves several inbounds: the one that all
// of their clients speak.
func (g *generator) sharedProtocol(list []int) mesh.Protocol {
	n := &g.dp.Networking
	first := mesh.ParseProtocol(n.Inbound[list[0]].Speaks())
	out := first
	for _, i := range list[1:] {
		p := mesh.ParseProtocol(n.Inbound[i].Speaks())
		if out = mesh.Common(out, p); p != first {
			g.warnf("networking.inbound[%d]: its protocol %s differs from %s of inbound[%d] at the same port %d: "+
				"one listener serves both and treats connections as %s; give both the same protocol",
				i, p, first, list[0], n.Inbound[i].Port, out)
		}
	}
	return out
}

// warnServerFirst warns about each port of the label for servers that send first: time decides
// whether a client uses TLS, or the label has no effect.
func (g *generator) warnServerFirst() {
	for _, port := range g.serverFirst {
		i := slices.IndexFunc(g.d.Listeners, func(l *draft.Listener) bool {
			return l.Kind == draft.Inbound && l.Port == port
		})
		switch {
		case i < 0 || mesh.ParseProtocol(g.d.Listeners[i].Service.Protocol).HTTP():
			g.warnf("labels[%q]: no inbound has port %d with the protocol tcp; name ports of TCP inbounds",
				mesh.LabelServerFirst, port)
		case g.d.Listeners[i].Message.ContinueOnListenerFiltersTimeout && !g.v.Switching:
			g.warnf("labels[%q]: port %d also accepts plain text, so clients that send nothing for 1 s are treated as clients "+
				"without TLS; set MeshTLS mode Strict when all clients are in the mesh", mesh.LabelServerFirst, port)
		}
	}
}

// used reports whether an active inbound has the same address and port, and therefore the same
// listener, as an ignored one.
func (g *generator) used(ignored *resource.Inbound) bool {
	n := &g.dp.Networking
	return slices.ContainsFunc(n.Inbound, func(in resource.Inbound) bool {
		return in.State != resource.InboundIgnored && in.Port == ignored.Port &&
			cmp.Or(in.Address, n.Address) == cmp.Or(ignored.Address, n.Address)
	})
}

// redirected reports whether redirection in a mode captures connections to an address.
func redirected(mode string, addr netip.Addr) bool {
	switch mode {
	case resource.IPFamilyIPv4:
		return addr.Unmap().Is4()
	case resource.IPFamilyIPv6:
		return !addr.Unmap().Is4()
	}
	return true
}

func (g *generator) inbound(index int, in *resource.Inbound, addr netip.Addr, protocol mesh.Protocol) {
	port := cmp.Or(in.ServicePort, in.Port)
	workload := localTarget{host: cmp.Or(in.ServiceAddress, addr.String()), speaks: spokenTo(protocol)}
	cluster := g.localName(port, workload)
	if g.localOf == nil {
		g.localOf = map[int]string{}
	}
	g.localOf[index] = cluster
	service := draft.Service{Name: in.Tags[resource.TagService], Protocol: string(protocol)}
	if service.Name == "" { // Envoy requires names of virtual hosts
		service.Name = mesh.SectionName(in.Name, in.Port)
	}
	l := &draft.Listener{
		Kind: draft.Inbound, Port: in.Port, Inbound: index, Service: service, Tags: g.v.InboundTags(in.Tags),
		Message: inboundListener(addr, in.Port),
	}
	l.Message.BindToPort = g.bindToPort()
	l.Chains = g.tls.chains(l.Message, slices.Contains(g.serverFirst, in.Port), func() *draft.Chain {
		if protocol.HTTP() {
			return &draft.Chain{HTTP: g.inboundHTTP(service.Name, cluster, protocol)}
		}
		return &draft.Chain{TCP: tcpTo(cluster, cluster, seconds(localIdleTimeout))}
	})
	g.d.Listeners = append(g.d.Listeners, l)
	g.localCluster(index, cluster, workload.host, port, service, protocol)
}

// localTarget identifies, with the port number, a workload port as an inbound reaches it.
type localTarget struct {
	host   string
	speaks mesh.Protocol
}

// spokenTo returns the protocol that a proxy uses towards a workload: HTTP/1.1, HTTP/2, or TCP.
func spokenTo(p mesh.Protocol) mesh.Protocol {
	switch {
	case !p.HTTP():
		return mesh.ProtocolTCP
	case p == mesh.ProtocolGRPC:
		return mesh.ProtocolHTTP2
	}
	return p
}

// localName returns the cluster name of a workload port. Inbounds share a cluster if they reach the
// port in the same way. The first inbound of a port gets the name without a suffix.
func (g *generator) localName(port uint32, t localTarget) string {
	name := fmt.Sprintf("localhost:%d", port)
	if first, ok := g.locals[port]; ok && first != t {
		return fmt.Sprintf("%s_%s_%s", name, t.host, t.speaks)
	}
	if g.locals == nil {
		g.locals = map[uint32]localTarget{}
	}
	g.locals[port] = t
	return name
}

// bindToPort returns nil, Envoy's default of true, unless connections reach the listener through
// redirection.
func (g *generator) bindToPort() *wrapperspb.BoolValue {
	if g.dp.Networking.TransparentProxying == nil {
		return nil
	}
	return sharedFalse
}

// localCluster adds the cluster of the workload behind an inbound.
func (g *generator) localCluster(inbound int, name, host string, port uint32, service draft.Service, p mesh.Protocol) {
	if !g.claim(name) {
		return // another inbound reaches the port in the same way
	}
	c := &draft.Cluster{Kind: draft.InboundCluster, Inbound: inbound, Service: service, Message: &clusterv3.Cluster{
		Name:                 name,
		AltStatName:          draft.StatName(name),
		ClusterDiscoveryType: clusterType(clusterv3.Cluster_STATIC),
		ConnectTimeout:       seconds(localConnectTimeout),
		LoadAssignment: assignmentOf(name, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socketAddress(host, port)}},
		}),
	}}
	if g.dp.Networking.TransparentProxying != nil {
		source := inboundSourceV4
		if a, err := netip.ParseAddr(host); err == nil && a.Is6() && !a.Is4In6() {
			source = inboundSourceV6
		}
		c.Message.UpstreamBindConfig = bindTo(source)
	}
	httpOptions(c, p)
	if c.HTTP != nil {
		c.EditHTTP().CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: seconds(localIdleTimeout)}
	}
	g.d.Clusters = append(g.d.Clusters, c)
}

func (g *generator) inboundHTTP(service, cluster string, p mesh.Protocol) *draft.HTTP {
	routes := routesOf("inbound:"+service, service, prefixRoute("", cluster))
	routes.RequestHeadersToRemove = []string{tagsHeader}
	out := &draft.HTTP{
		Filters: httpFilters(p),
		Message: &hcmv3.HttpConnectionManager{
			StatPrefix:                  draft.StatName(cluster),
			CommonHttpProtocolOptions:   &corev3.HttpProtocolOptions{IdleTimeout: seconds(localIdleTimeout)},
			ForwardClientCertDetails:    hcmv3.HttpConnectionManager_SANITIZE_SET,
			SetCurrentClientCertDetails: &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Uri: true},
			StreamIdleTimeout:           seconds(inboundStreamIdleTimeout),
			InternalAddressConfig:       draft.InternalAddresses,
			HttpProtocolOptions:         draft.HTTP10,
			UpgradeConfigs:              draft.WebSockets,
		},
		Routes: routes,
	}
	if g.v.WebSockets && p == mesh.ProtocolHTTP {
		out.Message.Http2ProtocolOptions = draft.ExtendedCONNECT
	}
	return out
}

func httpFilters(p mesh.Protocol) []draft.Extension {
	if p == mesh.ProtocolGRPC {
		return draft.GRPCFilters
	}
	return draft.PlainFilters
}

// prefixRoute sends all requests to one cluster, without a timeout.
func prefixRoute(name, cluster string) *routev3.Route {
	a := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:          seconds(0),
	}
	return &routev3.Route{
		Name:   name,
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: a},
	}
}
