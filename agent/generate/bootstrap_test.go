package generate_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nearside-mesh/nearside/agent/generate"
)

// readBootstrap decodes a bootstrap as Envoy would: YAML to JSON to the message, which is validated.
func readBootstrap(t *testing.T, out []byte) *bootstrapv3.Bootstrap {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal(out, &tree); err != nil {
		t.Fatalf("not YAML: %v\n%s", err, out)
	}
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	b := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(data, b); err != nil {
		t.Fatalf("not a Bootstrap: %v\n%s", err, out)
	}
	if err := b.ValidateAll(); err != nil {
		t.Fatalf("invalid: %v\n%s", err, out)
	}
	return b
}

func TestBootstrap(t *testing.T) {
	o := generate.BootstrapOptions{
		Mesh: "default", Name: "web.1", Cluster: "web", XDSSocket: "/run/nearside/xds.sock", AdminSocket: "/run/nearside/web.sock",
		Dataplane:   []byte(` {"type": "Dataplane", "mesh":"default", "name":"web.1", "x": "a\"b"}`),
		Annotations: map[string]string{"kuma.io/z": "on", "kuma.io/a": "line\nline: \"x\" \u2028 é"},
	}
	out, err := generate.Bootstrap(o)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		again, err := generate.Bootstrap(o)
		if err != nil || string(again) != string(out) {
			t.Fatalf("the same options gave other bytes (%v)", err)
		}
	}
	b := readBootstrap(t, out)
	ads := b.GetDynamicResources().GetAdsConfig()
	if ads.GetApiType() != corev3.ApiConfigSource_DELTA_GRPC || ads.GetTransportApiVersion() != corev3.ApiVersion_V3 || !ads.GetSetNodeOnFirstMessageOnly() {
		t.Errorf("ADS: %v", ads)
	}
	for _, source := range []*corev3.ConfigSource{b.GetDynamicResources().GetCdsConfig(), b.GetDynamicResources().GetLdsConfig()} {
		if source.GetAds() == nil || source.GetResourceApiVersion() != corev3.ApiVersion_V3 {
			t.Errorf("config source: %v", source)
		}
	}
	c := b.GetStaticResources().GetClusters()[0]
	if name := ads.GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName(); name != c.GetName() {
		t.Errorf("ADS asks cluster %q, the cluster is %q", name, c.GetName())
	}
	if path := c.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetPipe().GetPath(); path != o.XDSSocket {
		t.Errorf("xDS socket %q", path)
	}
	options := &httpv3.HttpProtocolOptions{}
	if err := c.GetTypedExtensionProtocolOptions()["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].UnmarshalTo(options); err != nil {
		t.Fatal(err)
	}
	if options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() == nil || options.ValidateAll() != nil {
		t.Errorf("protocol options: %v", options)
	}
	if path := b.GetAdmin().GetAddress().GetPipe().GetPath(); path != o.AdminSocket {
		t.Errorf("admin socket %q", path)
	}
	runtime := b.GetLayeredRuntime().GetLayers()[0].GetStaticLayer().GetFields()
	if got := runtime["re2.max_program_size.error_level"].GetNumberValue(); got != 4294967295 {
		t.Errorf("RE2 limit %v", got)
	}
	if b.GetNode().GetId() != "default.web.1" || b.GetNode().GetCluster() != "web" {
		t.Errorf("node: %v", b.GetNode())
	}
	meta := b.GetNode().GetMetadata().GetFields()
	if got, want := meta["dataplane.resource"].GetStringValue(), `{"type":"Dataplane","mesh":"default","name":"web.1","x":"a\"b"}`; got != want {
		t.Errorf("dataplane.resource\n%s, want\n%s", got, want)
	}
	for k, want := range o.Annotations {
		if got := meta["annotations"].GetStructValue().GetFields()[k].GetStringValue(); got != want {
			t.Errorf("annotation %q: %q, want %q", k, got, want)
		}
	}
}

func TestBootstrapSmall(t *testing.T) {
	out, err := generate.Bootstrap(generate.BootstrapOptions{Mesh: "m", Name: "n", XDSSocket: "/" + strings.Repeat("x", 106)})
	if err != nil {
		t.Fatal(err)
	}
	b := readBootstrap(t, out)
	if b.GetAdmin() != nil || b.GetNode().GetMetadata() != nil || b.GetNode().GetCluster() != "n" {
		t.Errorf("%v", b)
	}
}

