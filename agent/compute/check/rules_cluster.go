package check

//lint:file-ignore SA1019 fields that Envoy still reads are checked

import (
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

const nameHTTPOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// checkCluster checks one cluster.
func checkCluster(s *subject, m *clusterv3.Cluster) {
	s.transport = m.GetTransportSocket().GetTypedConfig().GetTypeUrl()
	checkDiscovery(s, m)
	checkBalancer(s, m)
	checkOutlier(s, m.GetOutlierDetection())
	checkClusterParts(s, m)
	checkHealthChecks(s, m)
	for _, key := range slices.Sorted(maps.Keys(m.GetTypedExtensionProtocolOptions())) {
		isOptions := m.GetTypedExtensionProtocolOptions()[key].GetTypeUrl() == envoy.TypePrefix+nameHTTPOptions
		at := "typedExtensionProtocolOptions/" + finding.PointerKey(key)
		switch {
		case protocolOptions[key] == "":
			s.report(88, finding.Reject, at, "Envoy has no protocol options %q: use %s", clip.Value(key), nameHTTPOptions)
		case protocolOptions[key] != nameHTTPOptions && len(m.GetTypedExtensionProtocolOptions()[key].GetValue()) > 0 &&
			m.GetTypedExtensionProtocolOptions()[key].GetTypeUrl() != envoy.TypePrefix+protocolOptions[key]:
			s.report(88, finding.Reject, at, "the options of %s are a %s", key, protocolOptions[key])
		case isOptions != (protocolOptions[key] == nameHTTPOptions):
			s.report(88, finding.Reject, at, "HttpProtocolOptions and the key %s go together", nameHTTPOptions)
		}
	}
}

// checkDiscovery checks how a cluster discovers its endpoints.
func checkDiscovery(s *subject, m *clusterv3.Cluster) {
	if m.GetClusterType() != nil {
		return
	}
	if m.GetType() != clusterv3.Cluster_EDS && m.GetEdsClusterConfig() != nil {
		s.report(81, finding.Reject,
			"edsClusterConfig", "eds_cluster_config is for EDS clusters, and this is a %s one: remove it", m.GetType())
	}
	switch m.GetType() {
	case clusterv3.Cluster_EDS:
		eds := m.GetEdsClusterConfig()
		if eds == nil {
			s.report(81, finding.Reject,
				"edsClusterConfig", "an EDS cluster needs eds_cluster_config with the source of its endpoints")
			return
		}
		if eds.GetEdsConfig().GetConfigSourceSpecifier() == nil {
			s.report(81, finding.Reject, "edsClusterConfig/edsConfig",
				"an EDS cluster needs the source of its endpoints: give ads with resource_api_version V3")
		}
		if eds.GetEdsConfig().GetAds() != nil || eds.GetEdsConfig().GetSelf() != nil {
			name := eds.GetServiceName()
			if name == "" {
				name = m.GetName()
			}
			s.refer(envoy.KindEndpoint, name, "edsClusterConfig", 113, finding.Unusable,
				"the cluster waits for it until initial_fetch_timeout, then has no endpoints")
		}
	case clusterv3.Cluster_ORIGINAL_DST:
		if m.GetLbPolicy() != clusterv3.Cluster_CLUSTER_PROVIDED {
			s.report(74, finding.Reject, "lbPolicy", "an ORIGINAL_DST cluster needs lb_policy CLUSTER_PROVIDED, but has %s",
				m.GetLbPolicy())
		}
		if m.GetLoadAssignment() != nil {
			s.report(76, finding.Reject,
				"loadAssignment", "an ORIGINAL_DST cluster has no endpoints: remove load_assignment")
		}
		if len(m.GetLbSubsetConfig().GetSubsetSelectors()) > 0 {
			s.report(76, finding.Reject, "lbSubsetConfig", "an ORIGINAL_DST cluster has no subsets: remove lb_subset_config")
		}
	default:
		checkEndpointAddresses(s, m)
	}
	s.out.resolves = resolves(m)
	if r := m.GetTypedDnsResolverConfig(); r != nil &&
		(m.GetType() == clusterv3.Cluster_STRICT_DNS || m.GetType() == clusterv3.Cluster_LOGICAL_DNS) {
		if name, ok := strings.CutPrefix(r.GetTypedConfig().GetTypeUrl(), envoy.TypePrefix); ok &&
			!slices.Contains(resolvers, name) {
			s.report(23, finding.Reject, "typedDnsResolverConfig/typedConfig", "%s is not a DNS resolver: use one of %s",
				match.ShortURL(r.GetTypedConfig().GetTypeUrl()), strings.Join(resolvers, ", "))
		}
	}
	if m.GetType() != clusterv3.Cluster_ORIGINAL_DST && m.GetLbPolicy() == clusterv3.Cluster_CLUSTER_PROVIDED &&
		m.GetLoadBalancingPolicy() == nil {
		s.report(75, finding.Reject,
			"lbPolicy", "CLUSTER_PROVIDED is for cluster types with a load balancer, and %s has none", m.GetType())
	}
	if m.GetType() == clusterv3.Cluster_LOGICAL_DNS {
		if l := m.GetLoadAssignment().GetEndpoints(); len(l) != 1 || len(l[0].GetLbEndpoints()) != 1 {
			s.report(80, finding.Reject, "loadAssignment", "a LOGICAL_DNS cluster has exactly one locality with one endpoint")
		}
	}
}

// resolves reports whether Envoy's default resolver, c-ares, resolves a host name of the cluster
// with the system's servers.
func resolves(m *clusterv3.Cluster) bool {
	if m.GetType() != clusterv3.Cluster_STRICT_DNS && m.GetType() != clusterv3.Cluster_LOGICAL_DNS ||
		m.GetTypedDnsResolverConfig() != nil || m.GetDnsResolutionConfig() != nil || len(m.GetDnsResolvers()) > 0 {
		return false
	}
	for _, l := range m.GetLoadAssignment().GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if sa := e.GetEndpoint().GetAddress().GetSocketAddress(); sa != nil && !isIP(sa) {
				return true
			}
		}
	}
	return false
}

