package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// TestStatusOfOneProxy asks for one of many proxies: no status of another one is made.
func TestStatusOfOneProxy(t *testing.T) {
	var asked []node.Ref
	a := start(t, func(o *httpapi.Options) {
		o.Proxies = func() []api.ProxyStatus {
			t.Error("the status of every proxy is made")
			return nil
		}
		o.ProxiesOf = func(ref node.Ref) []api.ProxyStatus {
			asked = append(asked, ref)
			if ref.Name == "gone" {
				return nil
			}
			return []api.ProxyStatus{{Type: ref.Type, Mesh: ref.Mesh, Name: ref.Name, NodeID: "x", State: api.StateServing,
				InSync: true}}
		}
	})
	a.put(store.Source{Kind: store.SourceAPI}, "type: Mesh\nname: default\n")
	for _, c := range []struct {
		path, want string
		status     int
	}{
		{"/v1/dataplanes/default/web/status", `"name":"web"`, http.StatusOK},
		{"/v1/zoneegresses/out/status", `"name":"out"`, http.StatusOK},
		{"/v1/dataplanes/default/gone/status", `no dataplane \"gone\"`, http.StatusNotFound},
	} {
		if got := a.do("GET", c.path, ""); got.status != c.status || !strings.Contains(got.body, c.want) {
			t.Errorf("%s: %d %s", c.path, got.status, got.body)
		}
	}
	if len(asked) != 3 {
		t.Errorf("asked for %v", asked)
	}
}
