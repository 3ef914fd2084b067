package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxServers limits the servers whose proxies are explained.
const maxServers = 8

// clusterFacts holds the relevant settings of a cluster.
type clusterFacts struct {
	pinned bool // resolves its addresses by DNS
	http2  bool // uses HTTP/2 upstream
	tls    *tlsv3.UpstreamTlsContext
}

// cluster returns the settings of a cluster of the config, or nil if there is no such cluster.
func (p *flowProxy) cluster(name string) *clusterFacts {
	if f, ok := p.clusters[name]; ok {
		return f
	}
	var f *clusterFacts
	list := p.snapshot[envoy.KindCluster]
	if i := slices.IndexFunc(list, func(r *envoy.Resource) bool { return r.Name == name }); i >= 0 {
		f = &clusterFacts{}
		var c clusterv3.Cluster
		if proto.Unmarshal(list[i].Body(), &c) == nil {
			f.pinned = c.GetType() == clusterv3.Cluster_STRICT_DNS || c.GetType() == clusterv3.Cluster_LOGICAL_DNS
			if options := c.GetTypedExtensionProtocolOptions()[draft.NameHTTPOptions]; options != nil {
				var m httpv3.HttpProtocolOptions
				f.http2 = options.UnmarshalTo(&m) == nil && m.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil
			}
			if socket := c.GetTransportSocket().GetTypedConfig(); socket != nil {
				var tls tlsv3.UpstreamTlsContext
				if socket.UnmarshalTo(&tls) == nil {
					f.tls = &tls
				}
			}
		}
	}
	p.clusters[name] = f
	return f
}

// followServers continues the path through the proxies of the servers.
func (t *Traffic) followServers(client *flowProxy, flow *Flow, in *inquiry) {
	for i := range flow.Clusters {
		c := &flow.Clusters[i]
		facts := client.cluster(c.Name)
		for _, address := range c.Addresses {
			at, err := netip.ParseAddrPort(address)
			if err != nil || facts == nil {
				continue
			}
			if e := t.egressAt(at); e != nil {
				if o, outside := t.outsideService(flow.about.outbound, c.Name); outside && o.Service.Egress &&
					len(flow.Servers) < maxServers {
					flow.Servers = append(flow.Servers, *t.throughEgress(client, e, at, facts, in, c.Request, o))
				}
				continue
			}
			to, ok := t.inboundAt(at)
			if !ok {
				to, ok = t.portAt(at)
				ok = ok && to.dataplane != client.dataplane.Name // calls of itself are not intercepted
			}
			if !ok || len(flow.Servers) == maxServers || slices.ContainsFunc(flow.Servers, func(f Way) bool {
				return f.Address == to.listener.String() && f.Dataplane.Name == to.dataplane
			}) {
				continue
			}
			server, err := t.proxy(to.dataplane)
			if err != nil {
				continue
			}
			flow.Servers = append(flow.Servers, *t.throughServer(client, server, to.listener, facts, in, c.Request))
		}
	}
	flow.mergeServers()
	flow.appendDisturbances()
}

// mergeServers sets the verdict to that of the servers if all of them deny the flow.
func (f *Flow) mergeServers() {
	denied := 0
	var first *Way
	for i := range f.Servers {
		s := &f.Servers[i]
		f.Policies = unique(slices.Concat(f.Policies, s.Policies))
		if s.Verdict != VerdictAllowed {
			denied, first = denied+1, cmp.Or(first, s)
		}
	}
	switch denied {
	case 0:
	case len(f.Servers):
		f.Verdict, f.Flag, f.Status, f.ClosedAt = first.Verdict, first.Flag, first.Status, first.ClosedAt
		f.Reason = fmt.Sprintf("the client's proxy forwards it, but the proxy of %s rejects it: %s",
			first.Dataplane.Name, first.Reason)
		if f.Route != "" && f.Status == 0 {
			f.connectionClosed()
		}
	default:
		f.Reason += fmt.Sprintf("; %d of the %d servers checked reject it, such as %s: %s",
			denied, len(f.Servers), first.Dataplane.Name, first.Reason)
	}
}

// connectionClosed sets the outcome of a request whose connection the server's proxy closes: the
// client's proxy responds with an error.
func (f *Flow) connectionClosed() {
	f.Verdict, f.Status, f.Flag = VerdictDenied, 503, "UC"
	if f.ClosedAt != "" {
		f.Flag = "UF" // before the connection was established
	}
	f.Reason += "; it closes the connection, so the client's proxy responds with 503"
}

// throughServer follows a connection from the client's proxy through the proxy of a server: the
// request as the cluster receives it, or the bytes of the client if its proxy forwards them
// unchanged.
func (t *Traffic) throughServer(client, server *flowProxy, at netip.AddrPort, facts *clusterFacts, in *inquiry,
	passed *match.Upstream) *Way {
	conn, in := t.serverConn(client, server, at, facts, in, passed)
	trace := server.trace(conn, in.req)
	a := &about{t: t, p: server, trace: trace, dst: at, in: in, client: client, inbound: server.inboundIndex(at),
		serverName: strings.ToLower(conn.SNI)}
	return a.way(conn)
}

