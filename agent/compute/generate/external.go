package generate

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Modes of spec.tls.verification of a MeshExternalService.
const (
	verifySkipSAN = "SkipSAN" // the name in the certificate is not checked
	verifySkipCA  = "SkipCA"  // the CA is not checked
	verifySkipAll = "SkipAll"
)

// externalTLS sets the TLS contexts of a MeshExternalService: one for all endpoints, or one for
// each endpoint if their names differ. It fails if the requested level of security is not possible.
func externalTLS(c *clusterv3.Cluster, spec *resource.MeshExternalService, list []mesh.Endpoint,
	systemCA string) error {
	t := spec.TLS
	var names []string
	for i := range list {
		name := serverName(t, &list[i])
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		socket, err := externalSocket(t, name, systemCA)
		if err != nil {
			return err
		}
		if len(names) == 1 {
			c.TransportSocket = socket
			return nil
		}
		c.TransportSocketMatches = append(c.TransportSocketMatches, &clusterv3.Cluster_TransportSocketMatch{
			Name: name, Match: endpointTags(&mesh.Endpoint{Tags: nameTag(name)}), TransportSocket: socket,
		})
	}
	for i := range list {
		list[i].Tags = nameTag(serverName(t, &list[i]))
	}
	return nil
}

// nameTag returns the tag that selects the TLS context of an endpoint.
func nameTag(name string) map[string]string {
	return map[string]string{resource.TagExternalServiceName: name}
}

// serverName returns the server name to send to an endpoint.
func serverName(t *resource.MeshExternalTLS, e *mesh.Endpoint) string {
	if t.Verification != nil && t.Verification.ServerName != "" {
		return strings.TrimSuffix(t.Verification.ServerName, ".")
	}
	if strings.HasPrefix(e.Address, unixScheme) {
		return ""
	}
	return strings.TrimSuffix(e.Address, ".")
}

func externalSocket(t *resource.MeshExternalTLS, name, systemCA string) (*corev3.TransportSocket, error) {
	v := t.Verification
	if v == nil {
		v = &resource.MeshExternalVerification{}
	}
	ctx := &tlsv3.UpstreamTlsContext{Sni: name, AllowRenegotiation: t.AllowRenegotiation,
		CommonTlsContext: &tlsv3.CommonTlsContext{}}
	if _, err := netip.ParseAddr(name); err == nil {
		ctx.Sni = "" // a server name is never an address (RFC 6066, section 3)
	}
	if b := t.Version; b != nil {
		ctx.CommonTlsContext.TlsParams = &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsVersion(b.Min), TlsMaximumProtocolVersion: tlsVersion(b.Max),
		}
	}
	if v.Mode != verifySkipCA && v.Mode != verifySkipAll {
		validation := &tlsv3.CertificateValidationContext{}
		switch {
		case v.CACert != nil:
			ca, err := authorities(v.CACert)
			if err != nil {
				return nil, fmt.Errorf("caCert: %w", err)
			}
			validation.TrustedCa = ca
		case systemCA != "":
			validation.TrustedCa = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: systemCA}}
		default:
			return nil, errors.New("caCert is missing, and the system has no file of authorities: give one, or another mode")
		}
		if v.Mode != verifySkipSAN {
			if validation.MatchTypedSubjectAltNames = wantedNames(v, name); len(validation.MatchTypedSubjectAltNames) == 0 {
				return nil, errors.New("there is no name that the server could prove: give serverName or subjectAltNames")
			}
		}
		ctx.CommonTlsContext.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: validation}
	}
	if v.ClientCert != nil && v.ClientKey != nil {
		pair, err := clientPair(v.ClientCert, v.ClientKey)
		if err != nil {
			return nil, err
		}
		ctx.CommonTlsContext.TlsCertificates = []*tlsv3.TlsCertificate{pair}
	}
	return packTLS(ctx)
}

