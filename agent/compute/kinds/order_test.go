package kinds_test

import (
	"encoding/json"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// TestPermissionsBeforeLimits checks that denied connections are not counted.
func TestPermissionsBeforeLimits(t *testing.T) {
	const docs = `
{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}
---
{type: Dataplane, name: db-1, networking: {address: 10.0.0.1, inbound: [{port: 5432, tags: {kuma.io/service: db, kuma.io/protocol: tcp}}]}}
---
{type: MeshTrafficPermission, name: p, spec: {from: [{targetRef: {kind: MeshService, name: web}, default: {action: Allow}}]}}
---
{type: MeshRateLimit, name: l, spec: {targetRef: {kind: Mesh, proxyTypes: [Sidecar]}, from: [{targetRef: {kind: Mesh}, default: {local: {tcp: {connectionRate: {num: 5, interval: 1s}}}}}]}}
`
	config, err := kindtest.Generator(t, []byte(docs), "db-1")().JSON()
	if err != nil {
		t.Fatal(err)
	}
	var l struct {
		FilterChains []struct{ Filters []struct{ Name string } }
	}
	if err := json.Unmarshal(config["type.googleapis.com/envoy.config.listener.v3.Listener"]["inbound:10.0.0.1:5432"],
		&l); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range l.FilterChains[0].Filters {
		names = append(names, f.Name)
	}
	if len(names) != 3 || names[0] != "envoy.filters.network.rbac" ||
		names[1] != "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit" {
		t.Errorf("got filters %q", names)
	}
}

// TestConnectionsAndHTTPDestinations checks that the HTTP rules of a TrafficRoute do not apply to
// connections of a TCP service.
func TestConnectionsAndHTTPDestinations(t *testing.T) {
	const docs = `
{type: Mesh, name: default}
---
{type: Dataplane, name: web-1, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 1001, tags: {kuma.io/service: db}}]}}
---
{type: Dataplane, name: db-1, networking: {address: 10.0.0.2, inbound: [{port: 5432, tags: {kuma.io/service: db, kuma.io/protocol: tcp}}]}}
---
{type: Dataplane, name: spare-1, networking: {address: 10.0.0.3, inbound: [{port: 5432, tags: {kuma.io/service: spare, kuma.io/protocol: tcp}}]}}
---
{type: TrafficRoute, name: all, sources: [{match: {kuma.io/service: "*"}}], destinations: [{match: {kuma.io/service: "*"}}],
  conf: {http: [{match: {path: {prefix: /}}, destination: {kuma.io/service: spare}}], destination: {kuma.io/service: "*"}}}
`
	config, err := kindtest.Generator(t, []byte(docs), "web-1")().JSON()
	if err != nil {
		t.Fatal(err)
	}
	var l struct {
		FilterChains []struct {
			Filters []struct{ TypedConfig struct{ Cluster string } }
		}
	}
	if err := json.Unmarshal(config["type.googleapis.com/envoy.config.listener.v3.Listener"]["outbound:127.0.0.1:1001"],
		&l); err != nil {
		t.Fatal(err)
	}
	if got := l.FilterChains[0].Filters[0].TypedConfig.Cluster; got != "db" {
		t.Errorf("connections lead to %q", got)
	}
}
