package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// terminality specifies whether a filter ends its chain.
type terminality uint8

const (
	passes terminality = iota
	ends
	mayEnd // depends on its config or on unknown code
)

// networkTerminality returns the terminality of a network filter by its type URL.
func networkTerminality(url string) terminality {
	switch strings.TrimPrefix(url, match.NetworkFilters) {
	case "http_connection_manager.v3.HttpConnectionManager", "tcp_proxy.v3.TcpProxy", "echo.v3.Echo",
		"direct_response.v3.Config",
		"redis_proxy.v3.RedisProxy", "thrift_proxy.v3.ThriftProxy", "dubbo_proxy.v3.DubboProxy",
		"generic_proxy.v3.GenericProxy",
		"reverse_tunnel.v3.ReverseTunnel":
		return ends
	case "rbac.v3.RBAC", "connection_limit.v3.ConnectionLimit", "ext_authz.v3.ExtAuthz", "geoip.v3.Geoip",
		"local_ratelimit.v3.LocalRateLimit",
		"mongo_proxy.v3.MongoProxy", "ratelimit.v3.RateLimit", "set_filter_state.v3.Config", "sni_cluster.v3.SniCluster",
		"sni_dynamic_forward_proxy.v3.FilterConfig", "wasm.v3.Wasm", "zookeeper_proxy.v3.ZooKeeperProxy",
		"ext_proc.v3.NetworkExternalProcessor",
		"tcp_bandwidth_limit.v3.TcpBandwidthLimit":
		return passes
	}
	return mayEnd
}

// httpTerminality returns the terminality of an HTTP filter. Nearly all forward requests (measured
// with Envoy 1.36.2 and 1.40.0).
func httpTerminality(url string) terminality {
	switch strings.TrimPrefix(url, match.HttpFilters) {
	case "router.v3.Router", "mcp_router.v3.McpRouter":
		return ends
	case "dynamic_modules.v3.DynamicModuleFilter", "file_server.v3.FileServerConfig":
		return mayEnd
	}
	return passes
}

// checkFilterChain checks the network filters of a chain.
func checkFilterChain(s *subject, m *listenerv3.FilterChain) {
	filters := m.GetFilters()
	if len(filters) == 0 {
		if !s.inside("envoy.config.listener.v3.ApiListener") &&
			m.GetTransportSocket().GetName() != "envoy.transport_sockets.quic" {
			s.report(22, finding.Unusable,
				"filters", "a filter chain without filters closes its connections at once: add a terminal filter such as tcp_proxy")
		}
		return
	}
	checkFilters(s, filters, "filters", "network filter", match.NetworkFilters, "a terminal one such as tcp_proxy",
		21, 20, networkTerminality)
}

// filter is a network or HTTP filter.
type filter interface {
	GetName() string
	GetTypedConfig() *anypb.Any
	GetConfigDiscovery() *corev3.ExtensionConfigSource
}

// checkFilters checks that only the last filter of a list is terminal. It reports an earlier
// terminal filter under the rule early, and a last filter that is not terminal under the rule late.
func checkFilters[F filter](s *subject, filters []F, field, word, prefix, terminal string, early, late int,
	of func(url string) terminality) {
	moved := false // moving a terminal filter to the end is enough
	for i, f := range filters {
		at := finding.Item(field, i)
		http, _ := any(f).(*hcmv3.HttpFilter)
		if f.GetTypedConfig() == nil {
			if f.GetConfigDiscovery() == nil && !http.GetIsOptional() {
				s.report(23, finding.Reject, at+"/typedConfig", "%s %q has no typed_config, and Envoy needs its type",
					word, clip.Value(f.GetName()))
			}
			continue
		}
		kind := of(f.GetTypedConfig().GetTypeUrl())
		last := i == len(filters)-1
		switch {
		case !strings.HasPrefix(f.GetTypedConfig().GetTypeUrl(), prefix): // another rule reports the type
		case last && kind == passes && !moved:
			s.report(late, finding.Reject, at, "the last %s, %q, is not terminal: add %s after it",
				word, clip.Value(f.GetName()), terminal)
		case !last && kind == ends:
			moved = true
			s.report(early, finding.Reject, at, "%s %q is terminal, but other filters follow it: move it to the end",
				word, clip.Value(f.GetName()))
		case kind == ends && http.GetDisabled():
			s.report(late, finding.Reject, at+"/disabled", "a terminal filter cannot be disabled")
		}
	}
}

// checkTransportSocket checks the type of a transport socket and the side that it is for.
func checkTransportSocket(s *subject, m *corev3.TransportSocket) {
	url := m.GetTypedConfig().GetTypeUrl()
	if url == "" {
		s.report(23, finding.Reject, "typedConfig", "transport socket %q has no typed_config, and Envoy needs its type",
			clip.Value(m.GetName()))
		return
	}
	switch {
	case url == match.UpstreamTLSURL && s.inside("envoy.config.listener.v3.FilterChain"):
		s.report(24, finding.Reject,
			"typedConfig", "an UpstreamTlsContext is for clusters: use a DownstreamTlsContext in a filter chain")
	case url == match.DownstreamTLSURL && s.inside("envoy.config.cluster.v3.Cluster"):
		s.report(24, finding.Reject,
			"typedConfig", "a DownstreamTlsContext is for listeners: use an UpstreamTlsContext in a cluster")
	}
}

