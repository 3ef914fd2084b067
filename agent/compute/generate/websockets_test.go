package generate_test

import (
	"bytes"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestWebSockets checks that a change of the mesh's label changes the config of existing proxies.
func TestWebSockets(t *testing.T) {
	const proxies = "name: default}\n---\n{type: Dataplane, mesh: default, name: web, " +
		"networking: {address: 192.168.0.1, inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}], " +
		"outbound: [{port: 10001, tags: {kuma.io/service: web}}]}}\n"
	var m *generate.Mesh
	var prev *generate.Proxy
	memo := generate.NewMemo()
	for _, label := range []string{
		"", `labels: {nearside.io/websockets: "true"}, `, `labels: {nearside.io/websockets: "false"}, `,
	} {
		rs, faults := kinds.Registry().Decode("test", []byte("{type: Mesh, "+label+proxies))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		var err error
		if m, err = generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{},
			m); err != nil {
			t.Fatal(err)
		}
		if prev, err = generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, prev,
			memo); err != nil {
			t.Fatal(err)
		}
		out := prev.Resource(draft.ResourceID{TypeURL: draft.TypeListener, Name: "outbound:127.0.0.1:10001"})
		if got := bytes.Contains(out.Body(), []byte("websocket")); got != m.View.WebSockets {
			t.Errorf("%q: the outbound lets requests become WebSockets: %v", label, got)
		}
		if in := prev.Resource(draft.ResourceID{TypeURL: draft.TypeListener,
			Name: "inbound:192.168.0.1:80"}); !bytes.Contains(in.Body(), []byte("websocket")) {
			t.Errorf("%q: the inbound lets no request become a WebSocket", label)
		} else if got := bytes.Contains(in.Body(), []byte{0x4a, 0x02, 0x28, 0x01}); got != m.View.WebSockets {
			// http2_protocol_options: {allow_connect: true}
			t.Errorf("%q: the inbound takes upgrades over HTTP/2: %v", label, got)
		}
	}
}
