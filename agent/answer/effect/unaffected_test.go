package effect_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestOnlySelected checks that a proxy that a policy does not select costs no generated config,
// and that the answers equal a comparison of generated configs.
func TestOnlySelected(t *testing.T) {
	rs := bigMesh(t, 8, timeoutDoc,
		"{type: MeshTimeout, mesh: default, name: some, spec: {targetRef: {kind: MeshService, name: web}, "+
			"to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 8s}}}]}}",
		"{type: TrafficRoute, mesh: default, name: r, sources: [{match: {kuma.io/service: '*'}}], "+
			"destinations: [{match: {kuma.io/service: svc-2}}], conf: {destination: {kuma.io/service: svc-5}}}",
		"{type: MeshHTTPRoute, mesh: default, name: route, spec: {targetRef: {kind: MeshService, name: svc-0}, "+
			"to: [{targetRef: {kind: MeshService, name: svc-1}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], "+
			"default: {}}]}]}}")
	m := meshOf(t, rs, "default")
	x := effect.New(m, options())
	for _, r := range rs {
		if r.Kind == "Mesh" || r.Kind == "Dataplane" {
			continue
		}
		for _, d := range m.View.Dataplanes() {
			id := generate.ProxyID{Mesh: "default", Name: d.Name, Flavor: node.FlavorEnvoy}
			with, err := id.In(m, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			without, err := id.In(m.Without(r.Key), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			v := x.On(r, d.Name)
			if want := len(generate.Difference(without, with)) > 0; v.InForce() != want {
				t.Errorf("%s on %s: in force %t, want %t", r.Key, d.Name, v.InForce(), want)
			}
		}
	}
	o := options()
	o.Trials = 3 // the config with and without the policy, and one to spare
	if v := effect.New(m, o).InMesh(find(t, rs, "MeshTimeout", "some"), nil); !v.InForce() || v.Dataplane != "web" {
		t.Errorf("some: %+v", v)
	}
}

// TestHeldByStale checks that the reason of a stale config is the reason why the Envoy lacks a
// change.
func TestHeldByStale(t *testing.T) {
	old := meshOf(t, bigMesh(t, 1), "default")
	o := options()
	o.Published = func(id generate.ProxyID) *generate.Proxy {
		p, err := id.In(old, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	o.Stale = func(generate.ProxyID) string { return "the CA has expired" }
	rs := bigMesh(t, 1, timeoutDoc)
	v := effect.New(meshOf(t, rs, "default"), o).On(find(t, rs, "MeshTimeout", "t"), "web")
	if v.InForce() || v.Held != "the Envoy keeps an older config: the CA has expired" {
		t.Errorf("%+v", v)
	}
}
