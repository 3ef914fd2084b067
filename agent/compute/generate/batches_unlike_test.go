package generate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestBatchesOfUnlikeProxies checks that proxies of one mesh that differ in tags, address family,
// permissions, and legacy policies have the same configs as newly generated ones, in any order.
func TestBatchesOfUnlikeProxies(t *testing.T) {
	t.Parallel()
	proxies := []struct{ name, address, tags string }{
		{"web-4", "10.0.0.1", "kuma.io/service: web"},
		{"web-6", "fd00::1", "kuma.io/service: web"},
		{"web-v2", "10.0.0.3", "kuma.io/service: web, version: v2"},
		{"api", "10.0.0.4", "kuma.io/service: api, a-tag-with-a-longer-name: and-a-value"},
		{"long", "10.0.0.5", "kuma.io/service: api, long: " + strings.Repeat("x", 60)},
	}
	const services = 120
	var base strings.Builder
	for i := range services {
		protocol := []string{"http", "tcp", "grpc", "http2"}[i%4]
		if i%6 == 5 {
			fmt.Fprintf(&base, "---\n{type: ExternalService, mesh: default, name: svc-%d, tags: {kuma.io/service: svc-%d, "+
				"kuma.io/protocol: %s}, networking: {address: host-%d.example.com:80}}\n", i, i, protocol, i)
			continue
		}
		fmt.Fprintf(&base, "---\n{type: Dataplane, mesh: default, name: svc-%d, networking: {address: 10.1.0.%d, "+
			"inbound: [{port: 80, tags: {kuma.io/service: svc-%d, kuma.io/protocol: %s}}]}}\n", i, i, i, protocol)
	}
	for _, p := range proxies {
		fmt.Fprintf(&base, "---\n{type: Dataplane, mesh: default, name: %s, networking: {address: %q, inbound: [{port: 80, "+
			"tags: {%s, kuma.io/protocol: http}}], outbound: [", p.name, p.address, p.tags)
		for i := range services {
			fmt.Fprintf(&base, "{port: %d, tags: {kuma.io/service: svc-%d}}, ", 20000+i, i)
		}
		base.WriteString("]}}\n")
	}
	const (
		plain   = "{type: Mesh, name: default}\n"
		mtls    = "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}\n"
		timeout = "---\n{type: Timeout, mesh: default, name: %s, sources: [{match: {kuma.io/service: %s}}, " +
			"{match: {kuma.io/service: '*'}}], destinations: [{match: {kuma.io/service: '*'}}], conf: {connectTimeout: %ds}}\n"
		route = "---\n{type: TrafficRoute, mesh: default, name: r, sources: [{match: {kuma.io/service: %s}}], " +
			"destinations: [{match: {kuma.io/service: '*'}}], conf: {destination: {kuma.io/service: svc-0}}}\n"
		permit = "---\n{type: TrafficPermission, mesh: default, name: p, sources: [{match: {kuma.io/service: web}}], " +
			"destinations: [{match: {kuma.io/service: '*'}}]}\n"
		header = "---\n{type: MeshHTTPRoute, mesh: default, name: h, spec: {targetRef: {kind: Mesh}, " +
			"to: [{targetRef: {kind: MeshService, name: svc-40}, rules: [{matches: [{path: {type: PathPrefix, value: /a}}], " +
			"default: {backendRefs: [{kind: MeshService, name: svc-44}]}}]}]}}\n"
		probe = "---\n{type: MeshHealthCheck, mesh: default, name: c, spec: {targetRef: {kind: Mesh}, " +
			"to: [{targetRef: {kind: Mesh}, default: {http: {path: /ready}}}]}}\n"
		logs = "---\n{type: MeshAccessLog, mesh: default, name: l, spec: {targetRef: {kind: Mesh}, to: [{targetRef: " +
			"{kind: MeshService, name: svc-60}, default: {backends: [{type: File, file: {path: /tmp/l.log}}]}}]}}\n"
	)
	timeouts := fmt.Sprintf(timeout, "t-web", "web", 1) + fmt.Sprintf(timeout, "t-api", "api", 2)
	steps := []string{
		plain, plain + timeouts, plain + fmt.Sprintf(route, "nobody"), plain + fmt.Sprintf(route, "web"), plain + header,
		plain + probe + logs, mtls, mtls + permit, mtls + permit + header + timeouts,
	}
	memo, prev := generate.NewMemo(), map[string]*generate.Proxy{}
	var m *generate.Mesh
	for round := range 2 {
		for step, add := range steps {
			mesh, rest, _ := strings.Cut(add, "\n")
			m = meshOf(t, decoded(t, mesh+"\n"+base.String()+rest), m)
			for i := range proxies {
				name := proxies[(i+step+round)%len(proxies)].name
				in := generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy}
				prev[name] = asFromNothing(t, in, prev[name], memo, fmt.Sprintf("round %d, step %d, %s", round, step, name))
			}
		}
	}
}
