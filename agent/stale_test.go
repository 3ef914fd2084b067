package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestReturnsToEditedDataplane checks that an Envoy that reconnects with another Dataplane in its
// metadata is first served with the new one, even while the previous one is still in the store.
func TestReturnsToEditedDataplane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startParts(t)
		agenttest.ByAPI(t, n.store, agenttest.Meshes("default"))
		web := func(port string) string {
			return strings.Replace(agenttest.DataplaneText("default", "web", "10.0.0.1"), `"port": 80`, `"port": `+port, 1)
		}
		for _, port := range []string{"80", "81", "81", "82"} {
			for _, delta := range []bool{true, false} {
				p := newProxyClient(t, &core.Node{Id: "default.web", Metadata: agenttest.Metadata(t, web(port))})
				p.Connect(n.conn, delta)
				if got := p.next(); got != "Cluster localhost:"+port {
					t.Errorf("with port %s it got %q", port, got)
				}
				p.end()
				synctest.Wait()
			}
		}
		// A second stream brings another Dataplane while the first stream is open, as when an Envoy
		// hot restarts.
		first := newProxyClient(t, &core.Node{Id: "default.web", Metadata: agenttest.Metadata(t, web("82"))})
		first.Connect(n.conn, true)
		first.next()
		second := newProxyClient(t, &core.Node{Id: "default.web", Metadata: agenttest.Metadata(t, web("83"))})
		second.Connect(n.conn, true)
		if got := second.next(); got != "Cluster localhost:83" {
			t.Errorf("the second stream got %q", got)
		}
		first.end()
		second.end()
	})
}

// TestReturnsAfterDelete checks that an Envoy whose Dataplane was deleted while it was disconnected
// receives nothing if it reconnects immediately.
func TestReturnsAfterDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startParts(t)
		agenttest.ByAPI(t, n.store,
			agenttest.Meshes("default")+"\n---\n"+agenttest.DataplaneText("default", "web", "10.0.0.1"))
		p := newProxyClient(t, &core.Node{Id: "default.web"})
		p.Connect(n.conn, true)
		if got := p.next(); got != "Cluster localhost:80" {
			t.Errorf("got %q", got)
		}
		p.end()
		synctest.Wait()
		_, err := n.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
			Ops: []store.Op{{Delete: agenttest.WebKey}}})
		agenttest.Do(t, err)
		back := newProxyClient(t, &core.Node{Id: "default.web"})
		back.Connect(n.conn, true)
		began := time.Now()
		if got, err := back.recv(); status.Code(err) != codes.NotFound {
			t.Errorf("got %q and %v, want NotFound", got, err)
		}
		if elapsed := time.Since(began); elapsed < 10*time.Second || elapsed > 11*time.Second {
			t.Errorf("told after %s", elapsed)
		}
	})
}
