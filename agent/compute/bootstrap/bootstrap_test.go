package bootstrap_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/fixed_heap/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// readBootstrap decodes a bootstrap as Envoy does, from YAML through JSON to the message, and
// validates it.
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
	o := bootstrap.Options{
		Mesh: "default", Name: "web.1", Cluster: "web", XDSSocket: "/run/nearside/xds.sock",
		AdminSocket: "/run/nearside/web.sock",
		Dataplane:   []byte(` {"type": "Dataplane", "mesh":"default", "name":"web.1", "x": "a\"b"}`),
		Annotations: map[string]string{"kuma.io/z": "on", "kuma.io/a": "line\nline: \"x\" \u2028 é"},
	}
	out, err := bootstrap.Render(o)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		repeated, err := bootstrap.Render(o)
		if err != nil || string(repeated) != string(out) {
			t.Fatalf("the same options gave other bytes (%v)", err)
		}
	}
	b := readBootstrap(t, out)
	ads := b.GetDynamicResources().GetAdsConfig()
	if ads.GetApiType() != corev3.ApiConfigSource_DELTA_GRPC || ads.GetTransportApiVersion() != corev3.ApiVersion_V3 ||
		!ads.GetSetNodeOnFirstMessageOnly() {
		t.Errorf("ADS: %v", ads)
	}
	for _, source := range []*corev3.ConfigSource{
		b.GetDynamicResources().GetCdsConfig(), b.GetDynamicResources().GetLdsConfig(),
	} {
		if source.GetAds() == nil || source.GetResourceApiVersion() != corev3.ApiVersion_V3 {
			t.Errorf("config source: %v", source)
		}
	}
	c := b.GetStaticResources().GetClusters()[0]
	if name := ads.GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName(); name != c.GetName() {
		t.Errorf("ADS asks cluster %q, the cluster is %q", name, c.GetName())
	}
	if path := c.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetPipe().
		GetPath(); path != o.XDSSocket {
		t.Errorf("xDS socket %q", path)
	}
	options := &httpv3.HttpProtocolOptions{}
	if err := c.GetTypedExtensionProtocolOptions()["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].UnmarshalTo(
		options); err != nil {
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
	if got, want := meta["dataplane.resource"].GetStringValue(),
		`{"type":"Dataplane","mesh":"default","name":"web.1","x":"a\"b"}`; got != want {
		t.Errorf("dataplane.resource\n%s, want\n%s", got, want)
	}
	for k, want := range o.Annotations {
		if got := meta["annotations"].GetStructValue().GetFields()[k].GetStringValue(); got != want {
			t.Errorf("annotation %q: %q, want %q", k, got, want)
		}
	}
}

func TestBootstrapSmall(t *testing.T) {
	out, err := bootstrap.Render(bootstrap.Options{Mesh: "m", Name: "n",
		XDSSocket: "/" + strings.Repeat("x", 106)})
	if err != nil {
		t.Fatal(err)
	}
	b := readBootstrap(t, out)
	if b.GetAdmin() != nil || b.GetNode().GetMetadata() != nil || b.GetNode().GetCluster() != "n" {
		t.Errorf("%v", b)
	}
}