func TestBootstrapFaults(t *testing.T) {
	good := generate.BootstrapOptions{Mesh: "m", Name: "n", XDSSocket: "/x"}
	for name, c := range map[string]struct {
		edit func(*generate.BootstrapOptions)
		want []string
	}{
		"long socket":    {func(o *generate.BootstrapOptions) { o.XDSSocket = "/" + strings.Repeat("x", 107) }, []string{"xDS socket", "108 bytes", "at most 107", "shorter directory"}},
		"relative":       {func(o *generate.BootstrapOptions) { o.AdminSocket = "admin.sock" }, []string{"admin socket", "absolute"}},
		"one socket":     {func(o *generate.BootstrapOptions) { o.AdminSocket = "/x" }, []string{"admin socket", "that of the xDS socket"}},
		"no socket":      {func(o *generate.BootstrapOptions) { o.XDSSocket = "" }, []string{"xDS socket", "required"}},
		"dotted mesh":    {func(o *generate.BootstrapOptions) { o.Mesh = "a.b" }, []string{`mesh "a.b"`}},
		"no name":        {func(o *generate.BootstrapOptions) { o.Name = "" }, []string{`"m."`}},
		"control":        {func(o *generate.BootstrapOptions) { o.Name = "a\nb" }, []string{`'\n'`}},
		"array":          {func(o *generate.BootstrapOptions) { o.Dataplane = []byte("[1]") }, []string{"dataplane", "JSON object"}},
		"null":           {func(o *generate.BootstrapOptions) { o.Dataplane = []byte("null") }, []string{"dataplane", "JSON object"}},
		"huge":           {func(o *generate.BootstrapOptions) { o.Dataplane = make([]byte, 2<<20) }, []string{"dataplane", "at most"}},
		"bad annotation": {func(o *generate.BootstrapOptions) { o.Annotations = map[string]string{"k": "\xff"} }, []string{`annotation "k"`}},
		"two faults":     {func(o *generate.BootstrapOptions) { o.Name, o.XDSSocket = "", "" }, []string{"required", `"m."`}},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			c.edit(&o)
			_, err := generate.Bootstrap(o)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func FuzzBootstrap(f *testing.F) {
	f.Add("default", "web", "svc", "/run/x.sock", "k", "v", `{"a":1}`)
	f.Add("m", "é.\u00a0", "\x7f\u0085", "/\t\"'", "#: {", "%d\\x", `{"a":"\u0000"}`)
	f.Add("m", "n", "yes", "/~", "no", "0x1f", "")
	f.Fuzz(func(t *testing.T, mesh, name, cluster, path, key, value, dp string) {
		o := generate.BootstrapOptions{Mesh: mesh, Name: name, Cluster: cluster, XDSSocket: path, Dataplane: []byte(dp), Annotations: map[string]string{key: value}}
		out, err := generate.Bootstrap(o)
		if err != nil {
			return
		}
		var b struct {
			Node struct {
				ID, Cluster string
				Metadata    struct {
					Annotations map[string]string
					Dataplane   string `yaml:"dataplane.resource"`
				}
			}
		}
		if err := yaml.Unmarshal(out, &b); err != nil {
			t.Fatalf("not YAML: %v\n%s", err, out)
		}
		if b.Node.ID != mesh+"."+name || cluster != "" && b.Node.Cluster != cluster || b.Node.Metadata.Annotations[key] != value || !utf8.ValidString(b.Node.Metadata.Dataplane) {
			t.Fatalf("%+v from %+v\n%s", b, o, out)
		}
	})
}

// TestEnvoyTakesBootstrap asks a real Envoy where there is one.
func TestEnvoyTakesBootstrap(t *testing.T) {
	envoy, err := findEnvoy()
	if err != nil {
		t.Skip("no Envoy to ask: ", err)
	}
	out, err := generate.Bootstrap(generate.BootstrapOptions{Mesh: "m", Name: "n", XDSSocket: "/run/nearside/xds.sock", AdminSocket: t.TempDir() + "/a"})
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/envoy.yaml"
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	validateWithEnvoy(t, envoy, file)
}

var errNoEnvoy = errors.New("set ENVOY_BIN or put envoy on PATH")

func findEnvoy() (string, error) {
	if bin := os.Getenv("ENVOY_BIN"); bin != "" {
		return bin, nil
	}
	if bin, err := exec.LookPath("envoy"); err == nil {
		return bin, nil
	}
	return "", errNoEnvoy
}

func validateWithEnvoy(t *testing.T, envoy, file string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "-c", file).CombinedOutput(); err != nil {
		t.Errorf("envoy --mode validate: %v\n%s", err, out)
	}
}
