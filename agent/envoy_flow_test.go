package agent_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// TestRoutesChangeUnderLoad checks that no request fails when a MeshHTTPRoute is added, changed, or
// removed. Requests pass a real Envoy on persistent connections, while Envoy drains listeners for
// ten minutes and clusters are added and removed.
func TestRoutesChangeUnderLoad(t *testing.T) {
	envoytest.Find(t)
	a := agenttest.RunAgent(t)
	var docs strings.Builder
	docs.WriteString("{type: Mesh, name: default, skipCreatingInitialPolicies: ['*']}\n")
	for _, version := range []string{"v1", "v2"} {
		protocols := &http.Protocols{}
		protocols.SetUnencryptedHTTP2(true) // as between the proxies of a mesh
		fmt.Fprintf(&docs, "---\n{type: Dataplane, mesh: default, name: backend-%s, networking: {address: 127.0.0.1, "+
			"inbound: [{port: %d, tags: {kuma.io/service: backend, kuma.io/protocol: http, version: %[1]s}}]}}\n",
			version, serveText(t, protocols, version))
	}
	port := freePort(t)
	fmt.Fprintf(&docs, "---\n{type: Dataplane, mesh: default, name: web, networking: {address: 127.0.0.2, "+
		"inbound: [{port: %d, tags: {kuma.io/service: web}}], outbound: [{port: %d, tags: {kuma.io/service: backend}}]}}\n",
		freePort(t), port)
	agenttest.Apply(t, a, docs.String())
	startEnvoy(t, a, "web")

	l := startFlow(t, port, 10)
	// pass waits until Envoy's routes have changed and several more requests have completed.
	routes := ""
	pass := func() {
		agenttest.Eventually(t, "Envoy has acknowledged other routes", func() bool {
			for _, p := range a.Proxies() {
				for _, s := range p.Types {
					if p.InSync && s.TypeURL == draft.TypeRoute && s.AckedVersion != routes {
						routes = s.AckedVersion
						return true
					}
				}
			}
			return false
		})
		l.more(t, 200)
	}
	pass()
	route := resource.Key{Kind: "MeshHTTPRoute", Mesh: "default", Name: "split"}
	for range 3 {
		for _, weights := range [][2]int{{50, 50}, {90, 10}} {
			agenttest.Apply(t, a, fmt.Sprintf(`{type: MeshHTTPRoute, mesh: default, name: split, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: backend}, rules: [{matches: [{path: {type: PathPrefix, value: /}}],
  default: {backendRefs: [{kind: MeshServiceSubset, name: backend, weight: %d, tags: {version: v1}}, {kind: MeshServiceSubset, name: backend, weight: %d, tags: {version: v2}}]}}]}]}}`, weights[0], weights[1]))
			pass()
		}
		agenttest.Remove(t, a, route)
		pass()
	}
	if l.stop(t); l.connections.Load() != 10 {
		t.Errorf("%d connections of 10 clients: a change of routes has closed some", l.connections.Load())
	}
}