func TestBootstrapFaults(t *testing.T) {
	good := bootstrap.Options{Mesh: "m", Name: "n", XDSSocket: "/x"}
	for name, c := range map[string]struct {
		edit func(*bootstrap.Options)
		want []string
	}{
		"long socket": {func(o *bootstrap.Options) { o.XDSSocket = "/" + strings.Repeat("x", 107) },
			[]string{"xDS socket", "108 bytes", "at most 107", "shorter directory"}},
		"relative": {func(o *bootstrap.Options) { o.AdminSocket = "admin.sock" },
			[]string{"admin socket", "absolute"}},
		"socket and address": {func(o *bootstrap.Options) { o.XDSAddress.Address = "192.0.2.1:1" },
			[]string{"keep one"}},
		"CA for a socket":    {func(o *bootstrap.Options) { o.XDSAddress.CA = "/ca" }, []string{"address"}},
		"no port":            {tcp("192.0.2.1", "", "", ""), []string{`"192.0.2.1"`, "HOST:PORT"}},
		"port 0":             {tcp("192.0.2.1:0", "", "", ""), []string{"HOST:PORT"}},
		"no host":            {tcp(":1", "", "", ""), []string{"HOST:PORT"}},
		"odd host":           {tcp("a\nb:1", "", "", ""), []string{`"a\nb:1"`, "HOST:PORT"}},
		"every address":      {tcp("[::]:1", "", "", ""), []string{"dialed"}},
		"zone of an address": {tcp("[fe80::1%eth0]:1", "", "", ""), []string{"dialed"}},
		"relative CA":        {tcp("a:1", "ca.pem", "", ""), []string{`"ca.pem"`, "absolute"}},
		"no key":             {tcp("a:1", "/ca", "/cert", ""), []string{"private key"}},
		"no CA":              {tcp("a:1", "", "/cert", "/key"), []string{"authorities"}},
		"format in a token": {func(o *bootstrap.Options) { o.Token = "SECRET.%HOSTNAME%.c" },
			[]string{"token", "three parts"}},
		"line in a token": {func(o *bootstrap.Options) { o.Token = "SECRET.b.c\n" }, []string{"token"}},
		"two parts":       {func(o *bootstrap.Options) { o.Token = "SECRET.b" }, []string{"token"}},
		"huge token": {func(o *bootstrap.Options) { o.Token = "a.b." + strings.Repeat("c", 8<<10) },
			[]string{"token", "8196 bytes"}},
		"one socket": {func(o *bootstrap.Options) { o.AdminSocket = "/x" },
			[]string{"admin socket", "that of the xDS socket"}},
		"no socket":   {func(o *bootstrap.Options) { o.XDSSocket = "" }, []string{"xDS socket", "required"}},
		"dotted mesh": {func(o *bootstrap.Options) { o.Mesh = "a.b" }, []string{`mesh "a.b"`}},
		"no name":     {func(o *bootstrap.Options) { o.Name = "" }, []string{`"m."`}},
		"control":     {func(o *bootstrap.Options) { o.Name = "a\nb" }, []string{`'\n'`}},
		"array": {func(o *bootstrap.Options) { o.Dataplane = []byte("[1]") },
			[]string{"dataplane", "JSON object"}},
		"null": {func(o *bootstrap.Options) { o.Dataplane = []byte("null") },
			[]string{"dataplane", "JSON object"}},
		"huge": {func(o *bootstrap.Options) { o.Dataplane = make([]byte, 2<<20) },
			[]string{"dataplane", "at most"}},
		"bad annotation": {func(o *bootstrap.Options) { o.Annotations = map[string]string{"k": "\xff"} },
			[]string{`annotation "k"`}},
		"two faults": {func(o *bootstrap.Options) { o.Name, o.XDSSocket = "", "" },
			[]string{"required", `"m."`}},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			c.edit(&o)
			_, err := bootstrap.Render(o)
			if err == nil {
				t.Fatal("no error")
			}
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("the error holds the token: %v", err)
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
		o := bootstrap.Options{Mesh: mesh, Name: name, Cluster: cluster, XDSSocket: path, Dataplane: []byte(dp),
			Annotations: map[string]string{key: value}}
		out, err := bootstrap.Render(o)
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
		if b.Node.ID != mesh+"."+name || cluster != "" && b.Node.Cluster != cluster ||
			b.Node.Metadata.Annotations[key] != value || !utf8.ValidString(b.Node.Metadata.Dataplane) {
			t.Fatalf("%+v from %+v\n%s", b, o, out)
		}
	})
}

