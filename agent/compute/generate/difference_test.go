package generate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
)

// TestDifference compares configs of a proxy, and a config with no config.
func TestDifference(t *testing.T) {
	a := proxyOf(t, meshOf(t, bigMesh(2, 0), nil), "web", nil, nil)
	b := proxyOf(t, meshOf(t, slices.Concat(bigMesh(3, 0), decoded(t,
		"{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, "+
			"name: svc-0}, default: {connectionTimeout: 3s}}]}}")), nil), "web", nil, nil)
	r, err := generate.NewRenderer(nil)
	if err != nil {
		t.Fatal(err)
	}
	list := func(from, to *generate.Proxy) []string {
		var out []string
		for _, c := range generate.Difference(from, to) {
			if c.From != from.Resource(c.ResourceID) || c.To != to.Resource(c.ResourceID) {
				t.Errorf("%s: not the resources of the configs", c.Name)
			}
			was, is, err := r.Both(&c)
			if err != nil || (was == nil) != (c.From == nil) || (is == nil) != (c.To == nil) || string(was) == string(is) {
				t.Errorf("%s: %s, %s, %v", c.Name, was, is, err)
			}
			out = append(out, fmt.Sprintf("%s/%s %t %t", c.TypeURL[strings.LastIndexByte(c.TypeURL, '.')+1:], c.Name,
				c.From != nil, c.To != nil))
		}
		return out
	}
	got := list(a, b)
	if diff := cmp.Diff([]string{
		"Cluster/localhost:8080 true true", "Cluster/svc-0 true true", "Cluster/svc-2 false true",
		"ClusterLoadAssignment/svc-2 false true", "Listener/inbound:10.9.0.1:8080 true true",
		"Listener/outbound:127.0.0.1:20000 true true", "Listener/outbound:127.0.0.1:20001 true true",
		"Listener/outbound:127.0.0.1:20002 false true", "RouteConfiguration/inbound:10.9.0.1:8080 true true",
		"RouteConfiguration/outbound:127.0.0.1:20000 true true", "RouteConfiguration/outbound:127.0.0.1:20002 false true",
	}, got); diff != "" {
		t.Error(diff)
	}
	if n := len(list(b, a)); n != len(got) {
		t.Errorf("%d changes one way, %d the other", len(got), n)
	}
	if got := list(a, a); len(got) > 0 {
		t.Errorf("a config differs from itself: %q", got)
	}
	all := 0
	for _, l := range a.Sealed.Resources {
		all += len(l)
	}
	if added, gone := list(nil, a), list(a, nil); len(added) != all || len(gone) != all || len(list(nil, nil)) > 0 {
		t.Errorf("from nothing %d, to nothing %d of %d", len(added), len(gone), all)
	}
	if !a.Has(draft.TypeCluster) || a.Has(draft.TypeSecret) || a.Has("x") ||
		(*generate.Proxy)(nil).Has(draft.TypeCluster) {
		t.Error("types that a config has")
	}
	if a.Resource(draft.ResourceID{TypeURL: "x", Name: "svc-0"}) != nil ||
		a.Resource(draft.ResourceID{TypeURL: draft.TypeCluster, Name: "x"}) != nil {
		t.Error("a resource that is not there")
	}
}
