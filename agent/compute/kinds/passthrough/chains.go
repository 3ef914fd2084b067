package passthrough

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Results of Envoy's inspectors for a connection.
const (
	transportTLS   = "tls"
	transportPlain = "raw_buffer"
	alpnHTTP10     = "http/1.0"
	alpnHTTP1      = "http/1.1"
	alpnHTTP2      = "h2c"
)

const (
	noMatch           = "no_match"
	statusUnavailable = 503
	// noMatchText is identical to Kuma's text, for programs that search responses for it.
	noMatchText = "This response comes from Kuma Sidecar. No routes matched this domain - check configuration of your " +
		"MeshPassthrough policy.\n"
)

// compareChains orders chains for readers. Envoy ignores the order.
func compareChains(a, b *chain) int {
	c := cmp.Or(
		cmp.Compare(a.protocol.rank(), b.protocol.rank()),
		cmp.Compare(a.kind(), b.kind()),
		cmp.Compare(b.port, a.port),
		cmp.Compare(b.specific(), a.specific()),
		cmp.Compare(a.value(), b.value()),
	)
	switch {
	case c != 0:
		return c
	case a.closure == b.closure:
		return cmp.Compare(a.variant, b.variant)
	case a.closure:
		return 1
	}
	return -1
}

func (p protocol) rank() protocol {
	if p == mysql {
		return tcp
	}
	return p
}

func (c *chain) kind() targetKind {
	if c.rule == nil {
		return domainTarget
	}
	return c.rule.kind
}

// specific returns the length of a prefix, or the number of dots in a domain.
func (c *chain) specific() int {
	switch {
	case c.rule == nil:
		return 0
	case c.rule.named():
		return strings.Count(c.rule.text, ".")
	}
	return c.rule.prefix.Bits()
}

func (c *chain) value() string {
	if c.rule == nil {
		return ""
	}
	return c.rule.text
}

func (c *chain) name() string {
	var name string
	if c.rule != nil && c.rule.port == c.port {
		name = c.rule.name
	} else {
		name = resourceName(c.protocol, c.value(), c.port)
	}
	name += c.variant
	if c.closure {
		name += "_closure"
	}
	return name
}

// statistics returns the statistics prefix that all chains of a rule share.
func (c *chain) statistics() string {
	if c.rule != nil {
		return c.rule.stat
	}
	return toolkit.StatName(resourceName(c.protocol, "", c.port))
}

// chainMaker converts chains to Envoy's messages. Chains share converted ranges.
type chainMaker struct {
	ranges  map[*netip.Prefix][]*corev3.CidrRange
	through bool // traffic leaves the mesh through zone egresses
	dp      *resource.Dataplane
}

// chainMessages holds the messages that most chains have, so that one allocation suffices.
type chainMessages struct {
	chain   draft.Chain
	message listenerv3.FilterChain
	match   listenerv3.FilterChainMatch
	port    wrapperspb.UInt32Value
	tcp     tcpv3.TcpProxy
	cluster tcpv3.TcpProxy_Cluster
}

func (m *chainMaker) chain(c *chain) *draft.Chain {
	p := &chainMessages{}
	p.chain.Message = &p.message
	p.message.Name, p.message.FilterChainMatch = c.name(), &p.match
	p.match.TransportProtocol, p.match.PrefixRanges = transportPlain, m.prefixes(c)
	if c.port != 0 {
		p.port.Value = c.port
		p.match.DestinationPort = &p.port
	}
	switch c.protocol.class() {
	case requests:
		if !c.missed {
			p.match.ApplicationProtocols = []string{alpnHTTP10, alpnHTTP1, alpnHTTP2}
		}
		if !m.through || !c.tunneled() {
			p.chain.HTTP = m.manager(c)
			return &p.chain
		}
	case secure:
		p.match.TransportProtocol = transportTLS
		if c.rule.named() && !c.rule.anywhere() {
			p.match.ServerNames = []string{c.rule.text}
		}
	case plain:
		if c.hello {
			p.match.TransportProtocol = transportTLS
		}
	}
	p.tcp.StatPrefix = c.rule.stat
	p.cluster.Cluster = c.rule.name
	p.tcp.ClusterSpecifier = &p.cluster
	if m.through && !c.rule.fixed() && !c.rule.closes {
		p.tcp.TunnelingConfig = tunnel()
	}
	p.chain.TCP = &p.tcp
	if c.rule.forwarded() {
		p.chain.Network = m.forwardTLS(c)
	}
	return &p.chain
}