// tcp returns an edit of the options for an agent that is reached over TCP.
func tcp(address, ca, cert, key string) func(*bootstrap.Options) {
	return func(o *bootstrap.Options) {
		o.XDSSocket, o.XDSAddress = "", bootstrap.XDSAddress{Address: address, CA: ca, Cert: cert, Key: key}
	}
}

// TestBootstrapToken checks that the token is only in the metadata that Envoy sends with each
// stream.
func TestBootstrapToken(t *testing.T) {
	o := bootstrap.Options{Mesh: "m", Name: "n", XDSSocket: "/x", Token: "aB-_9.b.c"}
	out, err := bootstrap.Render(o)
	if err != nil {
		t.Fatal(err)
	}
	metadata := readBootstrap(t, out).GetDynamicResources().GetAdsConfig().GetGrpcServices()[0].GetInitialMetadata()
	if len(metadata) != 1 || metadata[0].GetKey() != "authorization" || metadata[0].GetValue() != "Bearer aB-_9.b.c" {
		t.Errorf("initial metadata %v", metadata)
	}
	o.Token = ""
	without, err := bootstrap.Render(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Replace(string(out), "      initial_metadata:\n      - key: authorization\n"+
		"        value: \"Bearer aB-_9.b.c\"\n", "", 1); got != string(without) {
		t.Errorf("the token changes more than the metadata:\n%s", out)
	}
}

func TestBootstrapAddress(t *testing.T) {
	for name, c := range map[string]struct {
		address, ca, cert string
		host, san, sni    string
		kind              clusterv3.Cluster_DiscoveryType
	}{
		"IPv4":          {"192.0.2.1:15443", "", "", "192.0.2.1", "", "", clusterv3.Cluster_STATIC},
		"IPv6 with TLS": {"[2001:DB8:0::1]:15443", "/ca.pem", "", "2001:db8::1", "IP_ADDRESS", "", clusterv3.Cluster_STATIC},
		"name with mTLS": {"agent.example.org:15443", "/ca.pem", "/cert",
			"agent.example.org", "DNS", "agent.example.org", clusterv3.Cluster_LOGICAL_DNS},
	} {
		t.Run(name, func(t *testing.T) {
			o := bootstrap.Options{Mesh: "m", Name: "n",
				XDSAddress: bootstrap.XDSAddress{Address: c.address, CA: c.ca, Cert: c.cert}}
			if c.cert != "" {
				o.XDSAddress.Key = "/key"
			}
			out, err := bootstrap.Render(o)
			if err != nil {
				t.Fatal(err)
			}
			cluster := readBootstrap(t, out).GetStaticResources().GetClusters()[0]
			address := cluster.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().
				GetSocketAddress()
			if address.GetAddress() != c.host || address.GetPortValue() != 15443 || cluster.GetType() != c.kind {
				t.Errorf("%v at %v", cluster.GetType(), address)
			}
			if c.ca == "" {
				if cluster.GetTransportSocket() != nil {
					t.Errorf("TLS: %v", cluster.GetTransportSocket())
				}
				return
			}
			tls := &tlsv3.UpstreamTlsContext{}
			if err := cluster.GetTransportSocket().GetTypedConfig().UnmarshalTo(tls); err != nil {
				t.Fatal(err)
			}
			trust := tls.GetCommonTlsContext().GetValidationContext()
			san := trust.GetMatchTypedSubjectAltNames()[0]
			if tls.GetSni() != c.sni || trust.GetTrustedCa().GetFilename() != c.ca || san.GetSanType().String() != c.san ||
				san.GetMatcher().GetExact() != c.host {
				t.Errorf("TLS: %v", tls)
			}
			if certs := tls.GetCommonTlsContext().GetTlsCertificates(); len(certs) > 0 != (c.cert != "") ||
				len(certs) > 0 && certs[0].GetPrivateKey().GetFilename() != "/key" {
				t.Errorf("certificates %v", certs)
			}
		})
	}
}
