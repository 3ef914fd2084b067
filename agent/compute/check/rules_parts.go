package check

//lint:file-ignore SA1019 fields that Envoy still reads are checked

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// checkClusterParts checks combinations of cluster fields (measured with Envoy 1.36.2 and 1.40.0).
func checkClusterParts(s *subject, m *clusterv3.Cluster) {
	if b := m.GetUpstreamBindConfig(); b.GetSourceAddress() == nil && len(b.GetExtraSourceAddresses())+
		len(b.GetAdditionalSourceAddresses()) > 0 {
		s.report(203, finding.Reject,
			"upstreamBindConfig", "additional source addresses need a first one: set source_address")
	}
	for i, a := range m.GetDnsResolvers() {
		if sa := a.GetSocketAddress(); sa != nil && !isIP(sa) &&
			(m.GetType() == clusterv3.Cluster_STRICT_DNS || m.GetType() == clusterv3.Cluster_LOGICAL_DNS) {
			s.report(203, finding.Reject, finding.Item("dnsResolvers", i, "socketAddress/address"), "%q is not an IP address",
				clip.Value(sa.GetAddress()))
		}
	}
	if r := m.GetDnsFailureRefreshRate(); r.GetMaxInterval() != nil &&
		r.GetMaxInterval().AsDuration() < r.GetBaseInterval().AsDuration() {
		s.report(203, finding.Reject, "dnsFailureRefreshRate/maxInterval", "max_interval %v is below base_interval %v",
			r.GetMaxInterval().AsDuration(), r.GetBaseInterval().AsDuration())
	}
	for i, t := range m.GetCircuitBreakers().GetPerHostThresholds() {
		if t.GetMaxPendingRequests() != nil || t.GetMaxRequests() != nil || t.GetMaxRetries() != nil ||
			t.GetMaxConnectionPools() != nil || t.GetRetryBudget() != nil || t.GetTrackRemaining() {
			s.report(203, finding.Reject, finding.Item("circuitBreakers/perHostThresholds", i),
				"a per-host threshold supports only max_connections: remove the other fields")
		}
	}
	for i, sel := range m.GetLbSubsetConfig().GetSubsetSelectors() {
		at := finding.Item("lbSubsetConfig/subsetSelectors", i, "fallbackKeysSubset")
		keys, fallback := sel.GetKeys(), sel.GetFallbackKeysSubset()
		outside := func(k string) bool { return !slices.Contains(keys, k) }
		switch {
		case sel.GetFallbackPolicy() != clusterv3.Cluster_LbSubsetConfig_LbSubsetSelector_KEYS_SUBSET:
			if len(fallback) > 0 {
				s.report(203, finding.Reject, at, "fallback_keys_subset is for the fallback policy KEYS_SUBSET")
			}
		case len(fallback) == 0 || slices.ContainsFunc(fallback, outside) || len(fallback) >= len(keys):
			s.report(203, finding.Reject, at,
				"fallback_keys_subset must have some, but not all, of the keys of the selector")
		}
	}
	if m.GetLbPolicy() == clusterv3.Cluster_LOAD_BALANCING_POLICY_CONFIG && m.GetLoadBalancingPolicy() == nil {
		s.report(203, finding.Reject,
			"loadBalancingPolicy", "lb_policy is LOAD_BALANCING_POLICY_CONFIG: set load_balancing_policy")
	}
	if p := m.GetLoadBalancingPolicy(); p != nil {
		known := func(p *clusterv3.LoadBalancingPolicy_Policy) bool {
			name := strings.TrimPrefix(p.GetTypedExtensionConfig().GetTypedConfig().GetTypeUrl(), envoy.TypePrefix)
			_, ok := balancers[protoreflect.FullName(name)]
			return ok || !isKnownType(protoreflect.FullName(name)) && name != "" && !strings.HasPrefix(name, "envoy.") &&
				!strings.HasPrefix(name, "google.")
		}
		if !slices.ContainsFunc(p.GetPolicies(), known) {
			s.report(203, finding.Reject, "loadBalancingPolicy",
				"Envoy knows none of the policies: use a type in envoy.extensions.load_balancing_policies.*")
		}
	}
}

// balancers lists the types of load balancing policies. Envoy uses the first one that it knows.
var balancers = types([]string{"envoy.load_balancing_policies"})

