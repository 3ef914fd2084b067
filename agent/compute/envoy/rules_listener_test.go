package envoy_test

import (
	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func typedExtension(name string, m proto.Message) *xdscorev3.TypedExtensionConfig {
	return &xdscorev3.TypedExtensionConfig{Name: name, TypedConfig: pack(m)}
}

// toChain returns an on_match that names a filter chain.
func toChain(name string) *xdsmatcherv3.Matcher_OnMatch {
	return &xdsmatcherv3.Matcher_OnMatch{
		OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{Action: typedExtension("filter-chain-name", wrapperspb.String(name))},
	}
}

// exact returns a matcher with an exact match map.
func exact(input proto.Message, to map[string]*xdsmatcherv3.Matcher_OnMatch) *xdsmatcherv3.Matcher {
	return &xdsmatcherv3.Matcher{
		MatcherType: &xdsmatcherv3.Matcher_MatcherTree_{MatcherTree: &xdsmatcherv3.Matcher_MatcherTree{
			Input: typedExtension("input", input), TreeType: &xdsmatcherv3.Matcher_MatcherTree_ExactMatchMap{
				ExactMatchMap: &xdsmatcherv3.Matcher_MatcherTree_MatchMap{Map: to},
			},
		}}}
}

// custom returns a matcher with the custom match m.
func custom(input, m proto.Message) *xdsmatcherv3.Matcher {
	return &xdsmatcherv3.Matcher{
		MatcherType: &xdsmatcherv3.Matcher_MatcherTree_{MatcherTree: &xdsmatcherv3.Matcher_MatcherTree{
			Input:    typedExtension("input", input),
			TreeType: &xdsmatcherv3.Matcher_MatcherTree_CustomMatch{CustomMatch: typedExtension("custom", m)},
		}}}
}

func ports(to ...string) *xdsmatcherv3.Matcher {
	m := map[string]*xdsmatcherv3.Matcher_OnMatch{}
	for i := 0; i < len(to); i += 2 {
		m[to[i]] = toChain(to[i+1])
	}
	return exact(&networkv3.DestinationPortInput{}, m)
}

// secondListener returns a separate listener with one chain.
func secondListener(name string, a *corev3.Address) *listenerv3.Listener {
	return &listenerv3.Listener{Name: name, Address: a,
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{tcpProxy("static")}}}}
}

func udpAddress(port uint32) *corev3.Address {
	a := address("0.0.0.0", port)
	a.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
	return a
}

func networkRBAC(rules *rbacv3.RBAC) *listenerv3.Filter {
	return filter("rbac", &netrbacv3.RBAC{StatPrefix: "r", Rules: rules})
}

