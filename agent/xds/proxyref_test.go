package xds_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/xds"
)

func TestProxyRef(t *testing.T) {
	long := strings.Repeat("n", 253)
	for _, c := range []struct {
		id   string
		want xds.ProxyRef
		key  resource.Key
	}{
		{"default.web", xds.ProxyRef{Mesh: "default", Name: "web"}, resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web"}},
		{"egress.web", xds.ProxyRef{Mesh: "egress", Name: "web"}, resource.Key{Kind: "Dataplane", Mesh: "egress", Name: "web"}},
		{"default.web.shop", xds.ProxyRef{Mesh: "default", Name: "web.shop"}, resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web.shop"}},
		{".egress.out", xds.ProxyRef{Type: xds.ProxyEgress, Name: "out"}, resource.Key{Kind: "ZoneEgress", Name: "out"}},
		{".egress.out.kuma-system", xds.ProxyRef{Type: xds.ProxyEgress, Name: "out.kuma-system"}, resource.Key{Kind: "ZoneEgress", Name: "out.kuma-system"}},
		{".ingress.out", xds.ProxyRef{Type: xds.ProxyIngress, Name: "out"}, resource.Key{Kind: "ZoneIngress", Name: "out"}},
		{".egress." + long, xds.ProxyRef{Type: xds.ProxyEgress, Name: long}, resource.Key{Kind: "ZoneEgress", Name: long}},
	} {
		got, err := xds.ParseProxyRef(c.id)
		if err != nil || got != c.want || got.NodeID() != c.id || got.Key() != c.key {
			t.Errorf("%q: %+v, %v; node id %q, key %v", c.id, got, err, got.NodeID(), got.Key())
		}
	}
	for _, id := range []string{"", ".", "..", ".web", ".egress", ".egress.", ".dataplane.web", "..web", ".Egress.web", "default.", ".egress.a b",
		".egress.a/b", ".egress.\xff", ".egress." + long + "n", strings.Repeat("x", 10_000), "." + strings.Repeat("x", 10_000)} {
		if r, err := xds.ParseProxyRef(id); err == nil || len(err.Error()) > 2000 {
			t.Errorf("%.100q is read as %+v, %.100v", id, r, err)
		}
	}
}

func FuzzProxyRef(f *testing.F) {
	f.Add("default.web")
	f.Add(".egress.out")
	f.Add(".ingress.")
	f.Fuzz(func(t *testing.T, id string) {
		if r, err := xds.ParseProxyRef(id); err == nil && (r.NodeID() != id || r.Name == "" || (r.Mesh == "") != (r.Type != xds.ProxyDataplane)) {
			t.Errorf("%q: %+v", id, r)
		}
	})
}

// TestBootstrapAtTheBorder: the bootstrap says which proxy it is for, in a node id that is read as such.
func TestBootstrapAtTheBorder(t *testing.T) {
	for _, typ := range []xds.ProxyType{xds.ProxyEgress, xds.ProxyIngress} {
		o := xds.BootstrapOptions{Type: typ, Name: "out", XDSSocket: "/run/xds.sock"}
		out, err := xds.Bootstrap(o)
		if err != nil {
			t.Fatal(err)
		}
		info := readBootstrap(t, out).GetNode()
		ref, err := xds.ParseProxyRef(info.GetId())
		if err != nil || ref != (xds.ProxyRef{Type: typ, Name: "out"}) || info.GetMetadata().GetFields()["dataplane.proxyType"].GetStringValue() != string(typ) {
			t.Errorf("%s: node %v, %+v, %v", typ, info, ref, err)
		}
		for _, change := range []func(o *xds.BootstrapOptions){
			func(o *xds.BootstrapOptions) { o.Mesh = "default" },
			func(o *xds.BootstrapOptions) { o.Dataplane = []byte("{}") },
			func(o *xds.BootstrapOptions) { o.Name = "" },
			func(o *xds.BootstrapOptions) { o.Type = "other" },
			func(o *xds.BootstrapOptions) { o.Type = xds.ProxyDataplane },
		} {
			bad := o
			change(&bad)
			if out, err := xds.Bootstrap(bad); err == nil {
				t.Errorf("%+v is accepted: %s", bad, out)
			}
		}
	}
}