// checkBindConfig checks source addresses of upstream connections.
func checkBindConfig(s *subject, m *corev3.BindConfig) {
	check := func(a *corev3.SocketAddress, at string) {
		if a != nil && a.GetResolverName() == "" {
			if _, err := netip.ParseAddr(a.GetAddress()); err != nil {
				s.report(203, finding.Reject, at, "%q is not an IP address", clip.Value(a.GetAddress()))
			}
		}
	}
	check(m.GetSourceAddress(), "sourceAddress/address")
	further := make([]*corev3.SocketAddress, 0, 2)
	for _, a := range m.GetExtraSourceAddresses() {
		further = append(further, a.GetAddress())
	}
	further = append(further, m.GetAdditionalSourceAddresses()...)
	first, firstErr := netip.ParseAddr(m.GetSourceAddress().GetAddress())
	for _, a := range further {
		if b, err := netip.ParseAddr(a.GetAddress()); err == nil && firstErr == nil &&
			(b.Is4() == first.Is4() || len(further) > 1) {
			s.report(203, finding.Reject,
				"sourceAddress", "only one source address of each IP version is allowed, and %s is another one", b)
			break
		}
	}
	for i, a := range m.GetExtraSourceAddresses() {
		check(a.GetAddress(), finding.Item("extraSourceAddresses", i, "address/address"))
	}
	for i, a := range m.GetAdditionalSourceAddresses() {
		check(a, finding.Item("additionalSourceAddresses", i, "address"))
	}
}

// checkEndpoint checks one endpoint.
func checkEndpoint(s *subject, m *endpointv3.Endpoint) {
	if a := m.GetHealthCheckConfig().GetAddress().GetSocketAddress(); a != nil && !isIP(a) {
		s.report(204, finding.Reject, "healthCheckConfig/address", "%q is not an IP address", clip.Value(a.GetAddress()))
	}
	a := m.GetAddress().GetSocketAddress()
	if a == nil {
		return
	}
	if a.GetNetworkNamespaceFilepath() != "" {
		s.report(78, finding.Reject, "address/socketAddress/networkNamespaceFilepath",
			"endpoints have no network namespace: remove it")
	}
	if _, named := a.GetPortSpecifier().(*corev3.SocketAddress_NamedPort); named &&
		s.resource.Type == envoy.KindEndpoint.URL() {
		s.report(78, finding.Reject, "address/socketAddress/namedPort", "port %q is not a number: set port_value",
			clip.Value(a.GetNamedPort()))
	}
}

// protocolOptions maps the keys of typed_extension_protocol_options that Envoy knows, besides HTTP,
// to their types.
var protocolOptions = map[string]string{
	"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": nameHTTPOptions,
	"envoy.upstreams.http.http_protocol_options":             nameHTTPOptions,
	"envoy.extensions.upstreams.tcp.v3.TcpProtocolOptions":   "envoy.extensions.upstreams.tcp.v3.TcpProtocolOptions",
	"envoy.upstreams.tcp.tcp_protocol_options":               "envoy.extensions.upstreams.tcp.v3.TcpProtocolOptions",
	"envoy.filters.network.redis_proxy": "envoy.extensions.filters.network.redis_proxy.v3." +
		"RedisProtocolOptions",
	"envoy.redis_proxy": "envoy.extensions.filters.network.redis_proxy.v3." +
		"RedisProtocolOptions",
	"envoy.filters.network.thrift_proxy": "envoy.extensions.filters.network.thrift_proxy.v3." +
		"ThriftProtocolOptions",
}

// checkDrops checks the percentages of dropped requests.
func checkDrops(s *subject, drops []*endpointv3.ClusterLoadAssignment_Policy_DropOverload) {
	if len(drops) > 1 {
		s.report(203, finding.Reject, "policy/dropOverloads",
			"there are %d categories of requests to drop, but Envoy accepts only one", len(drops))
		return
	}
	for i, d := range drops {
		if p := d.GetDropPercentage(); uint64(p.GetNumerator()) > match.Denominator(p.GetDenominator()) {
			s.report(203, finding.Reject, finding.Item("policy/dropOverloads", i, "dropPercentage"),
				"%d of %d is more than all requests", p.GetNumerator(), match.Denominator(p.GetDenominator()))
		}
	}
}

