//lint:file-ignore SA1019 some rules check deprecated fields

package envoy_test

import (
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

func typed(t clusterv3.Cluster_DiscoveryType) *clusterv3.Cluster_Type {
	return &clusterv3.Cluster_Type{Type: t}
}

func uriNames() []*tlsv3.SubjectAltNameMatcher {
	return []*tlsv3.SubjectAltNameMatcher{{SanType: tlsv3.SubjectAltNameMatcher_URI,
		Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://"}}}}
}

func probe[T interface {
	*corev3.HealthCheck_GrpcHealthCheck_ | *corev3.HealthCheck_TcpHealthCheck_
}](how T) *corev3.HealthCheck {
	h := &corev3.HealthCheck{Timeout: durationpb.New(time.Second), Interval: durationpb.New(time.Second),
		UnhealthyThreshold: wrapperspb.UInt32(1), HealthyThreshold: wrapperspb.UInt32(1)}
	switch c := any(how).(type) {
	case *corev3.HealthCheck_GrpcHealthCheck_:
		h.HealthChecker = c
	case *corev3.HealthCheck_TcpHealthCheck_:
		h.HealthChecker = c
	}
	return h
}

func apiSource(cluster string) *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{grpcService(cluster)},
		}}}
}

func clusterCases() []ruleCase {
	return []ruleCase{
		{0, "garbage", finding.Reject, "static",
			"/loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address/socketAddress/address", "at least 1", func(b *base) {
				b.static.LoadAssignment = endpoints("static", "", 80)
			}},
		{72, "routes by another name", finding.Reject, "other", "", `named "rds"`,
			func(b *base) { b.edit = rename(envoy.KindRoute, "rds") }},
		{73, "one name twice", finding.Reject, "static", "", "two resources",
			func(b *base) { b.more = append(b.more, proto.Clone(b.static)) }},
		{74, "another balancer", finding.Reject, "dst", "/lbPolicy", "CLUSTER_PROVIDED", func(b *base) {
			c := originalDst("dst")
			c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
			b.more = append(b.more, c)
		}},
		{75, "for EDS", finding.Reject, "eds", "/lbPolicy", "EDS has none",
			func(b *base) { b.eds.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED }},
		{76, "endpoints", finding.Reject, "dst", "/loadAssignment", "remove load_assignment", func(b *base) {
			c := originalDst("dst")
			c.LoadAssignment = endpoints("dst", "10.0.0.1", 80)
			b.more = append(b.more, c)
		}},
		{76, "subsets", finding.Reject, "dst", "/lbSubsetConfig", "no subsets", func(b *base) {
			c := originalDst("dst")
			c.LbSubsetConfig = &clusterv3.Cluster_LbSubsetConfig{
				SubsetSelectors: []*clusterv3.Cluster_LbSubsetConfig_LbSubsetSelector{{Keys: []string{"a"}}},
			}
			b.more = append(b.more, c)
		}},
		{78, "a host name", finding.Reject, "static", "/loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address",
			"STRICT_DNS", func(b *base) {
				b.static.LoadAssignment = endpoints("static", "example.com", 80)
			}},
		{79, "a resolver", finding.Reject, "static", "/loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address",
			"host names", func(b *base) {
				b.static.ClusterDiscoveryType = typed(clusterv3.Cluster_STRICT_DNS)
				b.static.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetSocketAddress().ResolverName = "x"
			}},
		{80, "two endpoints", finding.Reject, "static", "/loadAssignment", "exactly one", func(b *base) {
			b.static.ClusterDiscoveryType = typed(clusterv3.Cluster_LOGICAL_DNS)
			l := b.static.LoadAssignment.Endpoints[0]
			l.LbEndpoints = append(l.LbEndpoints, endpoint("b.com", 80))
		}},
		{81, "from nowhere", finding.Reject, "eds", "/edsClusterConfig",
			"eds_cluster_config", func(b *base) { b.eds.EdsClusterConfig = nil }},
		{81, "from no source", finding.Reject, "eds", "/edsClusterConfig/edsConfig",
			"source", func(b *base) { b.eds.EdsClusterConfig.EdsConfig = nil }},
		{81, "from a cluster of CDS", finding.Reject,
			"eds", "/edsClusterConfig/edsConfig/apiConfigSource/grpcServices/0/envoyGrpc/clusterName",
			"of the bootstrap", func(b *base) {
				b.eds.EdsClusterConfig.EdsConfig = apiSource("static")
			}},
		{82, "endpoints by another name", finding.Reject, "other", "", `named "eds"`,
			func(b *base) { b.edit = rename(envoy.KindEndpoint, "eds") }},
		{83, "endpoints", finding.Reject, "eds", "/endpoints/0", "of a locality", func(b *base) {
			e := endpoint("10.0.0.2", 80)
			e.LoadBalancingWeight = wrapperspb.UInt32(1<<32 - 1)
			b.assigned.Endpoints[0].LbEndpoints = append(b.assigned.Endpoints[0].LbEndpoints, e)
		}},
		{84, "129", finding.Reject, "eds", "/endpoints/0/priority", "128",
			func(b *base) { b.assigned.Endpoints[0].Priority = 129 }},
		{85, "max below base", finding.Reject, "static", "/outlierDetection/maxEjectionTime", "below", func(b *base) {
			b.static.OutlierDetection = &clusterv3.OutlierDetection{MaxEjectionTime: durationpb.New(10 * time.Second)}
		}},
		{85, "101 percent", finding.Reject, "static", "/outlierDetection/maxEjectionPercent", "100", func(b *base) {
			b.static.OutlierDetection = &clusterv3.OutlierDetection{MaxEjectionPercent: wrapperspb.UInt32(101)}
		}},
		{85, "a field whose name Go writes in its own way",
			finding.Reject, "static", "/outlierDetection/enforcingConsecutive5xx", "100", func(b *base) {
				b.static.OutlierDetection = &clusterv3.OutlierDetection{EnforcingConsecutive_5Xx: wrapperspb.UInt32(101)}
			}},
		{86, "a ring", finding.Reject, "static", "/ringHashLbConfig", "above the maximum", func(b *base) {
			b.static.LbPolicy = clusterv3.Cluster_RING_HASH
			b.static.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{
				RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{MaximumRingSize: wrapperspb.UInt64(100)},
			}
		}},
		{86, "a table", finding.Reject, "static", "/maglevLbConfig/tableSize", "not a prime", func(b *base) {
			b.static.LbPolicy = clusterv3.Cluster_MAGLEV
			b.static.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{
				MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(100)},
			}
		}},
		{81, "EDS of a static cluster", finding.Reject, "static", "/edsClusterConfig", "STATIC one",
			func(b *base) { b.static.EdsClusterConfig = b.eds.EdsClusterConfig }},
		{87, "HTTP/3 over TCP", finding.Reject, "eds", "/typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3." +
			"HttpProtocolOptions/explicitHttpConfig/http3ProtocolOptions", "Quic", func(b *base) {
			b.options.GetExplicitHttpConfig().
				ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http3ProtocolOptions{
				Http3ProtocolOptions: &corev3.Http3ProtocolOptions{},
			}
		}},
		{203, "a further address beside none", finding.Reject, "static", "/upstreamBindConfig",
			"source_address", func(b *base) {
				b.static.UpstreamBindConfig = &corev3.BindConfig{
					AdditionalSourceAddresses: []*corev3.SocketAddress{address("10.0.0.1", 0).GetSocketAddress()},
				}
			}},
		{203, "two addresses of one version", finding.Reject, "static", "/upstreamBindConfig/sourceAddress",
			"another one", func(b *base) {
				b.static.UpstreamBindConfig = &corev3.BindConfig{SourceAddress: address("10.0.0.2", 0).GetSocketAddress(),
					AdditionalSourceAddresses: []*corev3.SocketAddress{address("10.0.0.1", 0).GetSocketAddress()}}
			}},
		{203, "more than all is dropped", finding.Reject, "eds", "/policy/dropOverloads/0/dropPercentage",
			"101 of 100", func(b *base) {
				b.assigned.Policy = &endpointv3.ClusterLoadAssignment_Policy{
					DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{Category: "a",
						DropPercentage: &typev3.FractionalPercent{Numerator: 101}}},
				}
			}},
		{203, "no balancer", finding.Reject, "static", "/loadBalancingPolicy", "none of the policies", func(b *base) {
			b.static.LoadBalancingPolicy = &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{
				{TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "x", TypedConfig: pack(b.options)}},
			}}
		}},
		{204, "gRPC over HTTP/1", finding.Reject, "eds", "/healthChecks/0/grpcHealthCheck", "HTTP/2", func(b *base) {
			b.eds.HealthChecks = []*corev3.HealthCheck{
				probe(&corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{}}),
			}
		}},
		{204, "two checks", finding.Reject, "static", "/healthChecks", "supports one health check", func(b *base) {
			tcp := probe(&corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}})
			b.static.HealthChecks = []*corev3.HealthCheck{tcp, tcp}
		}},
		{204, "half a byte", finding.Reject, "static", "/healthChecks/0/tcpHealthCheck/send/text",
			"two digits", func(b *base) {
				b.static.HealthChecks = []*corev3.HealthCheck{
					probe(&corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{
						Send: &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Text{Text: "0"}},
					}}),
				}
			}},
		{87, "no protocol", finding.Reject, "eds",
			"/typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/upstreamProtocolOptions",
			"required", func(b *base) {
				b.options.UpstreamProtocolOptions = nil
			}},
		{87, "auto without TLS", finding.Reject,
			"eds", "/typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/autoConfig",
			"ALPN", func(b *base) {
				b.upstream = nil
				b.options.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_AutoConfig{
					AutoConfig: &httpv3.HttpProtocolOptions_AutoHttpConfig{},
				}
			}},
		{88, "another key", finding.Reject, "static", "/typedExtensionProtocolOptions/x",
			"no protocol options", func(b *base) {
				b.static.TypedExtensionProtocolOptions = map[string]*anypb.Any{"x": pack(b.options)}
			}},
		{89, "zero", finding.Reject, "static", "/connectTimeout", "greater than 0s",
			func(b *base) { b.static.ConnectTimeout = durationpb.New(0) }},
		{90, "still in use", finding.Unusable, "static", "", "removed while it is in use", func(b *base) {
			b.prev = func(*base) {}
			b.without = []proto.Message{b.static}
		}},
		{91, "of the bootstrap", finding.Unusable, "static", "", "the bootstrap defines",
			func(b *base) { b.facts.StaticClusters = []string{"static"} }},
		{92, "no PEM", finding.Reject, "ca", "/validationContext/trustedCa", "no certificate in PEM",
			func(b *base) { b.ca.GetValidationContext().TrustedCa = inlineText("x") }},
		{92, "another key", finding.Reject, "cert", "/tlsCertificate", "cannot be used",
			func(b *base) { b.cert.GetTlsCertificate().PrivateKey = b.cert.GetTlsCertificate().CertificateChain }},
		{92, "a server without a certificate", finding.Reject,
			"in", "/filterChains/1/transportSocket/typedConfig/commonTlsContext", "needs a certificate", func(b *base) {
				b.tls.CommonTlsContext.TlsCertificateSdsSecretConfigs = nil
			}},
		{92, "no staple", finding.Reject, "in",
			"/filterChains/1/transportSocket/typedConfig/commonTlsContext/tlsCertificateSdsSecretConfigs/0", "ocsp_staple",
			func(b *base) { b.tls.OcspStaplePolicy = tlsv3.DownstreamTlsContext_MUST_STAPLE }},
		{93, "two", finding.Reject, "eds", "/transportSocket/typedConfig/commonTlsContext", "one certificate", func(b *base) {
			c := b.upstream.CommonTlsContext
			c.TlsCertificateSdsSecretConfigs = append(c.TlsCertificateSdsSecretConfigs, sds("cert"))
		}},
		{94, "here and by SDS", finding.Reject,
			"in", "/filterChains/1/transportSocket/typedConfig/commonTlsContext/tlsCertificates", "not both", func(b *base) {
				b.tls.CommonTlsContext.TlsCertificates = []*tlsv3.TlsCertificate{b.cert.GetTlsCertificate()}
			}},
		{95, "names without authorities", finding.Reject,
			"eds", "/transportSocket/typedConfig/commonTlsContext/validationContext", "trusted_ca", func(b *base) {
				b.upstream.CommonTlsContext.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{
					ValidationContext: &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: uriNames()},
				}
			}},
		{96, "versions", finding.Unusable,
			"eds", "/transportSocket/typedConfig/commonTlsContext/tlsParams/tlsMinimumProtocolVersion",
			"above the highest", func(b *base) {
				b.upstream.CommonTlsContext.TlsParams = &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
					TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_2}
			}},
		{96, "an empty protocol", finding.Reject, "eds", "/transportSocket/typedConfig/commonTlsContext/alpnProtocols",
			"a protocol of 0 bytes", func(b *base) { b.upstream.CommonTlsContext.AlpnProtocols = []string{"h2", ""} }},
		{96, "a cipher", finding.Reject, "eds", "/transportSocket/typedConfig/commonTlsContext/tlsParams/cipherSuites/1",
			`"ROT13"`, func(b *base) {
				b.upstream.CommonTlsContext.TlsParams = &tlsv3.TlsParameters{
					CipherSuites: []string{"[ECDHE-ECDSA-AES128-GCM-SHA256|ECDHE-RSA-AES128-GCM-SHA256]", "ROT13"},
				}
			}},
		{96, "a group", finding.Reject, "eds", "/transportSocket/typedConfig/commonTlsContext/tlsParams/ecdhCurves/0",
			`"P-1"`, func(b *base) {
				b.upstream.CommonTlsContext.TlsParams = &tlsv3.TlsParameters{EcdhCurves: []string{"P-1"}}
			}},
		{97, "of another kind", finding.Reject,
			"in", "/filterChains/1/transportSocket/typedConfig/commonTlsContext/tlsCertificateSdsSecretConfigs/0",
			"a validation context", func(b *base) {
				b.tls.CommonTlsContext.TlsCertificateSdsSecretConfigs[0].Name = "ca"
			}},
		{97, "empty", finding.Reject, "cert", "", "is empty", func(b *base) { b.cert.Type = nil }},
		{98, "no secret", finding.Unusable,
			"eds", "/transportSocket/typedConfig/commonTlsContext/tlsCertificateSdsSecretConfigs/0", `"gone"`, func(b *base) {
				b.upstream.CommonTlsContext.TlsCertificateSdsSecretConfigs[0].Name = "gone"
			}},
		{98, "no secret, though they are made later", finding.Unusable,
			"eds", "/transportSocket/typedConfig/commonTlsContext/tlsCertificateSdsSecretConfigs/0", `"gone"`, func(b *base) {
				b.facts.SecretsLater = true
				b.upstream.CommonTlsContext.TlsCertificateSdsSecretConfigs[0].Name = "gone"
			}},
		{111, "a secret twice", finding.Reject, "ca", "", "two resources",
			func(b *base) { b.more = append(b.more, proto.Clone(b.ca)) }},
		{111, "a cluster by another name", finding.Reject, "other", "", `named "static"`,
			func(b *base) { b.edit = rename(envoy.KindCluster, "static") }},
		{112, "no URL", finding.Reject, "xdstp://x", "/name", "xdstp://authority", func(b *base) {
			c := proto.Clone(b.static).(*clusterv3.Cluster)
			c.Name = "xdstp://x"
			b.more = append(b.more, c)
		}},
		{113, "no endpoints", finding.Unusable, "eds", "/edsClusterConfig", "does not exist",
			func(b *base) { b.without = []proto.Message{b.assigned} }},
		{113, "no routes", finding.Unusable, "in", "/filterChains/2/filters/0/typedConfig/rds/routeConfigName",
			`"rds"`, func(b *base) { b.without = []proto.Message{b.routes} }},
		{113, "endpoints that are held back", finding.Unusable, "eds", "/edsClusterConfig", "is withheld",
			func(b *base) { b.assigned.Endpoints[0].Priority = 200 }},
	}
}

