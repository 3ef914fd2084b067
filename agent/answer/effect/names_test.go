package effect_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
)

// TestPatchOfOneProxy checks that a patch that names a listener by the address of one proxy is in
// force on it, and not on proxies that differ only in their addresses.
func TestPatchOfOneProxy(t *testing.T) {
	rs := bigMesh(t, 1, "{type: MeshProxyPatch, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, default: "+
		"{appendModifications: [{listener: {operation: Patch, match: {name: 'inbound:10.9.0.2:8080'}, "+
		"value: 'perConnectionBufferLimitBytes: 4096'}}]}}}",
		"{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, rules: [{default: "+
			"{connectionTimeout: 9s}}]}}")
	for _, order := range [][]string{{"web", "web-1"}, {"web-1", "web"}} {
		x := effect.New(meshOf(t, rs, "default"), options())
		for _, name := range order {
			if v := x.On(find(t, rs, "MeshProxyPatch", "p"), name); v.InForce() != (name == "web-1") {
				t.Errorf("%v: on %s: %+v", order, name, v)
			}
		}
	}
}

// TestReasonOfItsPlaces checks that the reason comes from a proxy to which an item of the policy
// applies, even if the policy selects others first.
func TestReasonOfItsPlaces(t *testing.T) {
	rs := bigMesh(t, 4, "{type: MeshRetry, mesh: default, name: r, spec: {targetRef: {kind: Mesh}, "+
		"to: [{targetRef: {kind: MeshService, name: svc-3}, default: {http: {numRetries: 3}}}]}}")
	v := effect.New(meshOf(t, rs, "default"), options()).InMesh(find(t, rs, "MeshRetry", "r"), nil)
	if want := "no effect on any proxy: svc-3 speaks tcp"; v.Warning() != want {
		t.Errorf("got %q, want %q", v.Warning(), want)
	}
}
