package generate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestBatchesMakeNoDifference changes outbounds, policies, endpoints, certificates, and Envoy
// versions at random. It checks that a config that reuses parts of earlier configs and of other
// proxies has the same bytes, warnings, and pipes as a newly generated one.
func TestBatchesMakeNoDifference(t *testing.T) {
	const services, steps = 30, 40
	for seed := range uint64(2) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		outbound := map[string][]int{} // services of the outbounds by proxy
		for _, name := range []string{"web-a", "web-b", "api"} {
			for i := range 160 + rnd.IntN(40) {
				outbound[name] = append(outbound[name], i%services)
			}
		}
		policies, address, mtls := map[int]string{}, 1, seed%2 == 1
		document := func() string {
			var b strings.Builder
			b.WriteString("{type: Mesh, name: default")
			if mtls {
				b.WriteString(", mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, mode: PERMISSIVE}]}")
			}
			b.WriteString("}\n---\n")
			for i := range services {
				fmt.Fprintf(&b, "{type: Dataplane, mesh: default, name: svc-%d, networking: {address: 10.1.%d.%d, "+
					"inbound: [{port: 80, tags: {kuma.io/service: svc-%d, kuma.io/protocol: %s}}]}}\n---\n",
					i, address*(i%2), i, i, []string{"http", "tcp", "grpc"}[i%3])
			}
			for i, name := range []string{"web-a", "web-b", "api"} {
				service, _, _ := strings.Cut(name, "-")
				fmt.Fprintf(&b, "{type: Dataplane, mesh: default, name: %s, networking: {address: 10.0.0.%d, inbound: [{port: "+
					"80, tags: {kuma.io/service: %s, kuma.io/protocol: http, version: v1}}], outbound: [", name, i+1, service)
				for k, s := range outbound[name] {
					at := []string{"127.0.0.1", "127.10.200.30", "'fd00::1:2'"}[i]
					fmt.Fprintf(&b, "{address: %s, port: %d, tags: {kuma.io/service: svc-%d}}, ", at, 20000*i+90+k, s)
				}
				b.WriteString("]}}\n---\n")
			}
			for _, i := range slices.Sorted(func(yield func(int) bool) {
				for i := range policies {
					if !yield(i) {
						return
					}
				}
			}) {
				b.WriteString(policies[i])
			}
			return strings.TrimSuffix(strings.TrimSpace(b.String()), "---")
		}
		memo, prev := generate.NewMemo(), map[string]*generate.Proxy{}
		var m *generate.Mesh
		build := &finding.Build{Version: finding.Version{Major: 1, Minor: 36}}
		for step := range steps {
			switch name := []string{"web-a", "web-b", "api"}[rnd.IntN(3)]; rnd.IntN(9) {
			case 0, 1, 2:
				outbound[name][rnd.IntN(len(outbound[name]))] = rnd.IntN(services + 1) // the last service has no endpoints
			case 3:
				at := rnd.IntN(len(outbound[name]))
				outbound[name] = slices.Delete(outbound[name], at, at+1)
			case 4:
				outbound[name] = slices.Insert(outbound[name], rnd.IntN(len(outbound[name])), rnd.IntN(services))
			case 5:
				i := rnd.IntN(len(pool))
				if policies[i] != "" {
					delete(policies, i)
				} else {
					target := []string{"{kind: Mesh}", "{kind: MeshSubset, tags: {kuma.io/service: web}}",
						"{kind: Dataplane, name: web-b}"}[rnd.IntN(3)]
					policies[i] = pooled(fmt.Sprintf("p-%d", i), i, target,
						[]string{"{kind: Mesh}", "{kind: MeshService, name: svc-4}"}[rnd.IntN(2)])
				}
			case 6:
				address++
			case 7:
				outbound[name] = slices.Clone(outbound["web-a"])
			case 8:
				build = &finding.Build{Version: finding.Version{Major: 1, Minor: 35 + uint32(rnd.IntN(4))}}
			}
			m = meshOf(t, decoded(t, document()), m)
			for _, name := range []string{"web-a", "web-b", "api"} {
				in := generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy, Build: build}
				got := asFromNothing(t, in, prev[name], memo, fmt.Sprintf("seed %d, step %d, %s", seed, step, name))
				if t.Failed() {
					t.Fatal(document())
				}
				prev[name] = got
			}
		}
	}
}

// asFromNothing generates a proxy's config with the previous config and the memo, and checks that
// it equals a newly generated one.
func asFromNothing(t *testing.T, in generate.Input, prev *generate.Proxy, memo *generate.Memo,
	what string) *generate.Proxy {
	t.Helper()
	want, err := generate.Generate(in, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := generate.Generate(in, prev, memo)
	if err != nil {
		t.Fatal(err)
	}
	for rank, typeURL := range draft.Types {
		if got.Sealed.Versions[rank] != want.Sealed.Versions[rank] {
			t.Errorf("%s: %s differs", what, typeURL)
		}
	}
	if diff := cmp.Diff(want.Warnings, got.Warnings); diff != "" {
		t.Errorf("%s: warnings: %s", what, diff)
	}
	if !draft.SamePipes(got.Sealed.Pipes, want.Sealed.Pipes) {
		t.Errorf("%s: pipes differ", what)
	}
	return got
}

// BenchmarkAlike measures generating proxies that differ only in their addresses, in a mesh of 1000
// services: one more proxy, and a proxy after a change of one outbound.
func BenchmarkAlike(b *testing.B) {
	rs := bigMesh(1000, 1)
	m := meshOf(b, rs, nil)
	in := func(m *generate.Mesh, name string) generate.Input {
		return generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy}
	}
	memo := generate.NewMemo()
	web, err := generate.Generate(in(m, "web"), nil, memo)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("one-more", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := generate.Generate(in(m, "web-1"), nil, memo); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("one-outbound", func(b *testing.B) {
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			i := slices.IndexFunc(rs, func(r *resource.Resource) bool { return r.Name == "web" })
			r, dp := *rs[i], *rs[i].Spec.(*resource.Dataplane)
			dp.Networking.Outbound = slices.Clone(dp.Networking.Outbound)
			dp.Networking.Outbound[500].Tags = map[string]string{"kuma.io/service": fmt.Sprintf("svc-%d", n%2)}
			r.Spec, r.Digest = &dp, resource.Digest{byte(n), byte(n >> 8), byte(n >> 16), 2}
			next := slices.Clone(rs)
			next[i] = &r
			b.StopTimer()
			m = meshOf(b, next, m)
			b.StartTimer()
			if web, err = generate.Generate(in(m, "web"), web, memo); err != nil {
				b.Fatal(err)
			}
		}
	})
}
