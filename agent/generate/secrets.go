package generate

import (
	"bytes"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/identity"
)

// Names of the secrets of a proxy: its own certificate, and those of the authorities of its mesh.
func identitySecret(mesh string) string  { return "identity_cert:secret:" + mesh }
func authoritySecret(mesh string) string { return "mesh_ca:secret:" + mesh }

// secretResources seals the secrets of a proxy.
func secretResources(mesh string, s *identity.Secrets, memo *Memo) ([]*draft.Resource, error) {
	own := &tlsv3.Secret{Name: identitySecret(mesh), Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inlineBytes(s.Certificate()), PrivateKey: inlineBytes(s.Key()),
	}}}
	authorities := &tlsv3.Secret{Name: authoritySecret(mesh), Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
		TrustedCa: inlineBytes(s.Authorities()),
	}}}
	var out []*draft.Resource
	for _, m := range []*tlsv3.Secret{own, authorities} {
		if err := m.Validate(); err != nil {
			return nil, err
		}
		body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			return nil, err
		}
		out = append(out, memo.intern(draft.TypeSecret, draft.NewResource(m.Name, body)))
	}
	return out, nil
}

func inlineBytes(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}

// withSecrets returns p with other secrets. Nothing but they changes, and p is returned where they have not either.
func (p *Proxy) withSecrets(s *identity.Secrets, memo *Memo) (*Proxy, error) {
	if s == p.secrets {
		return p, nil
	}
	next := *p
	next.secrets = s
	old := p.Sealed.Resources[draft.RankSecret]
	if len(old) == 0 {
		return &next, nil // nothing of the config refers to them
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
		if i < len(old) && old[i].Name == r.Name && bytes.Equal(old[i].Body, r.Body) {
			list[i] = old[i]
		}
	}
	sealed := *p.Sealed
	sealed.Resources[draft.RankSecret], sealed.Versions[draft.RankSecret] = list, version
	next.Sealed = &sealed
	return &next, nil
}