// wantedNames returns matchers for names. The certificate of the server must have a name that one
// of them matches.
func wantedNames(v *resource.MeshExternalVerification, name string) []*tlsv3.SubjectAltNameMatcher {
	var out []*tlsv3.SubjectAltNameMatcher
	for _, s := range v.SubjectAltNames {
		m := exact(s.Value)
		if s.Type == "Prefix" {
			m = &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s.Value}}
		}
		if strings.Contains(s.Value, "://") {
			out = append(out, &tlsv3.SubjectAltNameMatcher{SanType: tlsv3.SubjectAltNameMatcher_URI, Matcher: m})
		} else {
			out = append(out, hostNames(m)...)
		}
	}
	if len(out) == 0 && name != "" {
		return hostNames(exact(name))
	}
	return out
}

// hostNames matches the DNS name or IP address of a server.
func hostNames(m *matcherv3.StringMatcher) []*tlsv3.SubjectAltNameMatcher {
	return []*tlsv3.SubjectAltNameMatcher{
		{SanType: tlsv3.SubjectAltNameMatcher_DNS, Matcher: m}, {SanType: tlsv3.SubjectAltNameMatcher_IP_ADDRESS, Matcher: m},
	}
}

func exact(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func tlsVersion(s string) tlsv3.TlsParameters_TlsProtocol {
	switch s {
	case "TLS10":
		return tlsv3.TlsParameters_TLSv1_0
	case "TLS11":
		return tlsv3.TlsParameters_TLSv1_1
	case "TLS12":
		return tlsv3.TlsParameters_TLSv1_2
	case "TLS13":
		return tlsv3.TlsParameters_TLSv1_3
	}
	return tlsv3.TlsParameters_TLS_AUTO
}

// authorities returns the CA certificates of a source. It does not read a file.
func authorities(d *resource.DataSource) (*corev3.DataSource, error) {
	out, err := dataSource(d)
	if err != nil {
		return nil, err
	}
	if _, file := out.GetSpecifier().(*corev3.DataSource_Filename); file {
		return out, nil
	}
	n := 0
	for rest := out.GetInlineBytes(); ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if _, err := x509.ParseCertificate(block.Bytes); block.Type != "CERTIFICATE" || err != nil {
			return nil, fmt.Errorf("PEM block %d is not a certificate", n)
		}
	}
	if n == 0 {
		return nil, errors.New("it contains no PEM-encoded certificate")
	}
	return out, nil
}

// clientPair reads a client's certificate and key. Its errors never contain the key.
func clientPair(cert *resource.DataSource, key *resource.KeySource) (*tlsv3.TlsCertificate, error) {
	chain, err := dataSource(cert)
	if err != nil {
		return nil, fmt.Errorf("clientCert: %w", err)
	}
	private, err := dataSource(key.Source())
	if err != nil {
		return nil, fmt.Errorf("clientKey: %w", err)
	}
	if a, b := chain.GetInlineBytes(), private.GetInlineBytes(); a != nil && b != nil {
		if _, err := tls.X509KeyPair(a, b); err != nil {
			return nil, errors.New("clientCert and clientKey are not a certificate and its key in PEM")
		}
	}
	return &tlsv3.TlsCertificate{CertificateChain: chain, PrivateKey: private}, nil
}

// externalCluster adds a cluster that holds its endpoints itself. Envoy resolves host names; other
// endpoints are static.
func (g *generator) externalCluster(o *mesh.Outbound, name string, service draft.Service) {
	c := outsideCluster(name, o.Service.Endpoints.Subset(o.Subset), g.dp.Networking.Address, g.Warn)
	c.Service = service
	httpOptions(c, o.Service.Protocol)
	g.d.Clusters = append(g.d.Clusters, c)
}