func listenerCases() []ruleCase {
	const chains = "/filterChains"
	return []ruleCase{
		{0, "garbage in an Any", finding.Reject, "", "/filterChains/1/filters/0/typedConfig",
			"cannot be decoded", func(b *base) {
				b.filters = func(f []*listenerv3.Filter) []*listenerv3.Filter {
					f[0].GetTypedConfig().Value = []byte{0xff, 0xff}
					return f
				}
			}},
		{0, "an annotated rule", finding.Reject, "", "/address/socketAddress/portValue",
			"65535", func(b *base) { b.listener.Address = address("0.0.0.0", 65536) }},
		{0, "an annotated rule in an Any", finding.Reject, "", "/filterChains/1/filters/0/typedConfig/statPrefix",
			"at least 1", func(b *base) { b.tcp.StatPrefix = "" }},
		{1, "no address", finding.Reject, "", "/address", "no address", func(b *base) { b.listener.Address = nil }},
		{1, "a host name", finding.Reject, "", "/address/socketAddress/address",
			"not an IP", func(b *base) { b.listener.Address = address("example.com", 80) }},
		{1, "a named port", finding.Reject, "", "/address/socketAddress/namedPort", "port_value", func(b *base) {
			b.listener.Address.GetSocketAddress().PortSpecifier = &corev3.SocketAddress_NamedPort{NamedPort: "http"}
		}},
		{2, "no chains", finding.Reject, "", chains, "no filter chain", func(b *base) { b.listener.FilterChains = nil }},
		{3, "equal matches", finding.Reject, "", "/filterChains/3/filterChainMatch", `"plain" and "again"`, func(b *base) {
			b.listener.FilterChains = append(b.listener.FilterChains, chain("again", "http :80"))
		}},
		{3, "two chains without a match", finding.Reject, "two", "/filterChains/1/filterChainMatch", "#0", func(b *base) {
			l := secondListener("two", address("0.0.0.0", 20000))
			l.FilterChains = append(l.FilterChains, l.FilterChains[0])
			b.more = append(b.more, l)
		}},
		{4, "overlapping names", finding.Reject, "", "/filterChains/3/filterChainMatch", "A.com", func(b *base) {
			b.listener.FilterChains = append(b.listener.FilterChains, chain("again", "tls b.com A.com :80"))
		}},
		{4, "masked ranges", finding.Reject, "", "/filterChains/4/filterChainMatch", "192.168.0.0/24", func(b *base) {
			b.listener.FilterChains = append(b.listener.FilterChains, chain("one", "tcp 192.168.0.1/24 :81"),
				chain("two", "tcp 192.168.0.2/24 :81"))
		}},
		{4, "two spellings of an address", finding.Reject, "", "/filterChains/4/filterChainMatch",
			"2001:db8::1/128", func(b *base) {
				two := chain("two", "tcp 2001:db8::1 :81")
				two.FilterChainMatch.PrefixRanges[0].AddressPrefix = "2001:db8:0:0::1"
				b.listener.FilterChains = append(b.listener.FilterChains, chain("one", "tcp 2001:db8::1 :81"), two)
			}},
		{4, "twice in one chain", finding.Reject, "", "/filterChains/1/filterChainMatch",
			"matches destination port 80", func(b *base) { b.match(1).ServerNames = []string{"a.com", "A.com"} }},
		{5, "a star inside", finding.Reject, "", "/filterChains/1/filterChainMatch/serverNames/0",
			"first label", func(b *base) { b.match(1).ServerNames = []string{"a.*.com"} }},
		{5, "a bare star", finding.Reject, "", "/filterChains/1/filterChainMatch/serverNames/0",
			"leave server_names out", func(b *base) { b.match(1).ServerNames = []string{"*"} }},
		{5, "two stars", finding.Warning, "", "/filterChains/1/filterChainMatch/serverNames/0",
			"second *", func(b *base) { b.match(1).ServerNames = []string{"*.*.com"} }},
		{6, "a suffix", finding.Reject, "", "/filterChains/0/filterChainMatch/addressSuffix",
			"prefix_ranges", func(b *base) { b.match(0).AddressSuffix = "10" }},
		{7, "not an address", finding.Reject, "", "/filterChains/0/filterChainMatch/prefixRanges/0",
			"not an IP address", func(b *base) {
				b.match(0).PrefixRanges = []*corev3.CidrRange{{AddressPrefix: "10.0.0"}}
			}},
		{7, "a zone", finding.Reject, "", "/filterChains/0/filterChainMatch/sourcePrefixRanges/0",
			"without a zone", func(b *base) {
				b.match(0).SourcePrefixRanges = []*corev3.CidrRange{{AddressPrefix: "fe80::1%eth0",
					PrefixLen: wrapperspb.UInt32(64)}}
			}},
		{7, "too long", finding.Warning, "", "/filterChains/0/filterChainMatch/directSourcePrefixRanges/0/prefixLen",
			"as 32, the whole", func(b *base) {
				b.match(0).DirectSourcePrefixRanges = []*corev3.CidrRange{{AddressPrefix: "10.0.0.1",
					PrefixLen: wrapperspb.UInt32(64)}}
			}},
		{7, "no length", finding.Warning, "", "/filterChains/0/filterChainMatch/prefixRanges/0/prefixLen",
			"all addresses", func(b *base) {
				b.match(0).PrefixRanges = []*corev3.CidrRange{{AddressPrefix: "10.0.0.1"}}
			}},
		{8, "no name", finding.Reject, "", "/filterChains/0/name", "needs a name", func(b *base) {
			b.listener.FilterChainMatcher = ports("80", "secure")
			b.listener.FilterChains[0].Name = ""
		}},
		{8, "a name twice", finding.Reject, "", "/filterChains/1/name", `"plain" is used twice`, func(b *base) {
			b.listener.FilterChainMatcher = ports("80", "plain")
			b.listener.FilterChains[1].Name = "plain"
		}},
		{9, "no such chain", finding.Unusable, "", "/filterChainMatcher", `"gone"`,
			func(b *base) { b.listener.FilterChainMatcher = ports("80", "gone") }},
		{10, "the same address", finding.Reject, "zz", "/address", `"in"`,
			func(b *base) { b.more = append(b.more, secondListener("zz", address("0.0.0.0", 10000))) }},
		{10, "an additional address", finding.Reject, "zz", "/additionalAddresses/0/address", `"in"`, func(b *base) {
			l := secondListener("zz", address("0.0.0.0", 10001))
			l.AdditionalAddresses = []*listenerv3.AdditionalAddress{{Address: address("0.0.0.0", 10000)}}
			b.more = append(b.more, l)
		}},
		{10, "not even bound", finding.Reject, "zz", "/address", "bound or not", func(b *base) {
			l := secondListener("zz", address("0.0.0.0", 10000))
			l.BindToPort = wrapperspb.Bool(false)
			b.listener.BindToPort = wrapperspb.Bool(false)
			b.more = append(b.more, l)
		}},
		{10, "the one that is there keeps it", finding.Reject, "aa", "/address", `"in"`, func(b *base) {
			b.more = append(b.more, secondListener("aa", address("0.0.0.0", 10000)))
			b.prev = func(*base) {}
		}},
		{10, "a pipe", finding.Reject, "zz", "/address", "unix:/run/x", func(b *base) {
			pipe := &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/x"}}}
			b.more = append(b.more, secondListener("yy", pipe), secondListener("zz", pipe))
		}},
		{11, "reuse_port goes off", finding.Reject, "", "/enableReusePort", "another name", func(b *base) {
			b.prev = func(*base) {}
			b.listener.EnableReusePort = wrapperspb.Bool(false)
		}},
		{12, "socket options change", finding.Reject, "", "/socketOptions", "reuse_port is off", func(b *base) {
			b.prev = func(p *base) { p.listener.EnableReusePort = wrapperspb.Bool(false) }
			b.listener.EnableReusePort = wrapperspb.Bool(false)
			b.listener.SocketOptions = []*corev3.SocketOption{{Level: 1, Name: 2,
				Value: &corev3.SocketOption_IntValue{IntValue: 1}, State: corev3.SocketOption_STATE_PREBIND}}
		}},
		{13, "TCP and UDP", finding.Reject, "", "/additionalAddresses/0/address", "one protocol", func(b *base) {
			b.listener.AdditionalAddresses = []*listenerv3.AdditionalAddress{{Address: udpAddress(53)}}
		}},
		{14, "IPv4", finding.Reject, "", "/address/socketAddress/ipv4Compat",
			"0.0.0.0", func(b *base) { b.listener.Address.GetSocketAddress().Ipv4Compat = true }},
		{16, "an address", finding.Reject, "", "/address", "has no network address", func(b *base) {
			b.listener.ListenerSpecifier = &listenerv3.Listener_InternalListener{
				InternalListener: &listenerv3.Listener_InternalListenerConfig{},
			}
		}},
		{16, "a socket option", finding.Reject, "", "/freebind", "no socket", func(b *base) {
			b.listener.ListenerSpecifier = &listenerv3.Listener_InternalListener{
				InternalListener: &listenerv3.Listener_InternalListenerConfig{},
			}
			b.listener.Address, b.listener.Freebind = nil, wrapperspb.Bool(true)
		}},
		{17, "without internal_listener", finding.Reject, "", "/address", "internal_listener", func(b *base) {
			b.listener.Address = &corev3.Address{
				Address: &corev3.Address_EnvoyInternalAddress{EnvoyInternalAddress: &corev3.EnvoyInternalAddress{
					AddressNameSpecifier: &corev3.EnvoyInternalAddress_ServerListenerName{ServerListenerName: "x"},
				}}}
		}},
		{18, "chains without QUIC", finding.Reject, "zz", chains, "no connections",
			func(b *base) { b.more = append(b.more, secondListener("zz", udpAddress(53))) }},
		{19, "no type", finding.Reject, "", "/connectionBalanceConfig", "exactBalance",
			func(b *base) { b.listener.ConnectionBalanceConfig = &listenerv3.Listener_ConnectionBalanceConfig{} }},
		{20, "RBAC alone", finding.Reject, "", "/filterChains/1/filters/0", "terminal", func(b *base) {
			b.filters = func([]*listenerv3.Filter) []*listenerv3.Filter {
				return []*listenerv3.Filter{networkRBAC(allowAll())}
			}
		}},
		{21, "a TCP proxy in front", finding.Reject, "", "/filterChains/1/filters/0", "move it to the end", func(b *base) {
			b.filters = func(f []*listenerv3.Filter) []*listenerv3.Filter { return append(f, tcpProxy("static")) }
		}},
		{22, "no filters", finding.Unusable, "", "/filterChains/1/filters", "closes its connections", func(b *base) {
			b.filters = func([]*listenerv3.Filter) []*listenerv3.Filter { return nil }
		}},
		{23, "a type nobody knows", finding.Reject, "", "/filterChains/1/filters/0/typedConfig",
			"example.Unknown", func(b *base) {
				b.filters = func(f []*listenerv3.Filter) []*listenerv3.Filter {
					unknown := &listenerv3.Filter{Name: "x", ConfigType: &listenerv3.Filter_TypedConfig{
						TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/example.Unknown"},
					}}
					return append([]*listenerv3.Filter{unknown}, f...)
				}
			}},
		{23, "options of a cluster among network filters", finding.Reject, "", "/filterChains/1/filters/0/typedConfig",
			"no network filter", func(b *base) {
				const url = "type.googleapis.com/envoy.extensions.upstreams.tcp.v3.TcpProtocolOptions"
				b.facts.Extensions = []string{url} // each Envoy lists it, for clusters
				b.filters = func(f []*listenerv3.Filter) []*listenerv3.Filter {
					options := &listenerv3.Filter{Name: "x", ConfigType: &listenerv3.Filter_TypedConfig{
						TypedConfig: &anypb.Any{TypeUrl: url},
					}}
					return append([]*listenerv3.Filter{options}, f...)
				}
			}},
		{23, "a listener filter among network filters", finding.Reject, "", "/filterChains/1/filters/0/typedConfig",
			"no network filter", func(b *base) {
				b.filters = func(f []*listenerv3.Filter) []*listenerv3.Filter {
					return append([]*listenerv3.Filter{filter("x", &tlsinspectorv3.TlsInspector{})}, f...)
				}
			}},
		{23, "no config", finding.Reject, "", "/filterChains/1/filters/0/typedConfig", "no typed_config", func(b *base) {
			b.filters = func(f []*listenerv3.Filter) []*listenerv3.Filter {
				return append([]*listenerv3.Filter{{Name: "x"}}, f...)
			}
		}},
		{23, "a listener filter without config", finding.Reject, "", "/listenerFilters/2/typedConfig",
			"no typed_config", func(b *base) {
				b.listener.ListenerFilters = append(b.listener.ListenerFilters, &listenerv3.ListenerFilter{Name: "x"})
			}},
		{23, "a transport socket without config", finding.Reject, "", "/filterChains/1/transportSocket/typedConfig",
			"no typed_config", func(b *base) {
				b.listener.FilterChains[1].TransportSocket = &corev3.TransportSocket{Name: "tls"}
			}},
		{24, "upstream TLS in a listener", finding.Reject, "", "/filterChains/1/transportSocket/typedConfig",
			"for clusters", func(b *base) {
				b.listener.FilterChains[1].TransportSocket = &corev3.TransportSocket{Name: "tls",
					ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&tlsv3.UpstreamTlsContext{})}}
			}},
		{25, "an unknown socket option", finding.Reject, "", "/socketOptions/0/name", "no socket option 9999",
			func(b *base) { b.listener.SocketOptions = []*corev3.SocketOption{{Level: 1, Name: 9999}} }},
		{25, "a port in use", finding.Reject, "", "/address", "by sshd",
			func(b *base) { b.facts.Taken = map[string]string{"0.0.0.0:10000": "by sshd"} }},
		{25, "a port that is too low", finding.Reject, "", "/address",
			"lowest", func(b *base) { b.facts.LowestPort = 20000 }},
		{25, "no IPv6", finding.Reject, "", "/address", "no IPv6", func(b *base) {
			b.facts.NoIPv6 = true
			b.listener.Address = address("::", 10000)
		}},
		{25, "transparent", finding.Reject, "", "/address", "CAP_NET_ADMIN", func(b *base) {
			b.facts.NoTransparent = true
			b.listener.Transparent = wrapperspb.Bool(true)
		}},
		{26, "one name twice", finding.Reject, "", "", "two resources",
			func(b *base) { b.more = append(b.more, secondListener("in", address("0.0.0.0", 1))) }},
		{27, "no inspectors at all", finding.Unusable, "", "/filterChains/0/filterChainMatch/applicationProtocols",
			"http_inspector", func(b *base) { b.listener.ListenerFilters = nil }},
		{27, "no TLS inspector", finding.Warning, "", "/filterChains/1/filterChainMatch/serverNames",
			"tls_inspector", func(b *base) {
				b.listener.ListenerFilters = b.listener.ListenerFilters[1:]
			}},
		{27, "off for the port", finding.Warning, "", "/filterChains/1/filterChainMatch/serverNames",
			"off for port 80", func(b *base) {
				b.listener.ListenerFilters[0] = listenerFilter("tls", &tlsinspectorv3.TlsInspector{}, 80)
			}},
		{29, "the port of the redirection", finding.Warning, "", "/listenerFilters/1/filterDisabled",
			"original_dst first", func(b *base) {
				b.listener.UseOriginalDst = wrapperspb.Bool(true)
				b.listener.ListenerFilters[1] = listenerFilter("http", &httpinspectorv3.HttpInspector{}, 3306)
			}},
		{32, "an input of requests", finding.Reject, "", "/filterChainMatcher", "not an input for connections",
			func(b *base) {
				b.listener.FilterChainMatcher = exact(wrapperspb.String("x"),
					map[string]*xdsmatcherv3.Matcher_OnMatch{"80": toChain("plain")})
			}},
		{33, "another action", finding.Reject, "", "/filterChainMatcher", "StringValue", func(b *base) {
			b.listener.FilterChainMatcher = exact(&networkv3.DestinationPortInput{}, map[string]*xdsmatcherv3.Matcher_OnMatch{
				"80": {OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{Action: typedExtension("x", wrapperspb.UInt32(1))}},
			})
		}},
		{35, "an empty list", finding.Reject, "", "/filterChainMatcher/matcherList/matchers", "at least 1", func(b *base) {
			b.listener.FilterChainMatcher = &xdsmatcherv3.Matcher{
				MatcherType: &xdsmatcherv3.Matcher_MatcherList_{MatcherList: &xdsmatcherv3.Matcher_MatcherList{}},
			}
		}},
		{36, "no address", finding.Reject, "",
			"/filterChainMatcher/matcherTree/customMatch/typedConfig/rangeMatchers/0/ranges/0", "not an IP", func(b *base) {
				b.listener.FilterChainMatcher = custom(&networkv3.DestinationIPInput{},
					&xdsmatcherv3.IPMatcher{RangeMatchers: []*xdsmatcherv3.IPMatcher_IPRangeMatcher{{
						Ranges: []*xdscorev3.CidrRange{xdsRange("x", 8)}, OnMatch: toChain("plain"),
					}}})
			}},
		{37, "a domain twice", finding.Reject, "",
			"/filterChainMatcher/matcherTree/customMatch/typedConfig/domainMatchers/0/domains/1",
			"is listed twice", func(b *base) {
				b.listener.FilterChainMatcher = custom(&networkv3.ServerNameInput{}, serverNames("a.com", "a.com"))
			}},
		{37, "a star inside", finding.Reject, "",
			"/filterChainMatcher/matcherTree/customMatch/typedConfig/domainMatchers/0/domains/0", "not a domain", func(b *base) {
				b.listener.FilterChainMatcher = custom(&networkv3.ServerNameInput{}, serverNames("a.*"))
			}},
		{38, "a zero in front", finding.Warning, "", "/filterChainMatcher", `"080"`,
			func(b *base) { b.listener.FilterChainMatcher = ports("080", "plain") }},
		{201, "a range of no bits", finding.Warning, "", "/filterChains/3/filterChainMatch/prefixRanges",
			"not defined", func(b *base) {
				b.listener.FilterChains = append(b.listener.FilterChains, chain("all", "tcp 0.0.0.0/0 :80"))
			}},
		{202, "an address hides a name", finding.Warning, "", "/filterChains/1/filterChainMatch",
			"10.0.0.1/32", func(b *base) {
				b.listener.FilterChains = append(b.listener.FilterChains, chain("ip", "tcp 10.0.0.1 :80"))
			}},
		{202, "a port hides any port", finding.Warning, "", "/filterChains/3/filterChainMatch", "port 80", func(b *base) {
			b.listener.FilterChains = append(b.listener.FilterChains, chain("any", "tcp 10.0.0.1"))
		}},
	}
}
