package effect_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const timeoutDoc = "{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, " +
	"to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 9s}}}]}}"

// TestInMesh checks that a policy is in force in the mesh if it is on one proxy.
func TestInMesh(t *testing.T) {
	rs := bigMesh(t, 4, timeoutDoc,
		"{type: MeshTimeout, mesh: default, name: none, spec: {targetRef: {kind: MeshService, name: web}, "+
			"to: [{targetRef: {kind: MeshService, name: svc-3}, default: {http: {requestTimeout: 9s}}}]}}")
	x := effect.New(meshOf(t, rs, "default"), options())
	v := x.InMesh(find(t, rs, "MeshTimeout", "t"), nil)
	if !v.InForce() || v.Dataplane == "" || len(v.Changed) == 0 {
		t.Errorf("t: %+v", v)
	}
	if v := x.InMesh(find(t, rs, "MeshTimeout", "none"), nil); v.InForce() || v.Selected != 2 {
		t.Errorf("none: %+v", v)
	}
	if v := x.On(find(t, rs, "MeshTimeout", "none"), "svc-0-0"); v.Selected || v.InForce() {
		t.Errorf("a proxy that it does not select: %+v", v)
	}
}

// TestTrials checks that the answer is unknown if the limit is reached.
func TestTrials(t *testing.T) {
	rs := bigMesh(t, 1, timeoutDoc)
	x := effect.New(meshOf(t, rs, "default"), effect.Options{})
	if v := x.InMesh(find(t, rs, "MeshTimeout", "t"), nil); v.Effect != api.EffectUnknown {
		t.Errorf("got %+v", v)
	}
}

// TestOverridden checks that the verdict on a policy that another one overrides names it, although
// the first proxies of the mesh have no outbounds.
func TestOverridden(t *testing.T) {
	rs := bigMesh(t, 1, timeoutDoc, "{type: MeshTimeout, mesh: default, name: a, spec: {targetRef: {kind: Mesh}, "+
		"to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 8s}}}]}}")
	v := effect.New(meshOf(t, rs, "default"), options()).InMesh(find(t, rs, "MeshTimeout", "t"), nil)
	const want = "no effect on any proxy: overridden by MeshTimeout/default/a"
	if got := v.Warning(); !v.Lacking() || got != want || v.Dataplane != "web" {
		t.Errorf("on %s: %q, want %q", v.Dataplane, got, want)
	}
}

// TestPublished checks that a change that the Envoy was not given is not in force.
func TestPublished(t *testing.T) {
	rs := bigMesh(t, 1, timeoutDoc)
	old := meshOf(t, bigMesh(t, 1), "default")
	o := options()
	o.Published = func(id generate.ProxyID) *generate.Proxy {
		p, err := id.In(old, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	x := effect.New(meshOf(t, rs, "default"), o)
	if v := x.On(find(t, rs, "MeshTimeout", "t"), "web"); v.Effect != api.EffectNone || v.Held == "" {
		t.Errorf("got %+v", v)
	}
}

// BenchmarkExplain measures the explanation of a policy on a proxy that reaches 1,000 services: a
// policy of which fields have no effect on some services, and one without any effect.
func BenchmarkExplain(b *testing.B) {
	rs := bigMesh(b, 1000, timeoutDoc, "{type: MeshRetry, mesh: default, name: r, spec: {targetRef: {kind: Mesh}, to: ["+
		"{targetRef: {kind: Mesh}, default: {http: {numRetries: 1}, tcp: {maxConnectAttempt: 3}}}]}}",
		"{type: MeshTimeout, mesh: default, name: none, spec: {targetRef: {kind: MeshService, name: web}, "+
			"to: [{targetRef: {kind: MeshService, name: svc-3}, default: {http: {requestTimeout: 8s}}}]}}")
	m := meshOf(b, rs, "default")
	for name, r := range map[string]*resource.Resource{"part": find(b, rs, "MeshRetry", "r"),
		"none": find(b, rs, "MeshTimeout", "none")} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if x, err := explain.PolicyOn(m, r, "web", "", options()); err != nil || x.Effect != name {
					b.Fatalf("%+v: %v", x, err)
				}
			}
		})
	}
}
