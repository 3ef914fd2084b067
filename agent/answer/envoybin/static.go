package envoybin

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/base/redact"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// staticConfig is a config that Envoy loads from a bootstrap file instead of a server.
type staticConfig struct {
	listeners []*listenerv3.Listener
	clusters  []*clusterv3.Cluster
	secrets   []*tlsv3.Secret
	endpoints map[string]*endpointv3.ClusterLoadAssignment
	routes    map[string]*routev3.RouteConfiguration
	built     *bootstrapv3.Bootstrap // set by the method bootstrap
}

// hiddenKey replaces keys that the API hides.
const hiddenKey = "hidden"

// add returns an empty message for another resource.
func (s *staticConfig) add(kind envoy.Kind, name string) proto.Message {
	m := kind.New()
	switch m := m.(type) {
	case *listenerv3.Listener:
		s.listeners = append(s.listeners, m)
	case *clusterv3.Cluster:
		s.clusters = append(s.clusters, m)
	case *tlsv3.Secret:
		s.secrets = append(s.secrets, m)
	case *endpointv3.ClusterLoadAssignment:
		s.endpoints[name] = m
	case *routev3.RouteConfiguration:
		s.routes[name] = m
	}
	return m
}

func newStaticConfig() *staticConfig {
	return &staticConfig{endpoints: map[string]*endpointv3.ClusterLoadAssignment{},
		routes: map[string]*routev3.RouteConfiguration{}}
}

// staticFrom decodes the config of a snapshot.
func staticFrom(s *envoy.Snapshot) (*staticConfig, error) {
	out := newStaticConfig()
	for k, list := range s {
		for _, r := range list {
			if err := proto.Unmarshal(r.Body(), out.add(envoy.Kind(k), r.Name)); err != nil {
				return nil, fmt.Errorf("%s: %w", r.Name, err)
			}
		}
	}
	return out, nil
}

// staticFromJSON decodes a config in the form of the API.
func staticFromJSON(x api.XDS) (*staticConfig, error) {
	out := newStaticConfig()
	// In a bytes field the placeholder must be base64; in a string field it may be any text.
	hidden := []byte(`"` + base64.StdEncoding.EncodeToString([]byte(hiddenKey)) + `"`)
	for _, typeURL := range slices.Sorted(maps.Keys(x)) {
		kind := slices.Index(envoy.KindURLs[:], typeURL)
		for _, name := range slices.Sorted(maps.Keys(x[typeURL])) {
			if kind < 0 {
				return nil, fmt.Errorf("resource type %s is unknown", typeURL)
			}
			text := bytes.ReplaceAll(x[typeURL][name], []byte(`"`+redact.Redacted+`"`), hidden)
			if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text,
				out.add(envoy.Kind(kind), name)); err != nil {
				return nil, fmt.Errorf("%s %s: %w", typeURL, name, err)
			}
		}
	}
	return out, nil
}

// maxSteps limits the nesting of fields and messages. Protobuf itself allows 10,000 messages.
const maxSteps = 500

// bootstrap returns the name and the content of a bootstrap file for Envoy: JSON, or the wire
// format if the program does not know a message type in it. Envoy contacts no server for it:
// clusters contain their endpoints, listeners contain their routes, and secrets are static with
// generated certificates. Access logs go to /dev/null.
func (s *staticConfig) bootstrap(mesh, name string, certs *throwaway) (file string, text []byte, err error) {
	b := &bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: mesh + "." + name, Cluster: name},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Listeners: s.listeners, Clusters: s.clusters, Secrets: s.secrets,
		},
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
			Name: "nearside", LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{
				StaticLayer: &structpb.Struct{Fields: map[string]*structpb.Value{
					"re2.max_program_size.error_level": structpb.NewNumberValue(math.MaxUint32),
				}}},
		}}},
	}
	for _, c := range bootstrap.StaticClusters() {
		b.StaticResources.Clusters = append(b.StaticResources.Clusters,
			&clusterv3.Cluster{Name: c, ConnectTimeout: durationpb.New(time.Second)})
	}
	err = protorange.Range(b.ProtoReflect(), func(p protopath.Values) error { // includes packed messages
		if p.Len() > maxSteps {
			return fmt.Errorf("fields are nested more than %d deep", maxSteps)
		}
		if m, ok := p.Index(-1).Value.Interface().(protoreflect.Message); ok {
			s.replaceServers(m.Interface(), certs)
		}
		return nil
	})
	if err != nil {
		return "", nil, err
	}
	s.built = b
	if text, err := (protojson.MarshalOptions{}).Marshal(b); err == nil {
		return "envoy.json", text, nil
	}
	text, err = s.wire()
	return "envoy.pb", text, err
}

// wire returns the last bootstrap in wire format.
func (s *staticConfig) wire() ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(s.built)
}

// replaceServers replaces references to servers in a message by static values.
func (s *staticConfig) replaceServers(m proto.Message, certs *throwaway) {
	switch m := m.(type) {
	case *hcmv3.HttpConnectionManager:
		if rds := m.GetRds(); rds != nil {
			route := &routev3.RouteConfiguration{Name: rds.RouteConfigName}
			if r := s.routes[rds.RouteConfigName]; r != nil {
				route = proto.CloneOf(r)
			}
			if route.ValidateClusters == nil { // the default for RDS
				route.ValidateClusters = wrapperspb.Bool(false)
			}
			m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: route}
		}
	case *tlsv3.SdsSecretConfig:
		m.SdsConfig = nil
	case *tlsv3.TlsCertificate:
		if bytes.Equal(m.GetPrivateKey().GetInlineBytes(), []byte(hiddenKey)) {
			m.CertificateChain, m.PrivateKey = inline(certs.cert), inline(certs.key)
		}
	case *tlsv3.Secret:
		switch m.Type.(type) {
		case *tlsv3.Secret_TlsCertificate:
			m.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(certs.cert),
				PrivateKey: inline(certs.key)}}
		case *tlsv3.Secret_ValidationContext:
			m.Type = &tlsv3.Secret_ValidationContext{
				ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(certs.cert)},
			}
		}
	case *filelogv3.FileAccessLog:
		m.Path = "/dev/null" // the proxy's path may not exist on this host
	case *clusterv3.Cluster:
		if m.GetType() != clusterv3.Cluster_EDS {
			return
		}
		service := m.GetEdsClusterConfig().GetServiceName()
		if service == "" {
			service = m.Name
		}
		a := &endpointv3.ClusterLoadAssignment{}
		if known := s.endpoints[service]; known != nil {
			a = proto.CloneOf(known)
		}
		a.ClusterName = m.Name
		m.LoadAssignment, m.EdsClusterConfig = a, nil
		m.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		if named(a) {
			m.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
		}
	}
}

// named reports whether an endpoint is a host name.
func named(a *endpointv3.ClusterLoadAssignment) bool {
	for _, l := range a.Endpoints {
		for _, e := range l.LbEndpoints {
			if s := e.GetEndpoint().GetAddress().GetSocketAddress(); s != nil {
				if _, err := netip.ParseAddr(s.Address); err != nil {
					return true
				}
			}
		}
	}
	return false
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}

// throwaway is a certificate with its key that replaces those of a proxy.
type throwaway struct{ cert, key []byte } // PEM

func newThrowaway() (*throwaway, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nearside"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &throwaway{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})}, nil
}
