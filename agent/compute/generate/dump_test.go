package generate_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
)

// TestRedactDump checks a dump with secrets in all fields where a mesh's Envoy can have them, and
// with messages of unknown types.
func TestRedactDump(t *testing.T) {
	const tls = `"transport_socket": {"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
		"common_tls_context": {"tls_certificates": [{"certificate_chain": {"inline_string": "chain"}, "private_key": {"inline_string": "SECRET-1"}}]}}}`
	out, err := generate.RedactDump([]byte(`{"configs": [
		{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "new_field": 1, "bootstrap": {"node": {"id": "default.web"}, "dynamic_resources": {"ads_config": {"grpc_services": [
			{"envoy_grpc": {"cluster_name": "nearside-xds"}, "initial_metadata": [{"key": "authorization", "value": "Bearer SECRET-2"}]},
			{"google_grpc": {"target_uri": "a", "stat_prefix": "a", "call_credentials": [{"access_token": "SECRET-3"}]}}]}}}},
		{"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": [{"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "backend", ` + tls + `}}]},
		{"@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump", "dynamic_active_secrets": [{"name": "s", "secret": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
			"name": "s", "generic_secret": {"secret": {"inline_string": "SECRET-4"}}}}]},
		{"@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump", "dynamic_listeners": [{"name": "l", "active_state": {"listener": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l",
			"filter_chains": [{"filters": [{"name": "f", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.unheard.of.v3.Filter", "password": "SECRET-5"}}]}]}}}]},
		{"@type": "type.googleapis.com/envoy.admin.v3.NewConfigDump", "key": "SECRET-6"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	if strings.Contains(text, "SECRET") {
		t.Errorf("a secret is shown: %s", text)
	}
	for _, want := range []string{`"id":"default.web"`, `"key":"authorization"`, `"name":"backend"`,
		`"inlineString":"chain"`, `"name":"l"`, "envoy.extensions.unheard.of.v3.Filter is not known",
		"envoy.admin.v3.NewConfigDump is not known"} {
		if !strings.Contains(text, want) {
			t.Errorf("without %s: %s", want, text)
		}
	}
	for _, bad := range []string{
		"", "[]", "null x", `{"configs": 1}`, `{"configs": [{"@type": 1}]}`,
		`{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "version_info": 1}]}`,
	} {
		if out, err := generate.RedactDump([]byte(bad)); err == nil {
			t.Errorf("%q: %s", bad, out)
		}
	}
}

// FuzzRedactDump checks that arbitrary input has a deterministic result.
func FuzzRedactDump(f *testing.F) {
	f.Add([]byte(`{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"node": {"id": "x"}}}]}`))
	f.Add([]byte(`{"configs": [{"@type": "x/y.Z", "a": [{"@type": 1}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := generate.RedactDump(body)
		b, err2 := generate.RedactDump(body)
		if (err == nil) != (err2 == nil) || string(a) != string(b) {
			t.Errorf("%s, %v; then %s, %v", a, err, b, err2)
		}
	})
}