// resolvers lists the types of DNS resolvers. Envoy looks up the resolver of a cluster only if the
// cluster uses it.
var resolvers = typeNames("envoy.network.dns_resolver")

// checkEndpointAddresses checks that the cluster's type accepts the addresses of its endpoints.
func checkEndpointAddresses(s *subject, m *clusterv3.Cluster) {
	dns := m.GetType() == clusterv3.Cluster_STRICT_DNS || m.GetType() == clusterv3.Cluster_LOGICAL_DNS
	for i, l := range m.GetLoadAssignment().GetEndpoints() {
		for j, e := range l.GetLbEndpoints() {
			at := finding.Item("loadAssignment/endpoints", i, "lbEndpoints", index(j), "endpoint/address")
			a := e.GetEndpoint().GetAddress()
			sa := a.GetSocketAddress()
			switch {
			case dns && sa.GetResolverName() != "":
				s.report(79, finding.Reject, at,
					"a %s cluster resolves host names with DNS: use a socket address without resolver_name", m.GetType())
			case a.GetAddress() == nil:
				s.report(78, finding.Reject, at, "the endpoint has no address")
			case !dns && sa != nil && hasPortName(sa):
				s.report(78, finding.Reject, at, "port %q is not a number: set port_value, or use STRICT_DNS",
					clip.Value(sa.GetNamedPort()))
			case sa.GetNetworkNamespaceFilepath() != "":
				s.report(78, finding.Reject, at, "endpoints have no network namespace: remove network_namespace_filepath")
			case !dns && sa != nil && !isIP(sa):
				s.report(78, finding.Reject, at, "%q is not an IP address: use STRICT_DNS for host names",
					clip.Value(sa.GetAddress()))
			}
		}
	}
}

func hasPortName(a *corev3.SocketAddress) bool {
	_, is := a.GetPortSpecifier().(*corev3.SocketAddress_NamedPort)
	return is
}

