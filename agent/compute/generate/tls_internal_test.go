package generate

import (
	"bytes"
	"strings"
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

// TestSNI checks the forms of the reference, and names that are too long for an SNI.
func TestSNI(t *testing.T) {
	long := strings.Repeat("n", 70)
	real := func(kind, name string) *mesh.Outbound {
		return &mesh.Outbound{Service: &mesh.Service{ID: mesh.ServiceID{Kind: kind, Name: "x"}, FullName: name, Port: 8080}}
	}
	tag := func(name string, subset map[string]string) *mesh.Outbound {
		return &mesh.Outbound{Service: &mesh.Service{ID: mesh.ServiceID{Name: name}}, Subset: subset}
	}
	for want, o := range map[string]*mesh.Outbound{
		"backend{mesh=default}":         tag("backend", nil),
		"backend{a=1,mesh=default,z=2}": tag("backend", map[string]string{"z": "2", "a": "1"}),
		"":                              tag(strings.Repeat("b", 250), nil),
		"a601e0c00295a9fbe.backend.8080.default.ms":            real(mesh.KindMeshService, "backend"), // as in Kuma 2.9
		"add27113f6ca4edc8.web.8080.default.ms":                real(mesh.KindMeshService, "web"),
		"a601e0c00295a9fbe.backend.8080.default.mzms":          real(mesh.KindMeshMultiZoneService, "backend"),
		"a4c9c6636c4de60ac." + long[:62] + "x.8080.default.ms": real(mesh.KindMeshService, long),
		"a601e0c00295a9fbe.backend.8080.default.mes":           real(mesh.KindMeshExternalService, "backend"),
	} {
		if got := sniOf("default", o); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
