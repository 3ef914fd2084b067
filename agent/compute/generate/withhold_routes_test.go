package generate_test

import (
	"slices"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// TestBrokenRoutesAreWithheldAlone checks that routes that Envoy would reject are withheld without
// their listener. If there are no previous routes to send, the listener is withheld too, because it
// would wait for them.
func TestBrokenRoutesAreWithheldAlone(t *testing.T) {
	const route = "outbound:127.0.0.1:20000"
	patched := func(policies string) *generate.Proxy {
		return proxyOf(t, meshOf(t, slices.Concat(bigMesh(2, 0), decoded(t, policies)), nil), "web", nil, nil)
	}
	good := patched(`{type: MeshTimeout, mesh: default, name: t, spec: {to: [{targetRef: {kind: MeshService, name: svc-0}, default: {http: {requestTimeout: 3s}}}]}}`)
	bad := patched(`{type: MeshProxyPatch, mesh: default, name: p, spec: {default: {appendModifications: [{networkFilter: {operation: Patch, match: {name: envoy.filters.network.http_connection_manager, listenerName: "outbound:127.0.0.1:20000"},
  jsonPatches: [{op: add, path: /routeConfig/virtualHosts/0/routes/0/route/clusterSpecifierPlugin, value: nowhere}, {op: remove, path: /routeConfig/virtualHosts/0/routes/0/route/cluster}]}}]}}}`)
	for _, c := range []struct {
		what     string
		had      *draft.Sealed
		withheld []string
		has      *draft.Resource
	}{
		{"with an earlier form", good.Sealed, []string{"RouteConfiguration"},
			good.Resource(draft.ResourceID{TypeURL: draft.TypeRoute, Name: route})},
		{"without one", nil, []string{"Listener", "RouteConfiguration"}, nil},
	} {
		checker := &check.Checker{}
		check := func(p *generate.Proxy) []finding.Finding { return p.Check(checker, c.had) }
		sent, withheld := bad.Withhold(check(bad), c.had, check)
		var types []string
		for _, w := range withheld {
			if w.ID.Name != route {
				t.Errorf("%s: %s is withheld: %s", c.what, w.ID.Name, w.Reason)
			}
			types = append(types, short(w.ID.TypeURL))
		}
		if slices.Sort(types); !slices.Equal(types, c.withheld) {
			t.Errorf("%s: withheld are %q, want %q", c.what, types, c.withheld)
		}
		if got := sent.Resource(draft.ResourceID{TypeURL: draft.TypeRoute, Name: route}); got != c.has {
			t.Errorf("%s: sent is %v", c.what, got)
		}
		if has := sent.Resource(draft.ResourceID{TypeURL: draft.TypeListener, Name: route}) != nil; has != (c.had != nil) {
			t.Errorf("%s: the listener is there: %t", c.what, has)
		}
	}
}
