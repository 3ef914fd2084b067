package generate

import (
	"bytes"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/fieldrule"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/encode"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/servername"
)

const (
	upstreamTLSURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"

	// meshProtocol is the ALPN protocol between proxies of a mesh. It distinguishes their TLS from
	// that of workloads.
	meshProtocol     = "kuma"
	nameTLSInspector = "envoy.filters.listener.tls_inspector"

	// Values of transport_protocol that Envoy's TLS inspector sets.
	transportTLS   = "tls"
	transportPlain = "raw_buffer"
)

// meshTLS builds the mutual TLS of one proxy. A nil meshTLS builds none.
type meshTLS struct {
	view       *mesh.View
	mesh       string
	permissive bool
	downstream *corev3.TransportSocket
	inspector  *listenerv3.ListenerFilter
	used       bool // something refers to the secrets
	upstream   encode.UpstreamTLS
}

func newMeshTLS(v *mesh.View) (*meshTLS, error) {
	b := v.Spec.MTLSEnabled()
	if b == nil {
		return nil, nil
	}
	t := &meshTLS{view: v, mesh: v.Name, permissive: b.Permissive(),
		upstream: encode.UpstreamTLS{Members: resource.SPIFFEID(v.Name, "")}}
	sds := func(name string) *tlsv3.SdsSecretConfig {
		return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: draft.ADS}
	}
	certificates := []*tlsv3.SdsSecretConfig{sds(identitySecret(v.Name))}
	prefix := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: t.upstream.Members}}
	var err error
	t.downstream, err = packTLS(&tlsv3.DownstreamTlsContext{
		RequireClientCertificate: sharedTrue,
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificateSdsSecretConfigs: certificates,
			ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
				CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
					DefaultValidationContext: &tlsv3.CertificateValidationContext{
						MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{{SanType: tlsv3.SubjectAltNameMatcher_URI,
							Matcher: prefix}},
					},
					ValidationContextSdsSecretConfig: sds(authoritySecret(v.Name)),
				},
			},
		},
	})
	if err != nil {
		return nil, err
	}
	if t.inspector, err = newTLSInspector(); err != nil {
		return nil, err
	}
	deterministic := proto.MarshalOptions{Deterministic: true}
	t.upstream.Common, err = deterministic.Marshal(&tlsv3.CommonTlsContext{
		// Envoy's default maximum for clients is TLS 1.2.
		TlsParams:     &tlsv3.TlsParameters{TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3},
		AlpnProtocols: []string{meshProtocol}, TlsCertificateSdsSecretConfigs: certificates,
	})
	if err != nil {
		return nil, err
	}
	t.upstream.Trusted, err = deterministic.Marshal(&tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
		ValidationContextSdsSecretConfig: sds(authoritySecret(v.Name)),
	})
	return t, err
}

// newTLSInspector returns the listener filter that detects TLS and its server name.
func newTLSInspector() (*listenerv3.ListenerFilter, error) {
	a, err := draft.Extension{Name: nameTLSInspector, Message: &inspectorv3.TlsInspector{}}.Pack()
	if err != nil {
		return nil, err
	}
	return &listenerv3.ListenerFilter{Name: nameTLSInspector,
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: a}}, nil
}

// packTLS returns the transport socket of a TLS context.
func packTLS(context proto.Message) (*corev3.TransportSocket, error) {
	a, err := draft.Extension{Name: draft.NameTLS, Message: context}.Pack()
	if err != nil {
		return nil, err
	}
	return tlsSocket(a), nil
}

func tlsSocket(a *anypb.Any) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: draft.NameTLS, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: a}}
}

// chains returns the filter chains of an inbound, each with separate filters. In permissive mode it
// also lets through connections from outside the mesh, both plain text and the workload's own TLS.
// serverFirst is true if the workload sends the first bytes.
func (t *meshTLS) chains(l *listenerv3.Listener, serverFirst bool, make func() *draft.Chain) []*draft.Chain {
	if t == nil {
		return []*draft.Chain{make()}
	}
	t.used = true
	secure := make()
	secure.TLS, secure.Message = true, &listenerv3.FilterChain{TransportSocket: t.downstream}
	if !t.permissive {
		return []*draft.Chain{secure}
	}
	var out []*draft.Chain
	for _, transport := range []string{transportPlain, transportTLS} {
		plain := make()
		plain.Message = &listenerv3.FilterChain{FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: transport}}
		out = append(out, plain)
	}
	secure.Message.FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: transportTLS,
		ApplicationProtocols: []string{meshProtocol}}
	l.ListenerFilters = append(l.ListenerFilters, t.inspector)
	if secure.HTTP == nil {
		// While mutual TLS is being switched, proxies of the mesh also send plain text, so that a
		// server that sends first must not wait for long.
		draft.AwaitClient(l, serverFirst || t.view.Switching)
	}
	return append(out, secure)
}

