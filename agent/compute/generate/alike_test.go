package generate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestAlikeProxies checks that proxies with the same outbounds share their load assignments after
// every change, and that each config equals a newly generated one.
func TestAlikeProxies(t *testing.T) {
	t.Parallel()
	const services, proxies = 100, 4
	text := func(mesh string, moved, more int, rest string) string {
		var b strings.Builder
		b.WriteString(mesh)
		for i := range services + more {
			host := i%200 + 1
			if i < moved {
				host += 30
			}
			fmt.Fprintf(&b, "---\n{type: Dataplane, mesh: default, name: svc-%d, networking: {address: 10.1.0.%d, inbound: "+
				"[{port: 80, tags: {kuma.io/service: svc-%d, kuma.io/protocol: http, kuma.io/zone: z%d}}]}}\n", i, host, i, i%3)
		}
		for i := range proxies {
			fmt.Fprintf(&b, "---\n{type: Dataplane, mesh: default, name: web-%d, networking: {address: 10.0.0.%d, "+
				"inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}], outbound: [", i, i+1)
			for i := range services + 1 { // the last service has no endpoints at first
				fmt.Fprintf(&b, "{port: %d, tags: {kuma.io/service: svc-%d}}, ", 20000+i, i)
			}
			b.WriteString("]}}\n")
		}
		return b.String() + rest
	}
	const (
		plain   = "{type: Mesh, name: default}\n"
		local   = "{type: Mesh, name: default, routing: {localityAwareLoadBalancing: true}}\n"
		mtls    = "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}\n"
		timeout = "---\n{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, " +
			"to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: %ds}}]}}\n"
		route = "---\n{type: MeshHTTPRoute, mesh: default, name: h, spec: {targetRef: {kind: Mesh}, " +
			"to: [{targetRef: {kind: MeshService, name: svc-40}, rules: [{matches: [{path: {type: PathPrefix, value: /a}}], " +
			"default: {backendRefs: [{kind: MeshService, name: svc-44}]}}]}]}}\n"
		patch = "---\n{type: MeshProxyPatch, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, " +
			"default: {appendModifications: [{cluster: {operation: Add, value: '{name: added, connect_timeout: 1s, " +
			"type: STATIC}'}}]}}}\n"
	)
	steps := []string{
		text(plain, 0, 0, ""), text(plain, 3, 0, ""), text(plain, 5, 1, ""), text(plain, 7, 3, ""), text(plain, 9, 0, ""),
		text(local, 9, 1, ""), text(local, 11, 1, fmt.Sprintf(timeout, 1)),
		text(plain, 11, 1, fmt.Sprintf(timeout, 2)), text(plain, 12, 2, route), text(plain, 13, 1, route),
		text(mtls, 13, 1, patch), text(mtls, 14, 1, patch), text(plain, 14, 1, ""),
	}
	memo, prev := generate.NewMemo(), map[string]*generate.Proxy{}
	var m *generate.Mesh
	for step, text := range steps {
		m = meshOf(t, decoded(t, text), m)
		for i := range proxies {
			name := fmt.Sprintf("web-%d", (i+step)%proxies)
			prev[name] = asFromNothing(t, generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy}, prev[name], memo,
				fmt.Sprintf("step %d, %s", step, name))
		}
		for i := range proxies {
			first, this := prev["web-0"].Sealed.Resources[draft.RankEndpoint],
				prev[fmt.Sprintf("web-%d", i)].Sealed.Resources[draft.RankEndpoint]
			if len(first) < services || !draft.SameList(first, this) {
				t.Errorf("step %d: web-0 and web-%d do not share their load assignments, %d and %d", step, i, len(first), len(this))
			}
		}
	}
}
