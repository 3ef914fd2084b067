package danger_test

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/danger"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	_ "github.com/nearside-mesh/nearside/agent/compute/kinds" // types of extensions
)

// TestUnguarded compares a listener with the plain one.
func TestUnguarded(t *testing.T) {
	encode := func(chain string) []byte {
		m := &listenerv3.Listener{}
		if err := protojson.Unmarshal([]byte(`{"filterChains": [`+chain+`]}`), m); err != nil {
			t.Fatal(err)
		}
		out, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	const typ = `"@type": "type.googleapis.com/envoy.extensions.`
	http := func(filter string) string {
		return `{"filters": [{"name": "a", "typedConfig": {` + typ +
			`filters.network.http_connection_manager.v3.HttpConnectionManager", "httpFilters": [{"name": "b", ` +
			`"typedConfig": {` + typ + `filters.http.` + filter + `}}]}}]}`
	}
	for name, x := range map[string]struct{ chain, lacks string }{
		"equal":    {chain: `{}`},
		"a filter": {http(`rbac.v3.RBAC"`), "envoy.extensions.filters.http.rbac.v3.RBAC"},
		"a socket": {`{"transportSocket": {"name": "a", "typedConfig": {` + typ +
			`transport_sockets.tls.v3.DownstreamTlsContext"}}}`, "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"},
		"a transport socket where none belongs": {chain: http(`compressor.v3.Compressor", "compressorLibrary": {"name": "c", ` +
			`"typedConfig": {` + typ + `transport_sockets.tls.v3.DownstreamTlsContext"}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			url := envoy.TypePrefix + "envoy.config.listener.v3.Listener"
			if got := danger.Unguarded(url, encode(x.chain), encode(`{}`)); got != x.lacks {
				t.Errorf("missing without it: %q, want %q", got, x.lacks)
			}
		})
	}
}