// checkTCPProxy checks a TCP proxy and records its clusters.
func checkTCPProxy(s *subject, m *tcpv3.TcpProxy) {
	const then = "connections are reset"
	if c := m.GetCluster(); c != "" {
		s.refer(envoy.KindCluster, c, "cluster", 31, finding.Unusable, then)
	}
	if b := m.GetBackoffOptions(); b.GetMaxInterval() != nil &&
		b.GetMaxInterval().AsDuration() < b.GetBaseInterval().AsDuration() {
		s.report(66, finding.Reject, "backoffOptions/maxInterval", "max_interval %v is below base_interval %v",
			b.GetMaxInterval().AsDuration(), b.GetBaseInterval().AsDuration())
	}
	if m.GetUpstreamConnectMode() != tcpv3.UpstreamConnectMode_IMMEDIATE && m.GetMaxEarlyDataBytes() == nil {
		s.reportNewer(206, finding.Reject, "maxEarlyDataBytes", "upstream_connect_mode %s requires it: set how many bytes "+
			"Envoy reads before it connects", m.GetUpstreamConnectMode())
	}
	for i, w := range m.GetWeightedClusters().GetClusters() {
		s.refer(envoy.KindCluster, w.GetName(), finding.Item("weightedClusters/clusters", i, "name"), 31,
			finding.Unusable, then)
	}
}

// checkTunneling checks the requests of a TCP proxy that tunnels.
func checkTunneling(s *subject, m *tcpv3.TcpProxy_TunnelingConfig) {
	checkFormatText(s, 68, m.GetHostname(), "hostname", m.GetFormatters()...)
	if m.GetPostPath() != "" && !m.GetUsePost() {
		s.report(206, finding.Reject, "postPath", "post_path requires use_post: remove it")
	}
}

// checkManager checks an HTTP connection manager.
func checkManager(s *subject, m *hcmv3.HttpConnectionManager) {
	filters := m.GetHttpFilters()
	if len(filters) == 0 {
		s.report(42, finding.Unusable,
			"httpFilters", "the list is empty, so no request is answered: add envoy.filters.http.router")
	}
	checkHTTPFilters(s, filters, "httpFilters", 40, 41)
	if m.GetRds() != nil {
		name := m.GetRds().GetRouteConfigName()
		then := "the listener waits for it until initial_fetch_timeout, then answers 404"
		if t := m.GetRds().GetConfigSource().GetInitialFetchTimeout(); t != nil && t.AsDuration() == 0 {
			then = "the listener would wait for it forever and accept no connections"
		}
		s.refer(envoy.KindRoute, name, "rds/routeConfigName", 113, finding.Unusable, then)
	}
	types := map[string]int{}
	for i, u := range m.GetUpgradeConfigs() {
		key := match.LowerASCII(u.GetUpgradeType())
		if first, twice := types[key]; twice {
			s.reportWith([]string{finding.Item("upgradeConfigs", first)}, 44, finding.Reject, finding.Item("upgradeConfigs", i),
				"the upgrade %q is configured twice", clip.Value(u.GetUpgradeType()))
		}
		types[key] = i
		if len(u.GetFilters()) > 0 {
			checkHTTPFilters(s, u.GetFilters(), finding.Item("upgradeConfigs", i, "filters"), 45, 45)
		}
	}
	if m.GetStripMatchingHostPort() && m.GetStripAnyHostPort() {
		s.report(47, finding.Reject,
			"stripMatchingHostPort", "strip_matching_host_port and strip_any_host_port cannot be combined: set one")
	}
	checkRanges(s, 49, m.GetInternalAddressConfig().GetCidrRanges(), "internalAddressConfig/cidrRanges")
	checkOverrideNames(s, m)
}

// udp reports whether the listener has a UDP address.
func (c *checked) udp() bool { return slices.ContainsFunc(c.binds, func(b bind) bool { return b.udp }) }

func checkHTTPFilters(s *subject, filters []*hcmv3.HttpFilter, field string, early, late int) {
	checkFilters(s, filters, field, "HTTP filter", match.HttpFilters, "envoy.filters.http.router", early, late,
		httpTerminality)
}

// checkOverrideNames compares the per-route configs of filters with the filters of the connection
// manager.
func checkOverrideNames(s *subject, m *hcmv3.HttpConnectionManager) {
	routes := m.GetRouteConfig()
	if routes == nil {
		return
	}
	types := make(map[string]string, len(m.GetHttpFilters()))
	for _, f := range m.GetHttpFilters() {
		types[f.GetName()] = f.GetTypedConfig().GetTypeUrl()
	}
	check := func(overrides anyMap, at string) {
		for _, name := range slices.Sorted(maps.Keys(overrides)) {
			url, exists := types[name]
			own := overrides[name].GetTypeUrl()
			at := at + "/typedPerFilterConfig/" + finding.PointerKey(name)
			switch {
			case !exists:
				s.report(52, finding.Lint, at, "there is no HTTP filter %q for this config", clip.Value(name))
			case own != match.FilterConfigURL && url != "" && packageOf(own) != packageOf(url) &&
				strings.HasPrefix(own, match.HttpFilters):
				s.report(52, finding.Warning, at, "%s is not a config for the filter %q, which is a %s and ignores it",
					match.ShortURL(own), clip.Value(name), match.ShortURL(url))
			}
		}
	}
	check(routes.GetTypedPerFilterConfig(), "routeConfig")
	for i, h := range routes.GetVirtualHosts() {
		check(h.GetTypedPerFilterConfig(), finding.Item("routeConfig/virtualHosts", i))
		for j, r := range h.GetRoutes() {
			check(r.GetTypedPerFilterConfig(), fmt.Sprintf("routeConfig/virtualHosts/%d/routes/%d", i, j))
			for k, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
				check(w.GetTypedPerFilterConfig(),
					fmt.Sprintf("routeConfig/virtualHosts/%d/routes/%d/route/weightedClusters/clusters/%d", i, j, k))
			}
		}
	}
}

// packageOf returns the package of a type URL.
func packageOf(url string) string {
	i := strings.LastIndexByte(url, '.')
	return url[:max(i, 0)]
}
