package envoy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// base is a config without findings whose messages a test case can break. messages packs the
// filters and options.
type base struct {
	listener *listenerv3.Listener
	hcm      *hcmv3.HttpConnectionManager // of chain 0
	file     *filelogv3.FileAccessLog     // of hcm
	tls      *tlsv3.DownstreamTlsContext  // of chain 1
	tcp      *tcpv3.TcpProxy              // of chain 1
	static   *clusterv3.Cluster
	eds      *clusterv3.Cluster
	options  *httpv3.HttpProtocolOptions // of eds
	upstream *tlsv3.UpstreamTlsContext   // of eds
	assigned *endpointv3.ClusterLoadAssignment
	routes   *routev3.RouteConfiguration
	cert, ca *tlsv3.Secret
	more     []proto.Message                                 // additional resources
	without  []proto.Message                                 // resources to omit
	filters  func([]*listenerv3.Filter) []*listenerv3.Filter // edits the filters of chain 1 after packing
	edit     func(*envoy.Snapshot)                           // edits the sealed resources
	facts    *finding.Facts
	prev     func(*base) // edits another base into the accepted config; nil if nothing was accepted
}

var ads = &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}

func sds(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: ads}
}

func newBase(certificate, key []byte) *base {
	bytes := func(b []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
	}
	b := &base{facts: &finding.Facts{StaticClusters: []string{"xds", "again", "all", "any", "ip", "ip2", "ip3",
		"one", "two"}}}
	b.file = &filelogv3.FileAccessLog{Path: "/var/log/a.log",
		AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_TextFormatSource{
				TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "%DURATION%\n"}},
			},
		}}}
	b.hcm = manager(host("web", "static", "web.com"), host("rest", "eds", "*"))
	b.hcm.AccessLog = []*accesslogv3.AccessLog{{Name: "file"}}
	b.tls = &tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{sds("cert")},
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{
			ValidationContextSdsSecretConfig: sds("ca"),
		},
	}}
	b.tcp = &tcpv3.TcpProxy{StatPrefix: "t", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "static"}}
	rds := manager()
	rds.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "rds", ConfigSource: ads}}
	b.listener = &listenerv3.Listener{
		Name: "in", Address: address("0.0.0.0", 10000),
		ListenerFilters: []*listenerv3.ListenerFilter{
			listenerFilter("tls", &tlsinspectorv3.TlsInspector{}), listenerFilter("http", &httpinspectorv3.HttpInspector{}),
		},
		FilterChains: []*listenerv3.FilterChain{
			chain("plain", "http :80"), chain("secure", "tls a.com :80"), chain("other", "http :8080"),
		},
	}
	b.listener.FilterChains[2].Filters = []*listenerv3.Filter{filter("hcm", rds)}
	b.static = &clusterv3.Cluster{Name: "static", ConnectTimeout: durationpb.New(time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment:       endpoints("static", "127.0.0.1", 9000)}
	b.eds = &clusterv3.Cluster{Name: "eds", ConnectTimeout: durationpb.New(time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads}}
	b.options = &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
			},
		}}}
	b.upstream = &tlsv3.UpstreamTlsContext{Sni: "eds",
		CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{sds("cert")}}}
	b.assigned = endpoints("eds", "10.0.0.1", 80)
	b.routes = &routev3.RouteConfiguration{Name: "rds", VirtualHosts: []*routev3.VirtualHost{host("all", "eds", "*")}}
	b.cert = &tlsv3.Secret{Name: "cert", Type: &tlsv3.Secret_TlsCertificate{
		TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: bytes(certificate), PrivateKey: bytes(key)},
	}}
	b.ca = &tlsv3.Secret{Name: "ca", Type: &tlsv3.Secret_ValidationContext{
		ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: bytes(certificate)},
	}}
	return b
}

func endpoints(name, ip string, port uint32) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{endpoint(ip, port)}}}}
}

func endpoint(ip string, port uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{Address: address(ip, port)},
	}}
}

// inline returns the virtual hosts of chain 0.
func (b *base) inline() *routev3.RouteConfiguration { return b.hcm.GetRouteConfig() }
func (b *base) route() *routev3.Route               { return b.inline().VirtualHosts[0].Routes[0] }
func (b *base) match(i int) *listenerv3.FilterChainMatch {
	return b.listener.FilterChains[i].FilterChainMatch
}

// messages packs the filters and options and returns the resources.
func (b *base) messages() []proto.Message {
	for _, l := range b.hcm.AccessLog {
		if l.ConfigType == nil {
			l.ConfigType = &accesslogv3.AccessLog_TypedConfig{TypedConfig: pack(b.file)}
		}
	}
	if chains := b.listener.FilterChains; len(chains) > 1 {
		chains[0].Filters = []*listenerv3.Filter{filter("hcm", b.hcm)}
		chains[1].Filters = []*listenerv3.Filter{filter("tcp", b.tcp)}
		if b.filters != nil {
			chains[1].Filters = b.filters(chains[1].Filters)
		}
		if chains[1].TransportSocket == nil {
			chains[1].TransportSocket = &corev3.TransportSocket{Name: "tls",
				ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(b.tls)}}
		}
	}
	if b.eds.TypedExtensionProtocolOptions == nil && b.options != nil {
		b.eds.TypedExtensionProtocolOptions = map[string]*anypb.Any{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": pack(b.options),
		}
	}
	if b.upstream != nil {
		b.eds.TransportSocket = &corev3.TransportSocket{Name: "tls",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(b.upstream)}}
	}
	var out []proto.Message
	for _, m := range append([]proto.Message{b.cert, b.ca, b.static, b.eds, b.assigned, b.routes, b.listener}, b.more...) {
		gone := false
		for _, w := range b.without {
			gone = gone || w == m
		}
		if !gone {
			out = append(out, m)
		}
	}
	return out
}

// keyPair returns a self-signed certificate and its key.
func keyPair(t testing.TB) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotBefore: now,
		NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
