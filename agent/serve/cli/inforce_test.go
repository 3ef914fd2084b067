package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

const outsideDocs = `
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 192.0.2.1, transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}, inbound: [{port: 80, tags: {kuma.io/service: web}}]}}
---
{type: MeshPassthrough, mesh: default, name: outside, spec: {targetRef: {kind: Mesh}, default: {passthroughMode: Matched, appendMatch: [
  {type: Domain, value: api.example.com, port: 443, protocol: tls},
  {type: CIDR, value: 10.0.0.0/8, protocol: tcp}]}}}
`

// TestStatusShowsThePassthrough: who gives the mode, and a line for each match with where it leads.
func TestStatusShowsThePassthrough(t *testing.T) {
	rs, faults := kinds.Registry().Decode("", []byte(outsideDocs))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	socket := agenttest.API(t, func(o *httpapi.Options) {
		o.Last = func() *status.Result {
			return &status.Result{Revision: 2, At: time.Now(), Meshes: map[string]*generate.Mesh{"default": m}}
		}
	})
	out, _ := output(t, socket, command.ExitOK, "inspect", "dataplane", "web", "--type=status")
	var words []string
	for line := range strings.Lines(out) {
		words = append(words, strings.Join(strings.Fields(line), " "))
	}
	agenttest.Contains(t, strings.Join(words, "\n"),
		"MeshPassthrough: Matched, by meshpassthrough/outside spec.default.passthroughMode\n",
		"\ntcp 10.0.0.0/8 * any address in 10.0.0.0/8 IPv4 meshpassthrough_tcp_10.0.0.0/8_* - meshpassthrough/outside "+
			"spec.default.appendMatch[1]\n",
		"\ntls api.example.com 443 the addresses of api.example.com, resolved by the proxy both "+
			"meshpassthrough_tls_api.example.com_443 - meshpassthrough/outside spec.default.appendMatch[0]")
	out, _ = output(t, socket, command.ExitOK, "inspect", "dataplane", "web", "--type=status", "-o", "yaml")
	agenttest.Contains(t, out, "inForce:\n  - type: MeshPassthrough\n    mode: Matched\n", "pinned: true")
	out, _ = output(t, socket, command.ExitOK, "inspect", "dataplane", "web", "--type=status", "-o", "json")
	agenttest.Contains(t, out, `"reaches": "the addresses of api.example.com, resolved by the proxy"`)
}
