package kinds_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// routes is the per-route filter config of a route configuration.
type routes struct {
	VirtualHosts []struct {
		Routes []struct {
			TypedPerFilterConfig map[string]any
			Route                struct {
				WeightedClusters struct {
					Clusters []struct {
						Name                 string
						TypedPerFilterConfig map[string]any
					}
				}
			}
		}
	}
}

// TestExternalServiceLimits checks that a RateLimit for an ExternalService limits the routes of a
// TrafficRoute to it, in a split only at its cluster, and has no effect on an outbound with a
// MeshHTTPRoute.
func TestExternalServiceLimits(t *testing.T) {
	const docs = `
{type: Mesh, name: default}
---
{type: Dataplane, name: web-1, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}],
  outbound: [{port: 1001, tags: {kuma.io/service: pay}}, {port: 1002, tags: {kuma.io/service: orders}}]}}
---
{type: Dataplane, name: orders-1, networking: {address: 10.0.0.2, inbound: [{port: 80, tags: {kuma.io/service: orders, kuma.io/protocol: http}}]}}
---
{type: ExternalService, name: pay, tags: {kuma.io/service: pay, kuma.io/protocol: http, version: v1}, networking: {address: "pay.example.com:80"}}
---
{type: TrafficRoute, name: all, sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: "*"}}], conf: {destination: {kuma.io/service: "*"}}}
---
{type: TrafficRoute, name: orders, sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: orders}}],
  conf: {split: [{weight: 90, destination: {kuma.io/service: orders}}, {weight: 10, destination: {kuma.io/service: pay, version: v1}}]}}
---
{type: RateLimit, name: pay, sources: [{match: {kuma.io/service: web}}], destinations: [{match: {kuma.io/service: pay}}], conf: {http: {requests: 5, interval: 1s}}}
`
	const route = "---\n{type: MeshHTTPRoute, name: r, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: " +
		"MeshService, name: pay}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {}}]}]}}\n"
	limits := func(doc string) map[string]string {
		all, err := kindtest.Generator(t, []byte(doc), "web-1")().JSON()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for name, body := range all["type.googleapis.com/envoy.config.listener.v3.Listener"] {
			var l struct {
				FilterChains []struct {
					Filters []struct{ TypedConfig struct{ RouteConfig routes } }
				}
			}
			if err := json.Unmarshal(body, &l); err != nil {
				t.Fatal(err)
			}
			for _, r := range l.FilterChains[0].Filters[0].TypedConfig.RouteConfig.VirtualHosts[0].Routes {
				if r.TypedPerFilterConfig != nil {
					out[name] += " route"
				}
				for _, c := range r.Route.WeightedClusters.Clusters {
					if c.TypedPerFilterConfig != nil {
						service, _, _ := strings.Cut(c.Name, "-")
						out[name] += " " + service
					}
				}
			}
		}
		return out
	}
	const pay, orders = "outbound:127.0.0.1:1001", "outbound:127.0.0.1:1002"
	if got := limits(docs); len(got) != 2 || got[pay] != " route" || got[orders] != " pay" {
		t.Errorf("limits at %v", got)
	}
	if got := limits(docs + route); len(got) != 0 {
		t.Errorf("with a MeshHTTPRoute, which also supersedes TrafficRoutes: limits at %v", got)
	}
}
