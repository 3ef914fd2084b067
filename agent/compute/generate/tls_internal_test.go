package generate

import (
	"bytes"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func secureView(name string) *mesh.View {
	return &mesh.View{Name: name, Spec: &resource.Mesh{MTLS: &resource.MTLS{
		EnabledBackend: "ca", Backends: []resource.MTLSBackend{{Name: "ca", Type: resource.BackendBuiltin}},
	}}}
}

// TestUpstreamTLSIsCanonical checks that the encoded TLS contexts equal those of the protobuf
// library.
func TestUpstreamTLSIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		meshName := rapid.StringMatching(`[a-z]{1,63}`).Draw(t, "mesh")
		tls, err := newMeshTLS(secureView(meshName))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // the encoder reuses its buffer
			sni := rapid.StringMatching(`[a-z{}=,]{0,255}`).Draw(t, "sni")
			ids := rapid.SliceOfN(rapid.StringMatching(`spiffe://[a-z]{0,300}`), 0, 40).Draw(t, "ids")
			sds := func(name string) *tlsv3.SdsSecretConfig {
				return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: draft.ADS}
			}
			valid := &tlsv3.CertificateValidationContext{}
			for _, id := range ids {
				valid.MatchTypedSubjectAltNames = append(valid.MatchTypedSubjectAltNames, &tlsv3.SubjectAltNameMatcher{
					SanType: tlsv3.SubjectAltNameMatcher_URI,
					Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: id}},
				})
			}
			if len(ids) == 0 {
				valid.MatchTypedSubjectAltNames = []*tlsv3.SubjectAltNameMatcher{{
					SanType: tlsv3.SubjectAltNameMatcher_URI,
					Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" +
						meshName + "/"}},
				}}
			}
			want := &tlsv3.UpstreamTlsContext{Sni: sni, CommonTlsContext: &tlsv3.CommonTlsContext{
				TlsParams:                      &tlsv3.TlsParameters{TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3},
				AlpnProtocols:                  []string{"kuma"},
				TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{sds("identity_cert:secret:" + meshName)},
				ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
					CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
						DefaultValidationContext: valid, ValidationContextSdsSecretConfig: sds("mesh_ca:secret:" + meshName),
					}},
			}}
			if err := want.ValidateAll(); err != nil {
				t.Fatal(err)
			}
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if got := tls.upstream.Encode(sni, ids...); !bytes.Equal(got, b) {
				t.Fatalf("got\n%q\nwant\n%q", got, b)
			}
		}
	})
}
