package attribute_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/answer/attribute"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

const linesMesh = `
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: s0, networking: {address: 10.1.0.1, inbound: [{port: 8080, tags: {kuma.io/service: svc-0, kuma.io/protocol: http}}]}}
---
{type: Dataplane, mesh: default, name: s1, networking: {address: 10.1.0.2, inbound: [{port: 8080, tags: {kuma.io/service: svc-1, kuma.io/protocol: http}}]}}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 10.9.0.1, inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}],
  outbound: [{port: 20000, tags: {kuma.io/service: svc-0}}, {port: 20001, tags: {kuma.io/service: svc-1}}]}}
---
{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, to: [
  {targetRef: {kind: MeshService, name: svc-0}, default: {connectionTimeout: 3s, http: {requestTimeout: 7s}}},
  {targetRef: {kind: MeshService, name: svc-1}, default: {connectionTimeout: 4s}}]}}
---
{type: MeshCircuitBreaker, mesh: default, name: c, spec: {targetRef: {kind: MeshService, name: web}, to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 7}}}]}}
`

func linesOf(t *testing.T, docs string, spent func(int) bool) *attribute.LinesResult {
	t.Helper()
	m, _ := fixture(t, docs)
	got, err := attribute.Lines(m, generate.ProxyID{Mesh: "default", Name: "web", Flavor: node.FlavorEnvoy},
		kinds.Registry().DecodeOne, spent)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestLines checks the policy and the innermost field behind values of clusters and routes.
func TestLines(t *testing.T) {
	result := linesOf(t, linesMesh, func(int) bool { return false })
	if result.Incomplete {
		t.Error("incomplete without a limit")
	}
	got := map[string]string{}
	for _, l := range result.Lines {
		var by []string
		for _, s := range l.By {
			by = append(by, fmt.Sprintf("%s/%s %s", s.Policy.Kind, s.Policy.Name, s.Field))
		}
		got[l.TypeURL[strings.LastIndexByte(l.TypeURL, '.')+1:]+" "+l.Name+" "+l.Path] = strings.Join(by, ", ")
	}
	for at, want := range map[string]string{
		"Cluster svc-0 connectTimeout": "MeshTimeout/t spec.to[0].default.connectionTimeout",
		"Cluster svc-1 connectTimeout": "MeshTimeout/t spec.to[1].default",
		"RouteConfiguration outbound:127.0.0.1:20000 virtualHosts[svc-0].routes[default].route.timeout": "MeshTimeout/t " +
			"spec.to[0].default.http",
	} {
		if diff := cmp.Diff(want, got[at]); diff != "" {
			t.Errorf("%s:\n%s\nall: %v", at, diff, got)
		}
	}
	breakers := 0
	for at, by := range got {
		if strings.HasPrefix(at, "Cluster svc-") &&
			strings.Contains(by, "MeshCircuitBreaker/c spec.to[0].default.connectionLimits") {
			breakers++
		}
	}
	if breakers < 2 {
		t.Errorf("the circuit breaker is behind %d lines, want one in each of the two clusters: %v", breakers, got)
	}
}

// TestLinesLimit checks that the search stops at its limit of work, and says so.
func TestLinesLimit(t *testing.T) {
	trials := 0
	result := linesOf(t, linesMesh, func(n int) bool {
		trials = n
		return n >= 3
	})
	if !result.Incomplete || trials > 3 {
		t.Errorf("incomplete %t after %d trials, want true and at most 3", result.Incomplete, trials)
	}
}
