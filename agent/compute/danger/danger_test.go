package danger_test

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/danger"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

var registry = kinds.Registry()

// decode decodes one resource.
func decode(t testing.TB, doc string) *resource.Resource {
	t.Helper()
	r, err := registry.DecodeOne([]byte(doc))
	if err != nil {
		t.Fatalf("%s\n%v", doc, err)
	}
	return r
}

// shown formats dangers, one per line.
func shown(list []access.Danger) string {
	var b strings.Builder
	for _, d := range list {
		fmt.Fprintln(&b, d)
	}
	return strings.TrimSpace(b.String())
}

// TestLogPaths checks that each way to name the file of an access log needs a feature.
func TestLogPaths(t *testing.T) {
	for _, c := range []struct{ name, doc, want string }{
		{"policy",
			`{type: MeshAccessLog, mesh: default, name: a, spec: {targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh},
			default: {backends: [{type: Tcp, tcp: {address: "127.0.0.1:1"}}, {type: File, file: {path: /tmp/a}}]}}]}}`,
			`spec.from[0].default.backends[1].file.path names the log file "/tmp/a", which needs the feature log-path`},
		{"policy, other form",
			`{type: MeshAccessLog, mesh: default, name: a, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh},
			default: {backends: [{type: file, conf: {path: /tmp/b}}]}}]}}`, `spec.to[0].default.backends[0].conf.path names`},
		{"backend", `{type: MeshAccessLogBackend, mesh: default, name: a, spec: {name: a, type: File, file: {path: /tmp/a}}}`,
			`spec.file.path names the log file "/tmp/a"`},
		{"global backend", `{type: GlobalAccessLogBackend, name: a, spec: {name: a, type: file, conf: {path: /tmp/a}}}`,
			`spec.conf.path names`},
		{"mesh", `{type: Mesh, name: default, logging: {backends: [{name: a, type: file, conf: {path: /tmp/a}}]}}`,
			`logging.backends[0].conf.path names`},
		{"collector",
			`{type: MeshAccessLogBackend, mesh: default, name: a, spec: {name: a, type: Tcp, tcp: {address: "a.b:1"}}}`, ""},
		{"reference",
			`{type: MeshAccessLog, mesh: default, name: a, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh},
			default: {backends: [{type: reference, conf: {kind: MeshAccessLogBackend, name: a}}]}}]}}`, ""},
		{"mesh without logs", `{type: Mesh, name: default}`, ""},
	} {
		r := decode(t, c.doc)
		got := shown(danger.Of(r))
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if f := danger.Features(r); (f == access.FeatureLogPath) != (c.want != "") {
			t.Errorf("%s: features %s", c.name, f)
		}
	}
}

// TestKeyIn checks the search for inline keys in encoded resources.
func TestKeyIn(t *testing.T) {
	const tls = `"transportSocket":{"name":"a","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext","commonTlsContext":%s}}`
	for body, want := range map[string]string{
		`{"name":"a"}`: "-",
		`{` + fmt.Sprintf(tls, `{"tlsCertificates":[{"privateKey":{"inlineString":"k"}}]}`) +
			`}`: "/transportSocket/typedConfig/commonTlsContext/tlsCertificates/0/privateKey/inlineString",
		`{` + fmt.Sprintf(tls, `{"tlsCertificates":[{"password":{"inlineBytes":"aw=="}}]}`) +
			`}`: "/transportSocket/typedConfig/commonTlsContext/tlsCertificates/0/password/inlineBytes",
		`{` + fmt.Sprintf(tls, `{"tlsCertificates":[{"privateKey":{"filename":"/k"}}]}`) +
			`}`: "-",
		`{` + fmt.Sprintf(tls, `{"validationContext":{"trustedCa":{"inlineString":"k"}}}`) +
			`}`: "-",
		`{` + fmt.Sprintf(tls, `{"tlsCertificateSdsSecretConfigs":[{"name":"k"}]}`) +
			`}`: "-",
		`{"altStatName":"-----BEGIN PRIVATE KEY-----"}`:                                                                   "/altStatName",
		`{"metadata":{"filterMetadata":{"a":{"b":"-----BEGIN RSA PRIVATE KEY-----"}}}}`:                                   "/metadata/filterMetadata/a/fields/b/stringValue",
		`{"lbSubsetConfig":{"subsetSelectors":[{"keys":["version"]}]},"eds_cluster_config":{}}`:                           "-",
		`{"typedExtensionProtocolOptions":{"b":{"@type":"type.googleapis.com/google.protobuf.StringValue","value":"x"}}}`: "-",
	} {
		m := &clusterv3.Cluster{}
		if err := protojson.Unmarshal([]byte(body), m); err != nil {
			t.Fatal(err)
		}
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		at, holds := danger.KeyIn("type.googleapis.com/envoy.config.cluster.v3.Cluster", raw)
		if holds != (want != "-") || holds && at != want {
			t.Errorf("%s: %q %v, want %q", body, at, holds, want)
		}
	}
	if _, holds := danger.KeyIn("type.googleapis.com/envoy.config.cluster.v3.Cluster", []byte{0xff}); !holds {
		t.Error("a damaged message counts as one without a key")
	}
}