// tunneled reports whether the chain passes bytes to a zone egress instead of handling requests, if
// external traffic leaves through one.
func (c *chain) tunneled() bool { return c.rule != nil && !c.rule.fixed() }

func (m *chainMaker) prefixes(c *chain) []*corev3.CidrRange {
	switch {
	case len(c.ranges) == 0:
		return nil
	case !c.closure: // its own range, as written in the rule
		return []*corev3.CidrRange{{AddressPrefix: c.rule.addr, PrefixLen: wrapperspb.UInt32(uint32(c.rule.prefix.Bits()))}}
	}
	if list := m.ranges[&c.ranges[0]]; list != nil {
		return list
	}
	list := make([]*corev3.CidrRange, len(c.ranges))
	for i, p := range c.ranges {
		list[i] = &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))}
	}
	if m.ranges == nil {
		m.ranges = map[*netip.Prefix][]*corev3.CidrRange{}
	}
	m.ranges[&c.ranges[0]] = list
	return list
}

// manager returns the HTTP connection manager for requests to an address with any Host, or to
// hosts.
func (m *chainMaker) manager(c *chain) *draft.HTTP {
	routes := &routev3.RouteConfiguration{Name: c.name()}
	if c.rule != nil {
		routes.VirtualHosts = []*routev3.VirtualHost{virtualHost(c.rule.text, c.rule.name, "*")}
	} else {
		routes.VirtualHosts = make([]*routev3.VirtualHost, 0, len(c.hosts)+1)
		for _, r := range c.hosts {
			routes.VirtualHosts = append(routes.VirtualHosts, virtualHost(hostName(r), r.name, hostDomains(r, c.port)...))
		}
		if c.others != nil {
			routes.VirtualHosts = append(routes.VirtualHosts, virtualHost(c.others.text, c.others.name, "*"))
		} else {
			routes.VirtualHosts = append(routes.VirtualHosts, refusal())
		}
	}
	out := &draft.HTTP{
		Message: &hcmv3.HttpConnectionManager{
			StatPrefix: c.statistics(), InternalAddressConfig: draft.InternalAddresses,
			HttpProtocolOptions: draft.HTTP10,
		},
		Filters: draft.PlainFilters,
		Routes:  routes,
	}
	m.forwardHTTP(c, out)
	return out
}

// hostName returns the name of the virtual host of a domain.
func hostName(r *rule) string {
	if r.text == noMatch {
		return r.text + "." // must differ from the refusal's name
	}
	return r.text
}

// hostDomains returns the Host values for a domain on a port. Clients may omit the port (RFC 9110
// section 7.2).
func hostDomains(r *rule, port uint32) []string {
	switch {
	case port != 0:
		return []string{r.text, r.text + ":" + strconv.FormatUint(uint64(port), 10)}
	case r.kind == domainTarget:
		return []string{r.text, r.text + ":*"}
	}
	return []string{r.text}
}

func virtualHost(name, cluster string, domains ...string) *routev3.VirtualHost {
	p := &struct {
		host    routev3.VirtualHost
		route   routev3.Route
		match   routev3.RouteMatch
		prefix  routev3.RouteMatch_Prefix
		action  routev3.Route_Route
		to      routev3.RouteAction
		cluster routev3.RouteAction_Cluster
	}{}
	p.prefix.Prefix, p.match.PathSpecifier = "/", &p.prefix
	p.cluster.Cluster, p.to.ClusterSpecifier = cluster, &p.cluster
	p.action.Route, p.route.Action, p.route.Match = &p.to, &p.action, &p.match
	p.host.Name, p.host.Domains, p.host.Routes = name, domains, []*routev3.Route{&p.route}
	return &p.host
}

// refusal returns the virtual host for requests to hosts without a rule.
func refusal() *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: noMatch, Domains: []string{"*"}, Routes: []*routev3.Route{{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{
			Status: statusUnavailable,
			Body:   &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: noMatchText}},
		}},
	}}}
}