// service sets the TLS context of a service's cluster, in the given memory, if proxies use TLS
// towards it.
func (t *meshTLS) service(o *mesh.Outbound, p *outboundMessages) {
	if t == nil || !o.Service.Egress && !t.view.UsesTLS(o.Service) {
		return
	}
	t.used = true
	p.tlsPacked.TypeUrl = upstreamTLSURL
	p.tlsPacked.Value = t.upstream.Encode(servername.Of(t.mesh, o), t.identities(o.Service)...)
	p.tlsConfig.TypedConfig = &p.tlsPacked
	p.tlsSocket.Name, p.tlsSocket.ConfigType = draft.NameTLS, &p.tlsConfig
	p.clusterSpec.TransportSocket = &p.tlsSocket
}

// anybody sets a TLS context that accepts every proxy of the mesh, because the destination is
// unknown.
func (t *meshTLS) anybody(c *clusterv3.Cluster) {
	if t != nil {
		t.used = true
		c.TransportSocket = tlsSocket(&anypb.Any{TypeUrl: upstreamTLSURL, Value: t.upstream.Encode("")})
	}
}

// egress returns the TLS context of connections to the zone's egresses.
func (t *meshTLS) egress(sni string) *corev3.TransportSocket {
	t.used = true
	return tlsSocket(&anypb.Any{TypeUrl: upstreamTLSURL,
		Value: t.upstream.Encode(sni, resource.SPIFFEID(t.mesh, mesh.EgressService))})
}

// identities returns the service identities of a service. It returns none if they are unknown, so
// that every proxy of the mesh is accepted.
func (t *meshTLS) identities(s *mesh.Service) []string {
	switch {
	case s.Egress:
		return []string{resource.SPIFFEID(t.mesh, mesh.EgressService)}
	case s.ID.Kind == mesh.KindTag:
		return []string{resource.SPIFFEID(t.mesh, s.ID.Name)}
	}
	return s.Identities
}

// Names of a proxy's secrets: its certificate, and the CA certificates of its mesh.
func identitySecret(mesh string) string  { return "identity_cert:secret:" + mesh }
func authoritySecret(mesh string) string { return "mesh_ca:secret:" + mesh }

// secretResources seals the secrets of a proxy.
func secretResources(mesh string, s *identity.Secrets, memo *Memo) ([]*draft.Resource, error) {
	own := &tlsv3.Secret{Name: identitySecret(mesh),
		Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inlineBytes(s.Certificate()), PrivateKey: inlineBytes(s.Key()),
		}}}
	authorities := &tlsv3.Secret{Name: authoritySecret(mesh),
		Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: inlineBytes(s.Authorities()),
		}}}
	var out []*draft.Resource
	for _, m := range []*tlsv3.Secret{own, authorities} {
		body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			return nil, err
		}
		if err := fieldrule.FirstEncoded(m, body); err != nil {
			return nil, err
		}
		out = append(out, memo.sealed().Seal(draft.RankSecret, m.Name, body, nil))
	}
	return out, nil
}

func inlineBytes(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}

// withSecrets returns p with other secrets, or p itself if they are unchanged.
func (p *Proxy) withSecrets(s *identity.Secrets, memo *Memo) (*Proxy, error) {
	if s == p.secrets {
		return p, nil
	}
	next := *p
	next.secrets = s
	old := p.Sealed.Resources[draft.RankSecret]
	if len(old) == 0 {
		return &next, nil // nothing in the config refers to them
	}
	list, err := secretResources(p.Mesh, s, memo)
	if err != nil {
		return nil, err
	}
	list, version := draft.Order(list)
	if version == p.Sealed.Versions[draft.RankSecret] {
		return &next, nil
	}
	for i, r := range list {
		if i < len(old) && old[i].Name == r.Name && bytes.Equal(old[i].Body(), r.Body()) {
			list[i] = old[i]
		}
	}
	next.Sealed = p.Sealed.With(draft.RankSecret, list, version)
	return &next, nil
}
