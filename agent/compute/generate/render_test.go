package generate_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// hideKeys replaces the private keys of client certificates, including those in Any.
func hideKeys(t *testing.T, m protoreflect.Message) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		hideKeys(t, inner.ProtoReflect())
		if err := a.MarshalFrom(inner); err != nil {
			t.Fatal(err)
		}
		return
	}
	if c, ok := m.Interface().(*tlsv3.TlsCertificate); ok && c.PrivateKey.GetInlineBytes() != nil {
		c.PrivateKey.Specifier = &corev3.DataSource_InlineBytes{InlineBytes: []byte("[redacted]")}
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap() && fd.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, mv protoreflect.Value) bool { hideKeys(t, mv.Message()); return true })
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				hideKeys(t, v.List().Get(i).Message())
			}
		case fd.Message() != nil && !fd.IsMap():
			hideKeys(t, v.Message())
		}
		return true
	})
}

// byLibrary renders a resource with the protobuf library.
func byLibrary(t *testing.T, typeURL string, body []byte) []byte {
	t.Helper()
	m := map[string]proto.Message{
		draft.TypeCluster: &clusterv3.Cluster{}, draft.TypeListener: &listenerv3.Listener{},
		draft.TypeEndpoint: &endpointv3.ClusterLoadAssignment{},
		draft.TypeRoute:    &routev3.RouteConfiguration{}, draft.TypeSecret: &tlsv3.Secret{},
	}[typeURL]
	if err := proto.Unmarshal(body, m); err != nil {
		t.Fatal(err)
	}
	hideKeys(t, m.ProtoReflect())
	j, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, j); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRenderLikeTheLibrary checks that every resource of every proxy in the cases is rendered as
// the protobuf library does. It includes the conformance cases if they are available.
func TestRenderLikeTheLibrary(t *testing.T) {
	inputs := map[string][]byte{}
	conformance, err := filepath.Glob("../../../../shared/conformance/cases/*/input.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range conformance {
		if inputs[file], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	own, err := filepath.Glob("testdata/generate/*.txtar")
	if err != nil || len(own) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range own {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		inputs[file] = a.Files[0].Data
	}
	rendered := 0
	for file, data := range inputs {
		rs := decoded(t, string(data))
		if !slices.ContainsFunc(rs, func(r *resource.Resource) bool { return r.Kind == "Mesh" }) {
			rs = append(rs, &resource.Resource{Key: resource.Key{Kind: "Mesh", Name: "default"}, Spec: &resource.Mesh{}})
		}
		m := meshOf(t, rs, nil)
		for _, r := range rs {
			if r.Kind != "Dataplane" || r.Mesh != "default" {
				continue
			}
			p, err := generate.Generate(generate.Input{Mesh: m, Name: r.Name}, nil, nil)
			if err != nil {
				continue // a proxy that cannot be generated
			}
			got, err := p.JSON()
			if err != nil {
				t.Fatalf("%s %s: %v", file, r.Name, err)
			}
			for rank, list := range p.Sealed.Resources {
				url := draft.Types[rank]
				for _, res := range list {
					if want := byLibrary(t, url, res.Body()); !bytes.Equal(got[url][res.Name], want) {
						t.Errorf("%s %s %s:\ngot  %s\nwant %s", file, r.Name, res.Name, got[url][res.Name], want)
					}
					rendered++
				}
			}
		}
	}
	if rendered < 200 { // the number for testdata only
		t.Errorf("only %d resources were rendered", rendered)
	}
}

// TestSecretFields checks the redaction of each field that Envoy's API marks as sensitive.
func TestSecretFields(t *testing.T) {
	bytesOf := func(s string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(s)}}
	}
	text := func(s string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
	}
	file := &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "/key.pem"}}
	variable := &corev3.DataSource{Specifier: &corev3.DataSource_EnvironmentVariable{EnvironmentVariable: "KEY"}}
	packed, err := anypb.New(bytesOf("SECRET"))
	if err != nil {
		t.Fatal(err)
	}
	hidden := base64.StdEncoding.EncodeToString([]byte("[redacted]"))
	shown := base64.StdEncoding.EncodeToString([]byte("CERT"))
	for _, c := range []struct {
		name   string
		secret *tlsv3.Secret
		want   string
	}{
		{"certificate", certificate(&tlsv3.TlsCertificate{CertificateChain: bytesOf("CERT"), PrivateKey: bytesOf("SECRET"),
			Password: text("SECRET"), Pkcs12: bytesOf("SECRET")}),
			`{"tlsCertificate":{"certificateChain":{"inlineBytes":"` + shown + `"},"privateKey":{"inlineBytes":"` + hidden +
				`"},"pkcs12":{"inlineBytes":"` + hidden + `"},"password":{"inlineString":"[redacted]"}}}`},
		{"places", certificate(&tlsv3.TlsCertificate{PrivateKey: file, Password: variable}),
			`{"tlsCertificate":{"privateKey":{"filename":"/key.pem"},"password":{"environmentVariable":"KEY"}}}`},
		{"provider", certificate(&tlsv3.TlsCertificate{PrivateKeyProvider: &tlsv3.PrivateKeyProvider{ProviderName: "p",
			ConfigType: &tlsv3.PrivateKeyProvider_TypedConfig{TypedConfig: packed}}}),
			`{"tlsCertificate":{"privateKeyProvider":{"providerName":"p","typedConfig":{"@type":"type.googleapis.com/envoy.config.core.v3.DataSource","inlineBytes":"` + hidden + `"}}}}`},
		{"ticket keys", &tlsv3.Secret{Type: &tlsv3.Secret_SessionTicketKeys{
			SessionTicketKeys: &tlsv3.TlsSessionTicketKeys{Keys: []*corev3.DataSource{bytesOf("SECRET"), file}}}},
			`{"sessionTicketKeys":{"keys":[{"inlineBytes":"` + hidden + `"},{"filename":"/key.pem"}]}}`},
		{"generic", &tlsv3.Secret{Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{
			Secret: text("SECRET"), Secrets: map[string]*corev3.DataSource{"a": text("SECRET")}}}},
			`{"genericSecret":{"secret":{"inlineString":"[redacted]"},"secrets":{"a":{"inlineString":"[redacted]"}}}}`},
		{"authority", &tlsv3.Secret{Type: &tlsv3.Secret_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: bytesOf("CERT")}}},
			`{"validationContext":{"trustedCa":{"inlineBytes":"` + shown + `"}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			body, err := proto.Marshal(c.secret)
			if err != nil {
				t.Fatal(err)
			}
			r, err := generate.NewRenderer(nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Render(draft.Rank(draft.TypeSecret), draft.NewResource(draft.RankSecret, "s", body))
			if err != nil || string(got) != c.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
			}
		})
	}
}

func certificate(c *tlsv3.TlsCertificate) *tlsv3.Secret {
	return &tlsv3.Secret{Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: c}}
}

// TestRenderNamesTheFault checks the error for a resource whose bytes are not a valid message.
func TestRenderNamesTheFault(t *testing.T) {
	r, err := generate.NewRenderer(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Render(draft.Rank(draft.TypeCluster), draft.NewResource(draft.RankCluster, "c", []byte{0x0a, 1, 0xff}))
	if err == nil || !strings.Contains(err.Error(),
		`Cluster "c": the bytes are not a valid message: string field contains invalid UTF-8`) {
		t.Errorf("got %v", err)
	}
}