func clusterGoodCases() []goodCase {
	return []goodCase{
		{79, "host names", func(b *base) {
			b.static.ClusterDiscoveryType = typed(clusterv3.Cluster_STRICT_DNS)
			b.static.LoadAssignment = endpoints("static", "example.com", 80)
		}},
		{75, "a policy of an extension", func(b *base) {
			b.static.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
			b.static.LoadBalancingPolicy = &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
				TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "x", TypedConfig: pack(&roundrobinv3.RoundRobin{})},
			}}}
		}},
		{81, "from the bootstrap", func(b *base) { b.eds.EdsClusterConfig.EdsConfig = apiSource("xds") }},
		{82, "by the name of the service", func(b *base) {
			b.eds.EdsClusterConfig.ServiceName = "service"
			b.assigned.ClusterName = "service"
		}},
		{83, "weights of localities, which Envoy adds", func(b *base) {
			b.assigned.Endpoints[0].LoadBalancingWeight = wrapperspb.UInt32(1<<32 - 1)
			b.assigned.Endpoints = append(b.assigned.Endpoints,
				&endpointv3.LocalityLbEndpoints{LoadBalancingWeight: wrapperspb.UInt32(1<<32 - 1)})
		}},
		{85, "equal times", func(b *base) {
			b.static.OutlierDetection = &clusterv3.OutlierDetection{BaseEjectionTime: durationpb.New(10 * time.Second),
				MaxEjectionTime: durationpb.New(10 * time.Second)}
		}},
		{86, "a prime", func(b *base) {
			b.static.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{
				MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(65537)},
			}
		}},
		{87, "auto with TLS", func(b *base) {
			b.options.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_AutoConfig{
				AutoConfig: &httpv3.HttpProtocolOptions_AutoHttpConfig{},
			}
		}},
		{90, "removed with what used it", func(b *base) {
			b.prev = func(p *base) {
				c := proto.Clone(p.static).(*clusterv3.Cluster)
				c.Name = "gone"
				p.more = append(p.more, c)
			}
		}},
		{92, "a chain and its key apart", func(b *base) {
			b.cert.GetTlsCertificate().PrivateKey = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "/key"}}
		}},
		{98, "secrets that are made later", func(b *base) {
			b.facts.SecretsLater = true
			b.cert.GetTlsCertificate().PrivateKey = inlineText("later")
			b.ca.GetValidationContext().TrustedCa = inlineText("later")
		}},
		{95, "authorities by SDS", func(b *base) {
			b.upstream.CommonTlsContext.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
				CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
					DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: uriNames()},
					ValidationContextSdsSecretConfig: sds("ca"),
				}}
		}},
		{113, "held back, but there before", func(b *base) {
			b.prev = func(*base) {}
			b.assigned.Endpoints[0].Priority = 128
		}},
	}
}

func ruleCases() []ruleCase {
	var out []ruleCase
	for _, list := range [][]ruleCase{listenerCases(), httpCases(), clusterCases(), partCases()} {
		out = append(out, list...)
	}
	return out
}

func goodCases() []goodCase {
	return slices.Concat(listenerGoodCases(), httpGoodCases(), clusterGoodCases(), partGoodCases())
}

// rename returns an edit that changes the name of a resource but not the name in its body.
func rename(k envoy.Kind, name string) func(*envoy.Snapshot) {
	return func(s *envoy.Snapshot) {
		for i, r := range s[k] {
			if r.Name == name {
				other := *r
				other.Name = "other"
				s[k][i] = &other
			}
		}
	}
}
