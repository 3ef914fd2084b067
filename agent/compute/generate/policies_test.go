package generate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// pool has one spec of each policy kind. TARGET is replaced by the top-level targetRef, SERVICE by
// a destination.
var pool = []string{
	"MeshTimeout, spec: {targetRef: TARGET, to: [{targetRef: SERVICE, default: {connectionTimeout: 3s, " +
		"http: {requestTimeout: 9s}}}], from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1h}}]}",
	"MeshCircuitBreaker, spec: {targetRef: TARGET, to: [{targetRef: SERVICE, " +
		"default: {connectionLimits: {maxConnections: 7}}}]}",
	"MeshAccessLog, spec: {targetRef: TARGET, to: [{targetRef: SERVICE, default: {backends: [{type: File, " +
		"file: {path: /var/log/a.log}}]}}], from: [{targetRef: {kind: Mesh}, default: {backends: [{type: Tcp, " +
		"tcp: {address: '127.0.0.1:5000'}}]}}]}",
	"MeshTrafficPermission, spec: {targetRef: TARGET, from: [{targetRef: {kind: MeshSubset, tags: {version: v1}}, " +
		"default: {action: Allow}}]}",
	"MeshFaultInjection, spec: {targetRef: SIDECARS, from: [{targetRef: {kind: Mesh}, " +
		"default: {http: [{abort: {httpStatus: 503, percentage: 5}}]}}]}",
	"MeshHTTPRoute, spec: {targetRef: TARGET, to: [{targetRef: SVC, rules: [{matches: [{path: {type: PathPrefix, " +
		"value: /a}}], default: {backendRefs: [{kind: MeshService, name: svc-2, weight: 1}]}}]}]}",
	"MeshTCPRoute, spec: {targetRef: TARGET, to: [{targetRef: SVC, rules: [{default: {backendRefs: [{kind: MeshService, " +
		"name: svc-1, weight: 1}]}}]}]}",
	"MeshProxyPatch, spec: {targetRef: TARGET, default: {appendModifications: [{cluster: {operation: Add, " +
		"value: '{name: extra, connectTimeout: 5s, type: STATIC}'}}]}}",
	"MeshRetry, spec: {targetRef: TARGET, to: [{targetRef: SERVICE, default: {http: {numRetries: 3}}}]}",
	"MeshHealthCheck, spec: {targetRef: TARGET, to: [{targetRef: SERVICE, default: {interval: 10s, timeout: 2s, " +
		"unhealthyThreshold: 3, healthyThreshold: 1, tcp: {}}}]}",
	"MeshLoadBalancingStrategy, spec: {targetRef: TARGET, to: [{targetRef: SERVICE, " +
		"default: {loadBalancer: {type: Random}}}]}",
	"MeshRateLimit, spec: {targetRef: SIDECARS, from: [{targetRef: {kind: Mesh}, " +
		"default: {local: {http: {requestRate: {num: 5, interval: 10s}}}}}]}",
}

// pooled returns policy i of the pool with the given name.
func pooled(name string, i int, target, service string) string {
	kind, spec, _ := strings.Cut(pool[i], ",")
	named := service
	if !strings.Contains(named, "name") {
		named = "{kind: MeshService, name: svc-1}" // routes must name a service
	}
	sidecars := target
	if strings.Contains(target, "kind: Mesh}") || strings.Contains(target, "kind: MeshSubset") {
		sidecars = strings.TrimSuffix(target, "}") + ", proxyTypes: [Sidecar]}"
	}
	spec = strings.NewReplacer("TARGET", target, "SIDECARS", sidecars, "SERVICE", service, "SVC", named).Replace(spec)
	return fmt.Sprintf("{type: %s, mesh: default, name: %s, %s}\n---\n", kind, name, strings.TrimSpace(spec))
}

func decoded(t testing.TB, doc string) []*resource.Resource {
	t.Helper()
	rs, faults := kinds.Registry().Decode("test", []byte(doc))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return rs
}

func meshOf(t testing.TB, rs []*resource.Resource, prev *generate.Mesh) *generate.Mesh {
	t.Helper()
	m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, prev)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func proxyOf(t testing.TB, m *generate.Mesh, name string, prev *generate.Proxy, memo *generate.Memo) *generate.Proxy {
	t.Helper()
	p, err := generate.Generate(generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy}, prev, memo)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSameBytes generates a config with every kind of policy 1,000 times, and checks that the order
// of the resources does not change the bytes.
func TestSameBytes(t *testing.T) {
	var doc strings.Builder
	for i := range pool {
		for j, target := range []string{
			"{kind: Mesh}", "{kind: MeshSubset, tags: {kuma.io/protocol: http}}", "{kind: MeshService, name: web}",
		} {
			for k, service := range []string{"{kind: Mesh}", "{kind: MeshService, name: svc-1}"} {
				doc.WriteString(pooled(fmt.Sprintf("p%d-%d-%d", i, j, k), i, target, service))
			}
		}
	}
	rs := slices.Concat(bigMesh(3, 0), decoded(t, doc.String()))
	want := proxyOf(t, meshOf(t, rs, nil), "web", nil, nil)
	n := 1000
	if testing.Short() {
		n = 50
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		random.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
		if got := proxyOf(t, meshOf(t, rs, nil), "web", nil, nil); got.Sealed.Versions != want.Sealed.Versions {
			t.Fatalf("generation %d gives other bytes", i)
		}
	}
}

