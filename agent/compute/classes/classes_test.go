package classes_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/classes"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// pick returns a random element.
func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

// randomMesh returns dataplanes, services, and policies that select them in all ways.
func randomMesh(r *rand.Rand) string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, "---\n"+format+"\n", args...) }
	b.WriteString("{type: Mesh, name: default}\n")
	tags := func() string {
		return fmt.Sprintf("{kuma.io/service: s%d, kuma.io/protocol: http%s%s}", r.IntN(4),
			pick(r, "", ", version: v1", ", version: v2"), pick(r, "", "", ", kuma.io/zone: east", ", env: x"))
	}
	labels := func() string { return pick(r, "{}", "{team: a}", "{team: b, app: c}", "{k8s.kuma.io/namespace: ns}") }
	for i := range 24 {
		rest := fmt.Sprintf("inbound: [{port: 80, name: %s, tags: %s}, {port: 8%d, state: %s, tags: %s}]",
			pick(r, "main", "other"), tags(), 1+r.IntN(2), pick(r, "Ready", "Ignored"), tags())
		switch r.IntN(8) {
		case 0:
			rest = "gateway: {type: DELEGATED, tags: {kuma.io/service: gw, version: v1}}"
		case 1:
			rest = "inbound: [{port: 80, state: Ignored, tags: {kuma.io/service: s1}}]"
		}
		add("{type: Dataplane, mesh: default, name: d%d, labels: %s, networking: {address: 10.0.0.%d, %s}}",
			i, labels(), i+1, rest)
	}
	for i := range 3 {
		add("{type: MeshService, mesh: default, name: m%d, spec: {selector: {%s}, ports: [{port: 80, name: main, "+
			"targetPort: %s, appProtocol: http}]}}", i, pick(r, "dataplaneTags: {version: v1}",
			"dataplaneTags: {kuma.io/service: s1, kuma.io/zone: default}",
			"dataplaneLabels: {matchLabels: {team: a}}", "dataplaneRef: {name: d1}"), pick(r, "80", "81", "main"))
	}
	service := func() string { return pick(r, "s0", "s1", "m0", "m1", "m2") }
	target := func() string {
		return pick(r, "{kind: Mesh}", "{kind: Mesh, proxyTypes: [Gateway]}", "{kind: MeshSubset, tags: {version: v1}}",
			"{kind: MeshSubset, tags: {kuma.io/zone: default}}", "{kind: MeshSubset, tags: {env: '*'}}",
			"{kind: MeshService, name: "+service()+"}", "{kind: MeshService, name: m1, sectionName: main}",
			"{kind: MeshServiceSubset, name: s2, tags: {version: v2}}", "{kind: Dataplane, name: d3}",
			"{kind: Dataplane, labels: {team: a}}", "{kind: Dataplane, labels: {kuma.io/zone: default}, sectionName: main}",
			"{kind: Dataplane, sectionName: '81'}", "{kind: MeshHTTPRoute, name: r0}")
	}
	for i := range 2 {
		add("{type: MeshHTTPRoute, mesh: default, name: r%d, spec: {targetRef: %s, to: [{targetRef: {kind: MeshService, "+
			"name: %s}, rules: [{matches: [{path: {type: PathPrefix, value: /a}}], default: {}}]}]}}", i,
			pick(r, "{kind: Mesh}", "{kind: MeshSubset, tags: {version: v1}}", "{kind: MeshService, name: s1}"), service())
	}
	for i := range 8 {
		add("{type: MeshTimeout, mesh: default, name: t%d, labels: {%s}, spec: {targetRef: %s, %s}}", i,
			pick(r, "", "", "kuma.io/policy-role: workload-owner, k8s.kuma.io/namespace: ns"), target(), pick(r,
				"to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 1s}}}]",
				"from: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 2s}}}]",
				"to: [{targetRef: {kind: MeshService, name: s1}, default: {http: {requestTimeout: 3s}}}]"))
	}
	for i := range 2 {
		add("{type: MeshRateLimit, mesh: default, name: l%d, spec: {targetRef: %s, from: [{targetRef: {kind: Mesh}, "+
			"default: {local: {http: {requestRate: {num: 5, interval: 10s}}}}}]}}", i, target())
	}
	for i := range r.IntN(3) {
		add("{type: TrafficPermission, mesh: default, name: p%d, sources: [{match: {kuma.io/service: %s}}], "+
			"destinations: [{match: {kuma.io/service: '*', version: %s}}]}", i, pick(r, "s0", "'*'"), pick(r, "v1", "'*'"))
		add("{type: HealthCheck, mesh: default, name: h%d, sources: [{match: {kuma.io/service: %s, env: x}}], "+
			"destinations: [{match: {kuma.io/service: s1}}], conf: {interval: 1s, timeout: 1s, healthyThreshold: 1, "+
			"unhealthyThreshold: 1, tcp: {}}}", i, pick(r, "s0", "'*'"))
	}
	return b.String()
}

// TestMatch checks that a table returns for each dataplane what the index returns.
func TestMatch(t *testing.T) {
	shared, registry := 0, kinds.Registry()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		text := randomMesh(r)
		rs, faults := registry.Decode("random", []byte(text))
		if len(rs) < 30 { // some policies may not have this targetRef
			t.Fatalf("seed %d: %v\n%s", seed, faults, text)
		}
		set := resource.NewSet(rs)
		v, err := mesh.Build(set, "default", mesh.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		known := map[[32]byte]*policy.KindRules{} // shared by both indexes
		for _, without := range []string{"", "t1", "r0"} {
			instead := map[resource.Key]*resource.Resource{}
			for _, kind := range []string{"MeshTimeout", "MeshHTTPRoute"} {
				instead[resource.Key{Kind: kind, Mesh: "default", Name: without}] = nil
			}
			x := policy.NewIndex(kinds.Plugins(), set, v, policy.Options{Instead: instead})
			table := classes.New(x)
			distinct := map[*policy.Match]bool{}
			for _, d := range v.Dataplanes() {
				want, got := x.Match(d), table.Match(d)
				got.Share(known)
				if want.Fingerprint != got.Fingerprint || !reflect.DeepEqual(want.Rules(), got.Rules()) {
					t.Fatalf("seed %d: %s has other policies: got %v, want %v\n%s", seed, d.Name, names(got), names(want), text)
				}
				distinct[got] = true
			}
			shared += len(v.Dataplanes()) - len(distinct)
		}
	}
	if shared < 200 {
		t.Errorf("%d dataplanes share policies with another one, want at least 200", shared)
	}
}

func names(m *policy.Match) (out []string) {
	for _, r := range m.Policies() {
		out = append(out, r.Name)
	}
	return out
}