// checkSocketAddress checks the resolver of an address.
func checkSocketAddress(s *subject, m *corev3.SocketAddress) {
	if r := m.GetResolverName(); r != "" && r != "envoy.ip" && !strings.HasPrefix(r, "envoy.resolvers.") {
		s.report(1, finding.Reject, "resolverName", "there is no address resolver %q: remove resolver_name", clip.Value(r))
	}
}

// checkPipe checks a unix socket.
func checkPipe(s *subject, m *corev3.Pipe) {
	const most = 107 // bytes of a path in sockaddr_un
	abstract := strings.HasPrefix(m.GetPath(), "@")
	switch {
	case len(m.GetPath()) > most:
		s.report(1, finding.Reject, "path", "the path has %d bytes, but an address holds at most %d", len(m.GetPath()), most)
	case abstract && m.GetMode() != 0:
		s.report(1, finding.Reject, "mode", "an abstract socket has no mode: remove it")
	}
}

// checkSocketOption checks an option of a socket.
func checkSocketOption(s *subject, m *corev3.SocketOption) {
	const generic, most = 1, 255 // SOL_SOCKET of Linux, which has fewer than 100 options
	if m.GetLevel() == generic && m.GetName() > most {
		s.report(25, finding.Reject, "name", "the host has no socket option %d, so Envoy cannot set it: use one of socket(7)",
			m.GetName())
	}
}

// checkHealthChecks checks the health checks of a cluster.
func checkHealthChecks(s *subject, m *clusterv3.Cluster) {
	if n := len(m.GetHealthChecks()); n > 1 {
		s.report(204, finding.Reject, "healthChecks", "Envoy supports one health check, but %d are given", n)
	}
	for i, h := range m.GetHealthChecks() {
		at := finding.Item("healthChecks", i)
		if h.GetGrpcHealthCheck() != nil && !speaksHTTP2(m) {
			s.report(204, finding.Reject, at+"/grpcHealthCheck",
				"gRPC health checks use HTTP/2, but the cluster does not: set http2_protocol_options")
		}
		if p := h.GetTcpHealthCheck(); p != nil {
			checkHex(s, p.GetSend(), at+"/tcpHealthCheck/send")
			for j, r := range p.GetReceive() {
				checkHex(s, r, finding.Item(at+"/tcpHealthCheck/receive", j))
			}
		}
		for j, r := range h.GetHttpHealthCheck().GetExpectedStatuses() {
			if r.GetStart() < 100 || r.GetEnd() > 600 || r.GetStart() >= r.GetEnd() {
				s.report(204, finding.Reject, finding.Item(at+"/httpHealthCheck/expectedStatuses", j),
					"[%d, %d) is not a range of statuses: use a range within [100, 600)", r.GetStart(), r.GetEnd())
			}
		}
		for j, r := range h.GetHttpHealthCheck().GetRetriableStatuses() {
			if r.GetStart() < 100 || r.GetEnd() > 600 || r.GetStart() >= r.GetEnd() {
				s.report(204, finding.Reject, finding.Item(at+"/httpHealthCheck/retriableStatuses", j),
					"[%d, %d) is not a range of statuses: use a range within [100, 600)", r.GetStart(), r.GetEnd())
			}
		}
	}
}

// checkHex checks the hexadecimal payloads of a TCP health check.
func checkHex(s *subject, p *corev3.HealthCheck_Payload, at string) {
	if text := p.GetText(); text != "" {
		if _, err := hex.DecodeString(text); err != nil {
			s.report(204, finding.Reject, at+"/text", "%q is not hexadecimal text with two digits per byte",
				clip.Value(text))
		}
	}
}

// speaksHTTP2 reports whether a cluster may use HTTP/2.
func speaksHTTP2(m *clusterv3.Cluster) bool {
	options := m.GetTypedExtensionProtocolOptions()[nameHTTPOptions]
	if options == nil {
		return m.GetHttp2ProtocolOptions() != nil
	}
	var o httpv3.HttpProtocolOptions
	if err := decoding().Unmarshal(options.GetValue(), &o); err != nil {
		return true // another rule reports it
	}
	explicit := o.GetExplicitHttpConfig()
	return explicit == nil && (o.GetAutoConfig() != nil ||
		o.GetUseDownstreamProtocolConfig().GetHttp2ProtocolOptions() != nil) || explicit.GetHttp2ProtocolOptions() != nil
}
