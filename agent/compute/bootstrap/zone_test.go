package bootstrap_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestBootstrapAtTheBorder checks that the node ID in the bootstrap of a zone proxy identifies that
// proxy.
func TestBootstrapAtTheBorder(t *testing.T) {
	for _, typ := range []node.Type{node.ProxyEgress, node.ProxyIngress} {
		o := bootstrap.Options{Type: typ, Name: "out", XDSSocket: "/run/xds.sock"}
		out, err := bootstrap.Render(o)
		if err != nil {
			t.Fatal(err)
		}
		info := readBootstrap(t, out).GetNode()
		ref, err := node.ParseRef(info.GetId())
		if err != nil || ref != (node.Ref{Type: typ, Name: "out"}) ||
			info.GetMetadata().GetFields()["dataplane.proxyType"].GetStringValue() != string(typ) {
			t.Errorf("%s: node %v, %+v, %v", typ, info, ref, err)
		}
		for _, change := range []func(o *bootstrap.Options){
			func(o *bootstrap.Options) { o.Mesh = "default" },
			func(o *bootstrap.Options) { o.Dataplane = []byte("{}") },
			func(o *bootstrap.Options) { o.Name = "" },
			func(o *bootstrap.Options) { o.Type = "other" },
			func(o *bootstrap.Options) { o.Type = node.ProxyDataplane },
		} {
			bad := o
			change(&bad)
			if out, err := bootstrap.Render(bad); err == nil {
				t.Errorf("%+v is accepted: %s", bad, out)
			}
		}
	}
}