// serverConn returns the connection from the client's proxy to the server's proxy and the
// data on it.
func (t *Traffic) serverConn(client, server *flowProxy, at netip.AddrPort, facts *clusterFacts, in *inquiry,
	passed *match.Upstream) (*match.Conn, *inquiry) {
	conn := &match.Conn{Dst: at, Src: netip.AddrPortFrom(client.addressFor(at.Addr()), clientPort), First: in.first,
		SNI: in.sni, ALPN: in.alpn}
	if tp := server.spec.Networking.TransparentProxying; tp != nil && tp.RedirectPortInbound != 0 {
		port := tp.RedirectPortInbound
		if at.Addr().Is6() {
			port = cmp.Or(tp.RedirectPortInboundV6, port)
		}
		conn.Entry = netip.AddrPortFrom(at.Addr(), uint16(port))
	}
	if passed != nil {
		own := *in
		own.req = &match.Request{Method: passed.Method, Host: passed.Host, Path: passed.Path, Headers: passed.Headers}
		in, conn.First = &own, match.HTTP11
		if facts.http2 {
			conn.First = match.H2C
		}
	}
	if facts.tls != nil {
		conn.First, conn.Within, conn.SNI = match.TLSHello, conn.First, facts.tls.GetSni()
		conn.ALPN = facts.tls.GetCommonTlsContext().GetAlpnProtocols()
		if names := t.mesh.CertificateNames(client.dataplane); names != nil {
			conn.Peer = &match.Peer{URIs: names}
		}
	}
	return conn, in
}

// inboundAt returns the inbound of the mesh at an address.
func (t *Traffic) inboundAt(at netip.AddrPort) (inboundOf, bool) {
	if t.inbound == nil {
		t.inbound = map[netip.AddrPort]inboundOf{}
		for d, spec := range resource.Specs[*resource.Dataplane](t.mesh.View.Dataplanes()) {
			n := &spec.Networking
			for i := range n.Inbound {
				own, err := parseIP(cmp.Or(n.Inbound[i].Address, n.Address))
				if err != nil {
					continue
				}
				seen := own
				if a, err := parseIP(n.AdvertisedAddress); err == nil {
					seen = a
				}
				port := uint16(n.Inbound[i].Port)
				if key := netip.AddrPortFrom(seen, port); t.inbound[key] == (inboundOf{}) {
					t.inbound[key] = inboundOf{d.Name, netip.AddrPortFrom(own, port)}
				}
			}
		}
	}
	to, ok := t.inbound[at]
	return to, ok
}

// portAt returns a port without an inbound, if the proxy of one dataplane of the mesh receives all
// connections to the address.
func (t *Traffic) portAt(at netip.AddrPort) (inboundOf, bool) {
	var to inboundOf
	for d, spec := range resource.Specs[*resource.Dataplane](t.mesh.View.Dataplanes()) {
		n := &spec.Networking
		own, err := parseIP(n.Address)
		if err != nil || n.TransparentProxying == nil || n.TransparentProxying.RedirectPortInbound == 0 {
			continue
		}
		seen := own
		if a, err := parseIP(n.AdvertisedAddress); err == nil {
			seen = a
		}
		if seen != at.Addr() {
			continue
		}
		if to.dataplane != "" {
			return inboundOf{}, false // which proxy receives it is unknown
		}
		to = inboundOf{d.Name, netip.AddrPortFrom(own, at.Port())}
	}
	return to, to.dataplane != ""
}

// Receives reports whether the proxy of a dataplane of a mesh receives the connections to an
// address, because it has an inbound there or because all its ports are redirected.
func Receives(m *generate.Mesh, at netip.AddrPort) bool {
	t := NewTraffic(m)
	_, ok := t.inboundAt(at)
	if !ok {
		_, ok = t.portAt(at)
	}
	return ok
}

// inboundIndex returns the index of the dataplane's inbound at an address; -1 if there is none.
func (p *flowProxy) inboundIndex(at netip.AddrPort) int {
	n := &p.spec.Networking
	return slices.IndexFunc(n.Inbound, func(in resource.Inbound) bool {
		a, err := parseIP(cmp.Or(in.Address, n.Address))
		return err == nil && netip.AddrPortFrom(a, uint16(in.Port)) == at
	})
}

// services returns the kuma.io/service values in the certificates of a dataplane, sorted.
func (t *Traffic) services(p *flowProxy) []string {
	return t.mesh.View.ProxyTags(p.spec)[resource.TagService]
}

// isPassthrough reports whether a listener is for connections to addresses that no other listener
// has: destinations outside the mesh, and virtual addresses.
func isPassthrough(listener string) bool {
	return strings.HasPrefix(listener, "outbound:passthrough:") || strings.HasPrefix(listener, draft.VirtualListener+":")
}

// unassigned reports whether the proxy closes the connection because nothing has the virtual
// address.
func (f *Flow) unassigned() bool {
	return slices.ContainsFunc(f.Clusters, func(c FlowCluster) bool { return c.Name == draft.VirtualCluster })
}
