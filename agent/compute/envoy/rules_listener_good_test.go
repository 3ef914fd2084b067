package envoy_test

import (
	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func xdsRange(ip string, bits uint32) *xdscorev3.CidrRange {
	return &xdscorev3.CidrRange{AddressPrefix: ip, PrefixLen: wrapperspb.UInt32(bits)}
}

func serverNames(domains ...string) *xdsmatcherv3.ServerNameMatcher {
	return &xdsmatcherv3.ServerNameMatcher{
		DomainMatchers: []*xdsmatcherv3.ServerNameMatcher_DomainMatcher{{Domains: domains, OnMatch: toChain("plain")}},
	}
}

func allowAll() *rbacv3.RBAC {
	return &rbacv3.RBAC{Policies: map[string]*rbacv3.Policy{"p": {
		Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_Any{Any: true}}},
		Principals:  []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Any{Any: true}}},
	}}}
}

func listenerGoodCases() []goodCase {
	return []goodCase{
		{1, "a pipe", func(b *base) {
			b.more = append(b.more,
				secondListener("zz", &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/x"}}}))
		}},
		{2, "a default chain alone", func(b *base) {
			l := secondListener("zz", address("::1", 80))
			l.DefaultFilterChain, l.FilterChains = l.FilterChains[0], nil
			b.more = append(b.more, l)
		}},
		{4, "names of one wildcard", func(b *base) { b.match(1).ServerNames = []string{"*.a.com", "a.com", "x.a.com"} }},
		{8, "names for a matcher", func(b *base) { b.listener.FilterChainMatcher = ports("80", "plain", "443", "secure") }},
		{3, "a matcher in place of equal matches", func(b *base) {
			b.listener.FilterChainMatcher = ports("80", "plain", "443", "again", "1", "secure", "2", "other")
			b.listener.FilterChains = append(b.listener.FilterChains, chain("again", "http :80"))
		}},
		{10, "another protocol, another family, no port", func(b *base) {
			free := secondListener("zz", address("0.0.0.0", 0))
			b.more = append(b.more, secondListener("yy", address("::", 10000)), free,
				secondListener("xx", address("0.0.0.0", 0)))
		}},
		{11, "another name", func(b *base) {
			b.prev = func(p *base) { p.listener.Name = "before" }
			b.listener.EnableReusePort = wrapperspb.Bool(false)
		}},
		{14, "all of IPv6", func(b *base) {
			b.listener.Address = address("::", 10000)
			b.listener.Address.GetSocketAddress().Ipv4Compat = true
		}},
		{20, "RBAC in front", func(b *base) {
			b.filters = func(f []*listenerv3.Filter) []*listenerv3.Filter {
				return append([]*listenerv3.Filter{networkRBAC(allowAll())}, f...)
			}
		}},
		{23, "a type that this Envoy has", func(b *base) {
			b.facts.Extensions = []string{"type.googleapis.com/example.Unknown"}
			b.filters = func(f []*listenerv3.Filter) []*listenerv3.Filter {
				unknown := &listenerv3.Filter{Name: "x", ConfigType: &listenerv3.Filter_TypedConfig{
					TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/example.Unknown"},
				}}
				return append([]*listenerv3.Filter{unknown}, f...)
			}
		}},
		{25, "not bound", func(b *base) {
			b.listener.BindToPort = wrapperspb.Bool(false)
			b.facts.Taken, b.facts.LowestPort, b.facts.NoTransparent = map[string]string{"0.0.0.0:10000": "x"}, 20000, true
		}},
		{29, "original_dst first", func(b *base) {
			b.listener.UseOriginalDst = wrapperspb.Bool(true)
			b.listener.ListenerFilters = append(
				[]*listenerv3.ListenerFilter{listenerFilter("dst", &originaldstv3.OriginalDst{})}, b.listener.ListenerFilters...)
			b.listener.ListenerFilters[1] = listenerFilter("tls", &tlsinspectorv3.TlsInspector{}, 3306)
		}},
		{201, "no chain without a range", func(b *base) {
			b.listener.FilterChains[1] = chain("secure", "tls a.com 0.0.0.0/0 :80")
			b.listener.FilterChains[0] = chain("plain", "http 0.0.0.0/0 :80")
			b.listener.FilterChains[0].FilterChainMatch.PrefixRanges = append(
				b.listener.FilterChains[0].FilterChainMatch.PrefixRanges, cidr("::/0"))
		}},
		{202, "said again for the address", func(b *base) {
			b.listener.FilterChains = append(b.listener.FilterChains, chain("ip", "tcp 10.0.0.1 :80"),
				chain("ip2", "tls a.com 10.0.0.1 :80"), chain("ip3", "http 10.0.0.1 :80"))
			b.listener.FilterChains[3].FilterChainMatch.ApplicationProtocols = []string{"x"}
		}},
	}
}