func isIP(a *corev3.SocketAddress) bool {
	_, err := netip.ParseAddr(a.GetAddress())
	return err == nil || a.GetResolverName() != ""
}

// checkBalancer checks the configs of load balancers.
func checkBalancer(s *subject, m *clusterv3.Cluster) {
	if r := m.GetRingHashLbConfig(); r != nil && m.GetLbPolicy() == clusterv3.Cluster_RING_HASH &&
		m.GetLoadBalancingPolicy() == nil {
		low, high := uint64(1024), uint64(8<<20)
		if v := r.GetMinimumRingSize(); v != nil {
			low = v.GetValue()
		}
		if v := r.GetMaximumRingSize(); v != nil {
			high = v.GetValue()
		}
		if low > high {
			s.report(86, finding.Reject, "ringHashLbConfig", "the minimum ring size %d is above the maximum %d", low, high)
		}
	}
	if v := m.GetMaglevLbConfig().GetTableSize(); v != nil && m.GetLbPolicy() == clusterv3.Cluster_MAGLEV &&
		m.GetLoadBalancingPolicy() == nil && !new(big.Int).SetUint64(v.GetValue()).ProbablyPrime(0) {
		s.report(86, finding.Reject, "maglevLbConfig/tableSize", "the table size %d is not a prime number", v.GetValue())
	}
}

func checkOutlier(s *subject, m *clusterv3.OutlierDetection) {
	if m.GetMaxEjectionTime() == nil {
		return
	}
	base := 30 * time.Second // Envoy's default
	if b := m.GetBaseEjectionTime(); b != nil {
		base = b.AsDuration()
	}
	if m.GetMaxEjectionTime().AsDuration() < base {
		s.report(85, finding.Reject, "outlierDetection/maxEjectionTime",
			"max_ejection_time %v is below base_ejection_time %v", m.GetMaxEjectionTime().AsDuration(), base)
	}
}

// checkHTTPOptions checks the HTTP options of a cluster.
func checkHTTPOptions(s *subject, m *httpv3.HttpProtocolOptions) {
	http3 := m.GetExplicitHttpConfig().GetHttp3ProtocolOptions() != nil
	if m.GetAutoConfig() == nil && !http3 {
		return
	}
	s.contextual++
	if http3 {
		if s.resource.Type == envoy.KindCluster.URL() && !strings.HasSuffix(s.transport, ".QuicUpstreamTransport") {
			s.report(87, finding.Reject, "explicitHttpConfig/http3ProtocolOptions",
				"HTTP/3 needs a QuicUpstreamTransport transport socket")
		}
		return
	}
	if s.resource.Type == envoy.KindCluster.URL() && (s.transport == "" || s.transport == match.RawBufferURL) {
		s.report(87, finding.Reject, "autoConfig",
			"auto_config chooses the protocol by ALPN, which needs a TLS transport socket: use explicit_http_config")
	}
}

// checkAssignment checks dropped requests and the sums of the endpoints' weights. Envoy rejects a
// sum only in clusters with a ring hash or Maglev, but endpoints do not name their cluster's kind.
func checkAssignment(s *subject, m *endpointv3.ClusterLoadAssignment) {
	checkDrops(s, m.GetPolicy().GetDropOverloads())
	if s.inside("envoy.config.cluster.v3.Cluster") {
		return // Envoy sums only the weights of EDS endpoints
	}
	for i, l := range m.GetEndpoints() {
		var endpoints uint64
		for j, e := range l.GetLbEndpoints() {
			if e.GetEndpoint() != nil && e.GetEndpoint().GetAddress().GetAddress() == nil {
				s.report(78, finding.Reject, finding.Item("endpoints", i, "lbEndpoints", index(j), "endpoint/address"),
					"the endpoint has no address")
			}
			endpoints += uint64(max(1, e.GetLoadBalancingWeight().GetValue()))
		}
		if endpoints > 1<<32-1 {
			s.report(83, finding.Reject, finding.Item("endpoints", i),
				"the weights of the endpoints of a locality sum up to more than %d", uint64(1<<32-1))
		}
	}
}
