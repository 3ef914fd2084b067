package generate_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestStillFit checks that a changed config that is not checked has the findings of the previous
// one, for changes that cannot cause findings and for some that do.
func TestStillFit(t *testing.T) {
	t.Parallel()
	const base = "{type: Mesh, name: default}\n---\n" +
		"{type: Dataplane, mesh: default, name: a, networking: {address: 10.0.0.2, inbound: [{port: 80, " +
		"tags: {kuma.io/service: a, kuma.io/protocol: http}}]}}\n---\n" +
		"{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, " +
		"tags: {kuma.io/service: web, kuma.io/protocol: http}}], outbound: [{port: %d, tags: {kuma.io/service: a}}]}}\n"
	timeout := func(n int) string {
		return fmt.Sprintf("---\n{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, "+
			"to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: %ds}}]}}\n", n)
	}
	patch := func(operation, value string) string {
		return fmt.Sprintf("---\n{type: MeshProxyPatch, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, "+
			"default: {appendModifications: [{%s, value: '%s'}}]}}}\n", operation, value)
	}
	clash := patch("listener: {operation: Patch", "{address: {socket_address: {address: 10.0.0.1, port_value: 80}}}")
	text := func(port int, rest string) string { return fmt.Sprintf(base, port) + rest }
	var checker check.Checker
	for _, c := range []struct {
		name, was, is string
		fits          bool
	}{
		{"nothing", text(90, ""), text(90, ""), true},
		{"a timeout", text(90, timeout(1)), text(90, timeout(2)), true},
		{"another address", text(90, ""), text(91, ""), false},
		{"an address in use", text(90, ""), text(90, clash), false},
		{"an address no longer in use", text(90, clash), text(90, ""), false},
		{"one more cluster", text(90, ""), text(90, patch("cluster: {operation: Add",
			"{name: added, connect_timeout: 1s, type: STATIC}")), false},
	} {
		generated := func(text string) *generate.Proxy {
			p, err := generate.Generate(generate.Input{Mesh: meshOf(t, decoded(t, text), nil), Name: "web",
				Flavor: node.FlavorEnvoy}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		was, is := generated(c.was), generated(c.is)
		fits := is.StillFit(&checker, was.Sealed)
		if fits != c.fits {
			t.Errorf("%s: StillFit returns %v", c.name, fits)
		}
		if diff := cmp.Diff(was.Check(&checker, was.Sealed), is.Check(&checker, was.Sealed)); fits && diff != "" {
			t.Errorf("%s: other findings: %s", c.name, diff)
		}
	}
}