// outsideCluster returns the cluster of endpoints outside the mesh for a proxy with the given
// address.
func outsideCluster(name string, list []mesh.Endpoint, proxy string, warn warnFunc) *draft.Cluster {
	c := &draft.Cluster{Message: &clusterv3.Cluster{Name: name}}
	kind := clusterv3.Cluster_STATIC
	var endpoints []*endpointv3.LbEndpoint
	for _, e := range list {
		if spec, ok := e.Resource.Spec.(*resource.ExternalService); ok {
			if tls := spec.Networking.TLS; tls != nil && tls.Enabled {
				m, err := transportMatch(&e, tls)
				if err != nil {
					// Omitting an endpoint is better than plain text instead of the requested TLS.
					warn(e.Resource.Key, "networking.tls: %v: the endpoint is left out", err)
					continue
				}
				c.Message.TransportSocketMatches = append(c.Message.TransportSocketMatches, m)
			}
		}
		if _, err := netip.ParseAddr(e.Address); err != nil {
			kind = clusterv3.Cluster_STRICT_DNS
		}
		endpoints = append(endpoints, lbEndpoint(&e))
	}
	resolve(c.Message, kind, proxy)
	c.Message.LoadAssignment = assignmentOf(name, endpoints...)
	return c
}

// warnFunc records a warning for the owner of a resource.
type warnFunc func(k resource.Key, format string, args ...any)

// resolve sets how a proxy with the given address discovers the endpoints of a cluster.
func resolve(c *clusterv3.Cluster, kind clusterv3.Cluster_DiscoveryType, proxy string) {
	c.ClusterDiscoveryType = clusterType(kind)
	if a, err := netip.ParseAddr(proxy); kind == clusterv3.Cluster_STRICT_DNS && (err != nil || a.Is4()) {
		c.DnsLookupFamily = clusterv3.Cluster_V4_ONLY // a proxy without an IPv6 address cannot connect to one
	}
}

// transportMatch returns the TLS context of one endpoint, which the endpoint's tags select. Envoy
// itself offers the ALPN protocol of the cluster's HTTP version.
func transportMatch(e *mesh.Endpoint, t *resource.ExternalTLS) (*clusterv3.Cluster_TransportSocketMatch, error) {
	name := cmp.Or(t.ServerName, e.Address)
	ctx := &tlsv3.UpstreamTlsContext{Sni: name, AllowRenegotiation: t.AllowRenegotiation}
	if _, err := netip.ParseAddr(name); err == nil {
		ctx.Sni = "" // a server name is never an address (RFC 6066, section 3)
	}
	common := &tlsv3.CommonTlsContext{}
	if t.CACert != nil {
		ca, err := dataSource(t.CACert)
		if err != nil {
			return nil, err
		}
		v := &tlsv3.CertificateValidationContext{TrustedCa: ca}
		if !t.SkipHostnameVerify {
			v.MatchTypedSubjectAltNames = hostNames(exact(name))
		}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: v}
		ctx.CommonTlsContext = common
	}
	if t.ClientCert != nil && t.ClientKey != nil {
		cert, err := dataSource(t.ClientCert)
		if err != nil {
			return nil, err
		}
		key, err := dataSource(t.ClientKey.Source())
		if err != nil {
			return nil, err
		}
		common.TlsCertificates = []*tlsv3.TlsCertificate{{CertificateChain: cert, PrivateKey: key}}
		ctx.CommonTlsContext = common
	}
	socket, err := packTLS(ctx)
	return &clusterv3.Cluster_TransportSocketMatch{Name: e.Address, Match: endpointTags(e), TransportSocket: socket}, err
}

// dataSource returns inline bytes, or the file from which the proxy reads them.
func dataSource(d *resource.DataSource) (*corev3.DataSource, error) {
	switch {
	case len(d.Inline) > 0:
		return inlineBytes(d.Inline), nil
	case d.InlineString != "":
		return inlineBytes([]byte(d.InlineString)), nil
	case d.File != "":
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: d.File}}, nil
	}
	return nil, fmt.Errorf("the secret %q cannot be read: this agent holds no secrets; use inline or file", d.Secret)
}