// TestUnselected checks that policies that do not select a proxy do not change its config, and that
// it is reused.
func TestUnselected(t *testing.T) {
	base := bigMesh(3, 0)
	rapid.Check(t, func(r *rapid.T) {
		own := decoded(t, pooled("own", rapid.IntRange(0, len(pool)-1).Draw(r, "own"), "{kind: Mesh}", "{kind: Mesh}"))
		memo := generate.NewMemo()
		m := meshOf(t, slices.Concat(base, own), nil)
		before := proxyOf(t, m, "web", nil, memo)
		var doc strings.Builder
		targets := []string{"{kind: MeshService, name: svc-1}", "{kind: MeshSubset, tags: {version: v1}}",
			"{kind: Dataplane, name: svc-0-0}", "{kind: MeshService, name: nobody}"}
		for i := range rapid.IntRange(1, 5).Draw(r, "others") {
			doc.WriteString(pooled(fmt.Sprintf("other-%d", i), rapid.IntRange(0, len(pool)-1).Draw(r, "kind"),
				rapid.SampledFrom(targets).Draw(r, "target"), "{kind: MeshService, name: svc-1}"))
		}
		m = meshOf(t, slices.Concat(base, own, decoded(t, doc.String())), m)
		if after := proxyOf(t, m, "web", before, memo); after.Sealed != before.Sealed {
			r.Fatalf("web is made anew for\n%s", doc.String())
		}
		if fresh := proxyOf(t, m, "web", nil, nil); fresh.Sealed.Versions != before.Sealed.Versions {
			r.Fatalf("the bytes of web change for\n%s", doc.String())
		}
	})
}

// TestReuseWithPolicies changes policies, services, and endpoints at random, and checks that the
// incremental config equals a newly generated one.
func TestReuseWithPolicies(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		memo := generate.NewMemo()
		var m *generate.Mesh
		var last *generate.Proxy
		for range rapid.IntRange(2, 5).Draw(r, "steps") {
			rs := bigMesh(rapid.IntRange(2, 4).Draw(r, "services"), 0)
			var doc strings.Builder
			for i := range rapid.IntRange(0, 4).Draw(r, "policies") {
				doc.WriteString(pooled(fmt.Sprintf("p-%d", i), rapid.IntRange(0, len(pool)-1).Draw(r, "kind"),
					rapid.SampledFrom([]string{"{kind: Mesh}", "{kind: MeshService, name: web}", "{kind: MeshService, name: svc-1}"}).
						Draw(r, "target"),
					rapid.SampledFrom([]string{"{kind: Mesh}", "{kind: MeshService, name: svc-1}",
						"{kind: MeshService, name: svc-3}"}).Draw(r, "service")))
			}
			rs = slices.Concat(rs, decoded(t, doc.String()))
			if rapid.Bool().Draw(r, "moved") { // an endpoint gets a new address
				for i, x := range rs {
					if x.Name == "svc-1-0" {
						moved := *x
						spec := *x.Spec.(*resource.Dataplane)
						spec.Networking.Address = "10.200.0.1"
						moved.Spec, moved.Digest = &spec, resource.Digest{200}
						rs[i] = &moved
					}
				}
			}
			m = meshOf(t, rs, m)
			last = proxyOf(t, m, "web", last, memo)
			fresh := proxyOf(t, meshOf(t, rs, nil), "web", nil, nil)
			if last.Sealed.Versions != fresh.Sealed.Versions {
				a, _ := last.JSON()
				b, _ := fresh.JSON()
				r.Fatalf("%s\n%s", doc.String(), cmp.Diff(b, a))
			}
		}
	})
}

// TestEditConcernsThree checks that an edit of a policy that selects 3 of 50 proxies regenerates
// only these 3.
func TestEditConcernsThree(t *testing.T) {
	rs := bigMesh(20, 49)
	for i, x := range rs {
		if n := x.Name; n == "web-7" || n == "web-8" || n == "web-9" {
			labelled := *x
			labelled.Labels = map[string]string{"team": "front"}
			rs[i] = &labelled
		}
	}
	memo := generate.NewMemo()
	edit := func(timeout string) []*resource.Resource {
		return slices.Concat(rs, policies(t, 5), decoded(t, "{type: MeshTimeout, name: front, spec: {targetRef: {kind: "+
			"Dataplane, labels: {team: front}}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: "+timeout+"}}]}}"))
	}
	m := meshOf(t, edit("3s"), nil)
	proxies := map[string]*generate.Proxy{}
	for _, d := range m.View.Dataplanes() {
		if strings.HasPrefix(d.Name, "web") {
			proxies[d.Name] = proxyOf(t, m, d.Name, nil, memo)
		}
	}
	if len(proxies) != 50 {
		t.Fatalf("%d proxies", len(proxies))
	}
	m = meshOf(t, edit("4s"), m)
	var regenerated []string
	for name, p := range proxies {
		if next := proxyOf(t, m, name, p, memo); next != p {
			regenerated = append(regenerated, name)
		}
	}
	slices.Sort(regenerated)
	if diff := cmp.Diff([]string{"web-7", "web-8", "web-9"}, regenerated); diff != "" {
		t.Error(diff)
	}
}
