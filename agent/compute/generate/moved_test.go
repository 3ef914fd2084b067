package generate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestOwnAddressesShare checks that proxies with the same services at other addresses share their
// clusters and store only the differences of their listeners and routes, after every change, and
// that each config equals a newly generated one.
func TestOwnAddressesShare(t *testing.T) {
	t.Parallel()
	const services = 120
	at := []string{"127.0.0.1", "127.0.100.20", "'fd00::10:0:0:1'", "10.1.1.1"}
	text := func(rest string) string {
		var b strings.Builder
		b.WriteString("{type: Mesh, name: default}\n")
		for i := range services {
			fmt.Fprintf(&b, "---\n{type: Dataplane, mesh: default, name: svc-%d, networking: {address: 10.1.0.%d, inbound: "+
				"[{port: 80, tags: {kuma.io/service: svc-%d, kuma.io/protocol: %s}}]}}\n", i, i+1, i,
				[]string{"http", "tcp", "grpc"}[i%3])
		}
		for i, address := range at {
			fmt.Fprintf(&b, "---\n{type: Dataplane, mesh: default, name: web-%d, networking: {address: 10.0.0.%d, "+
				"inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http, own: t%d}}], outbound: [", i, i+1, i)
			for k := range services {
				fmt.Fprintf(&b, "{address: %s, port: %d, tags: {kuma.io/service: svc-%d}}, ", address, 100+i*7000+k, k)
			}
			b.WriteString("]}}\n")
		}
		return b.String() + rest
	}
	timeout := "---\n{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, " +
		"to: [{targetRef: {kind: Mesh}, default: {idleTimeout: %ds, http: {requestTimeout: %ds}}}]}}\n"
	memo, prev := generate.NewMemo(), map[string]*generate.Proxy{}
	var m *generate.Mesh
	for step, rest := range []string{"", fmt.Sprintf(timeout, 10, 5), fmt.Sprintf(timeout, 11, 5),
		fmt.Sprintf(timeout, 11, 6), ""} {
		m = meshOf(t, decoded(t, text(rest)), m)
		for i := range at {
			name := fmt.Sprintf("web-%d", (i+step)%len(at))
			prev[name] = asFromNothing(t, generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy}, prev[name], memo,
				fmt.Sprintf("step %d, %s", step, name))
		}
		own := 0 // resources that a proxy stores whole
		for i := range at {
			r := prev[fmt.Sprintf("web-%d", i)].Sealed.Resources
			for k, c := range r[draft.RankCluster] {
				if first := prev["web-0"].Sealed.Resources[draft.RankCluster][k]; c != first && strings.HasPrefix(c.Name, "svc-") {
					t.Fatalf("step %d: web-0 and web-%d do not share cluster %s", step, i, c.Name)
				}
			}
			for _, rank := range []int{draft.RankListener, draft.RankRoute} {
				for _, r := range r[rank] {
					if !r.IsPacked() && r.Len() > 400 {
						own++
					}
				}
			}
		}
		// The first proxy stores all of its listeners and routes, and each proxy those of its first part.
		if most := 2*services + len(at)*50; own > most {
			t.Errorf("step %d: %d listeners and routes are stored whole, at most %d expected", step, own, most)
		}
	}
}
