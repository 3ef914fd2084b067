package ads

import (
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

func FuzzNodeID(f *testing.F) {
	for _, id := range []string{"default.web", "default.web.kuma-demo", ".", "a.", "a.b/c", "a.\x00", "é.é", ""} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		mesh, name, err := node.ParseID(id)
		if err != nil {
			return
		}
		if mesh+"."+name != id || strings.Contains(mesh, ".") || mesh == "" || name == "" || len(id) > node.MaxNodeID {
			t.Errorf("%q parsed to %q and %q", id, mesh, name)
		}
	})
}

// TestNamesOfOtherTypes: stream handlers retain their subscriptions, and for types that are not
// served nothing else limits these.
func TestNamesOfOtherTypes(t *testing.T) {
	st := &adsStream{srv: NewServer(rollout.New(rollout.Options{}), ServerOptions{})}
	delta := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "other", ResourceNamesSubscribe: []string{"a"},
		ResourceNamesUnsubscribe: []string{"b"}, InitialResourceVersions: map[string]string{"c": "1"}}
	sotw := &discoveryv3.DiscoveryRequest{TypeUrl: "other", ResourceNames: []string{"a"}}
	if err := st.OnStreamDeltaRequest(1, delta); err != nil {
		t.Fatal(err)
	}
	if err := st.OnStreamRequest(1, sotw); err != nil {
		t.Fatal(err)
	}
	if n := len(delta.ResourceNamesSubscribe) + len(delta.ResourceNamesUnsubscribe) + len(delta.InitialResourceVersions) +
		len(sotw.ResourceNames); n != 0 {
		t.Errorf("%d names are left to the handlers", n)
	}
}
