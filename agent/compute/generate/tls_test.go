package generate_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const mtlsMesh = "type: Mesh\nname: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n---\n"

func workload(name, address, service, rest string) string {
	return fmt.Sprintf("type: Dataplane\nmesh: default\nname: %s\nnetworking:\n  address: %s\n"+
		"  inbound: [{port: 80, tags: {kuma.io/service: %s}}]\n%s---\n", name, address, service, rest)
}

// secrets issues certificates with a test clock.
type secrets struct {
	t   *testing.T
	now time.Time
	k   *identity.Keeper
}

func newSecrets(t *testing.T) *secrets {
	s := &secrets{t: t, now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	s.k = identity.Open(identity.Options{Now: func() time.Time { return s.now }})
	return s
}

func (s *secrets) of(v *mesh.View, name string) *identity.Secrets {
	s.t.Helper()
	s.k.Begin()
	defer s.k.End(func(string, string) bool { return true })
	if _, err := s.k.Mesh(v.Name, v.Spec.MTLS); err != nil {
		s.t.Fatal(err)
	}
	out, err := s.k.Proxy(v.Name, name, v.ProxyTags(v.Dataplane(name).Spec.(*resource.Dataplane)))
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// TestRotationChangesOneSecret checks that a certificate rotation changes one resource, and that
// all others are reused.
func TestRotationChangesOneSecret(t *testing.T) {
	v := view(t, decode(t, "mtls", []byte(mtlsMesh+workload("backend", "10.0.0.2", "backend", "")+
		workload("web", "10.0.0.1", "web", "  outbound: [{port: 10001, tags: {kuma.io/service: backend}}]\n"))), nil)
	s, memo := newSecrets(t), generate.NewMemo()
	in := input(v, "web")
	in.Secrets = s.of(v, "web")
	first, err := generate.Generate(in, nil, memo)
	if err != nil {
		t.Fatal(err)
	}
	same, err := generate.Generate(in, first, memo)
	if err != nil || same.Sealed != first.Sealed {
		t.Fatalf("nothing has changed, but the config has: %v", err)
	}

	s.now = s.now.Add(20 * time.Hour)
	in.Secrets = s.of(v, "web")
	next, err := generate.Generate(in, first, memo)
	if err != nil {
		t.Fatal(err)
	}
	for rank, url := range draft.Types {
		was, is := first.Sealed.Resources[rank], next.Sealed.Resources[rank]
		if url != draft.TypeSecret {
			if !slices.Equal(was, is) || first.Sealed.Versions[rank] != next.Sealed.Versions[rank] {
				t.Errorf("%s: changed", url)
			}
			continue
		}
		if len(is) != 2 || is[0].Name != "identity_cert:secret:default" || is[0] == was[0] || is[1] != was[1] {
			t.Errorf("the secrets were %v and are %v", was, is)
		}
		var got tlsv3.Secret
		if err := proto.Unmarshal(is[0].Body(), &got); err != nil {
			t.Fatal(err)
		}
		cert := got.GetTlsCertificate()
		if !bytes.Equal(cert.PrivateKey.GetInlineBytes(), in.Secrets.Key()) ||
			!bytes.Equal(cert.CertificateChain.GetInlineBytes(), in.Secrets.Certificate()) {
			t.Error("the secret does not hold what was given")
		}
	}
	fresh, err := generate.Generate(in, nil, nil)
	if err != nil || fresh.Sealed.Versions != next.Sealed.Versions {
		t.Errorf("made anew, the config is another one: %v", err)
	}
}

// TestSecretsFollowTheMesh checks that an incremental config equals a newly generated one after
// mTLS is switched on or off.
func TestSecretsFollowTheMesh(t *testing.T) {
	s, memo := newSecrets(t), generate.NewMemo()
	var prev *generate.Proxy
	var last *mesh.View
	for step, head := range []string{
		"type: Mesh\nname: default\n---\n", mtlsMesh, "type: Mesh\nname: default\n---\n",
		mtlsMesh, strings.Replace(mtlsMesh, "builtin", "builtin, mode: PERMISSIVE", 1),
	} {
		last = view(t, decode(t, "mesh", []byte(head+
			workload("web", "10.0.0.1", "web", "  outbound: [{port: 10001, tags: {kuma.io/service: web}}]\n"))), last)
		in := input(last, "web")
		if last.Spec.MTLSEnabled() != nil {
			in.Secrets = s.of(last, "web")
		}
		next, err := generate.Generate(in, prev, memo)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := generate.Generate(in, nil, nil)
		if err != nil || next.Sealed.Versions != fresh.Sealed.Versions {
			t.Errorf("step %d: the config is another one than made anew: %v", step, err)
		}
		secured := strings.Contains(head, "mtls")
		if n := len(next.Sealed.Resources[draft.Rank(draft.TypeSecret)]); (n == 2) != secured {
			t.Errorf("step %d: %d secrets", step, n)
		}
		prev = next
	}
}

// TestNothingInPlainText checks that in a strict mesh every inbound requires a client certificate,
// and every cluster of the mesh verifies the server's certificate.
func TestNothingInPlainText(t *testing.T) {
	rs := decode(t, "mtls", []byte(mtlsMesh))
	for _, r := range bigMesh(4, 0) {
		if r.Kind != "Mesh" {
			rs = append(rs, r)
		}
	}
	p := proxyOf(t, meshOf(t, rs, nil), "web", nil, nil)
	inbounds, clusters := 0, 0
	for _, r := range p.Sealed.Resources[draft.Rank(draft.TypeListener)] {
		var l listenerv3.Listener
		if err := proto.Unmarshal(r.Body(), &l); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(l.Name, "inbound:") || strings.HasPrefix(l.Name, "inbound:passthrough") {
			continue
		}
		inbounds++
		for _, ch := range l.FilterChains {
			var ctx tlsv3.DownstreamTlsContext
			if err := ch.GetTransportSocket().GetTypedConfig().UnmarshalTo(&ctx); err != nil ||
				!ctx.RequireClientCertificate.GetValue() {
				t.Errorf("%s takes clients without certificates: %v", l.Name, err)
			}
		}
	}
	for _, r := range p.Sealed.Resources[draft.Rank(draft.TypeCluster)] {
		var c clusterv3.Cluster
		if err := proto.Unmarshal(r.Body(), &c); err != nil {
			t.Fatal(err)
		}
		if c.GetType() != clusterv3.Cluster_EDS {
			continue
		}
		clusters++
		var ctx tlsv3.UpstreamTlsContext
		if err := c.GetTransportSocket().GetTypedConfig().UnmarshalTo(&ctx); err != nil || ctx.Sni != c.Name+
			"{mesh=default}" || len(ctx.CommonTlsContext.GetCombinedValidationContext().GetDefaultValidationContext().
			GetMatchTypedSubjectAltNames()) != 1 {
			t.Errorf("%s is reached without looking at its certificate: %v", c.Name, err)
		}
	}
	if inbounds == 0 || clusters < 4 {
		t.Errorf("%d inbounds and %d clusters", inbounds, clusters)
	}
}

// TestGRPCNeedsPlainText checks that a gRPC client in a mesh with mTLS is an error that names the
// fix.
func TestGRPCNeedsPlainText(t *testing.T) {
	v := view(t, decode(t, "mtls", []byte(mtlsMesh+workload("web", "10.0.0.1", "web", ""))), nil)
	in := input(v, "web")
	in.Flavor = node.FlavorGRPC
	if _, err := generate.Generate(in, nil, nil); err == nil || !strings.Contains(err.Error(),
		`mesh "default" enables mTLS (backend "ca")`) || !strings.Contains(err.Error(), "put an Envoy beside the client") {
		t.Errorf("got %v", err)
	}
}

// TestKeysAreNotRendered checks that a proxy's private key is not in any rendering of its config.
func TestKeysAreNotRendered(t *testing.T) {
	v := view(t, decode(t, "mtls", []byte(mtlsMesh+workload("web", "10.0.0.1", "web", ""))), nil)
	in := input(v, "web")
	in.Secrets = newSecrets(t).of(v, "web")
	p, err := generate.Generate(in, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	got := string(config[draft.TypeSecret]["identity_cert:secret:default"])
	if want := `"privateKey":{"inlineBytes":"W3JlZGFjdGVkXQ=="}`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	if strings.Contains(fmt.Sprintf("%+v", in), "PRIVATE") || strings.Contains(fmt.Sprintf("%+v", in), "45 45 45") {
		t.Error("the input shows the key")
	}
}
