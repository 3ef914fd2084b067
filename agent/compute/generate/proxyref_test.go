package generate_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func TestProxyRef(t *testing.T) {
	long := strings.Repeat("n", 253)
	for _, c := range []struct {
		id   string
		want node.Ref
		key  resource.Key
	}{
		{"default.web", node.Ref{Mesh: "default", Name: "web"},
			resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web"}},
		{"egress.web", node.Ref{Mesh: "egress", Name: "web"}, resource.Key{Kind: "Dataplane", Mesh: "egress", Name: "web"}},
		{"default.web.shop", node.Ref{Mesh: "default", Name: "web.shop"},
			resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web.shop"}},
		{".egress.out", node.Ref{Type: node.ProxyEgress, Name: "out"}, resource.Key{Kind: "ZoneEgress", Name: "out"}},
		{".egress.out.kuma-system", node.Ref{Type: node.ProxyEgress, Name: "out.kuma-system"},
			resource.Key{Kind: "ZoneEgress", Name: "out.kuma-system"}},
		{".ingress.out", node.Ref{Type: node.ProxyIngress, Name: "out"}, resource.Key{Kind: "ZoneIngress", Name: "out"}},
		{".egress." + long, node.Ref{Type: node.ProxyEgress, Name: long}, resource.Key{Kind: "ZoneEgress", Name: long}},
	} {
		got, err := node.ParseRef(c.id)
		if err != nil || got != c.want || got.NodeID() != c.id || got.Key() != c.key {
			t.Errorf("%q: %+v, %v; node id %q, key %v", c.id, got, err, got.NodeID(), got.Key())
		}
	}
	for _, id := range []string{"", ".", "..", ".web", ".egress", ".egress.", ".dataplane.web", "..web", ".Egress.web",
		"default.", ".egress.a b", ".egress.a/b", ".egress.\xff", ".egress." + long + "n", strings.Repeat("x", 10_000),
		"." + strings.Repeat("x", 10_000)} {
		if r, err := node.ParseRef(id); err == nil || len(err.Error()) > 2000 {
			t.Errorf("%.100q is read as %+v, %.100v", id, r, err)
		}
	}
}

func FuzzProxyRef(f *testing.F) {
	f.Add("default.web")
	f.Add(".egress.out")
	f.Add(".ingress.")
	f.Fuzz(func(t *testing.T, id string) {
		if r, err := node.ParseRef(id); err == nil &&
			(r.NodeID() != id || r.Name == "" || (r.Mesh == "") != (r.Type != node.ProxyDataplane)) {
			t.Errorf("%q: %+v", id, r)
		}
	})
}
