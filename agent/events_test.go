package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// readEvents reads the events of an agent until the test ends. The function that it returns waits
// for the next event of a type that contains all texts. Events of other types stay for later calls,
// because the order of events of several types is not defined.
func readEvents(t *testing.T, r *agenttest.Running, types ...string) (want func(name string, parts ...string) string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan client.Event, 1024)
	ended := make(chan error, 1)
	go func() {
		ended <- r.Api().Events(ctx, types, "", func(e client.Event) error {
			events <- e
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	var seen strings.Builder
	waiting := map[string][]string{} // data by type
	want = func(name string, parts ...string) string {
		t.Helper()
		defer func() {
			if t.Failed() {
				t.Logf("the events were\n%s", seen.String())
			}
		}()
		late := time.After(agenttest.Patience)
		for {
			if list := waiting[name]; len(list) > 0 {
				waiting[name] = list[1:]
				if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(list[0], p) }) {
					return list[0]
				}
				continue
			}
			select {
			case e := <-events:
				fmt.Fprintf(&seen, "%s %s\n", e.Name, e.Data)
				waiting[e.Name] = append(waiting[e.Name], string(e.Data))
			case err := <-ended:
				ended <- err
				t.Fatalf("the stream has ended: %v", err)
			case <-late:
				t.Fatalf("no event %s with %q", name, parts)
			}
		}
	}
	want(api.EventHello, `"instance":`)
	return want
}

// TestEventsOfProxy reads what happens to a proxy of a whole agent: it connects, acknowledges,
// rejects a policy, and leaves.
func TestEventsOfProxy(t *testing.T) {
	r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2"))
	want := readEvents(t, r)
	p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", true)
	const web = `"kind":"Dataplane","mesh":"default","name":"web"`
	want(api.EventProxy, web, `"state":"connected"`)
	p.Want("Cluster localhost:80 svc-1 svc-2")
	p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001")
	want(api.EventAck, web, `.Listener"`)

	agenttest.ByAPI(t, r.Store(), listenerPatch("bad", "WORD"))
	want(api.EventChange, `"type":"MeshProxyPatch","mesh":"default","name":"bad","action":"created"`)
	p.Want("Listener outbound:127.0.0.1:20000!")
	want(api.EventNack, web, `"resource":"outbound:127.0.0.1:20000"`, "it holds the word")
	p.Want("Listener") // without the policy, as before
	var nack api.NackEvent
	agenttest.Do(t, json.Unmarshal([]byte(want(api.EventNack, web, `"name":"bad"`)), &nack))
	if nack.Policies[0].Type != "MeshProxyPatch" || nack.Policies[0].Field == "" || nack.Error == "" {
		t.Errorf("the rejection with its cause: %+v", nack)
	}
	want(api.EventProblem, `"state":"new"`, "MeshProxyPatch/default/bad", "rejected by default.web")
	agenttest.Do(t, p.d.CloseSend())
	want(api.EventProxy, web, `"state":"disconnected"`)
}

// TestPoolView compares what two nodes of a pool say about each other, also after one of them has
// died.
func TestPoolView(t *testing.T) {
	t.Parallel()
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n---\n"+agenttest.DataplaneText("default", "web", "127.0.0.1"))
	b := pooled(t, agenttest.ShortDir(t), "b", a.Addrs().Gossip.String())
	has(t, b, poolMesh, "gossip:a")
	p := startPicky(t, a.Addrs().XDS, "default.web", "WORD", true)
	p.next()
	view := func(r *agenttest.Running) map[string]api.PoolNode {
		t.Helper()
		status, text := r.Request("GET", "http://nearside/v1/pool", "")
		var doc api.PoolView
		if err := json.Unmarshal([]byte(text), &doc); status != 200 || err != nil || doc.Time.IsZero() {
			t.Fatalf("%d %s: %v", status, text, err)
		}
		nodes := map[string]api.PoolNode{}
		for _, n := range doc.Nodes {
			nodes[n.Name] = n
		}
		return nodes
	}
	for _, r := range []*agenttest.Running{a, b} {
		agenttest.Eventually(t, "both nodes report", func() bool {
			nodes := view(r)
			x, y := nodes["a"], nodes["b"]
			return len(nodes) == 2 && x.Proxies != nil && *x.Proxies == 1 && y.Proxies != nil && *y.Proxies == 0 &&
				x.Problems != nil && y.Conflicts != nil && x.Error == "" && y.Error == "" && x.State == "alive"
		})
	}
	agenttest.Do(t, a.Stop())
	agenttest.Eventually(t, "the node that left does not report", func() bool {
		n := view(b)["a"]
		return n.Proxies == nil && n.State != "alive"
	})
}
