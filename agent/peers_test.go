package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/statedir"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// pooled starts an agent of a pool. Its directory remains after the agent stops.
func pooled(t testing.TB, dir, name, join string, set ...string) *agenttest.Running {
	t.Helper()
	set = append([]string{"node.name=" + name, "gossip.bind=127.0.0.1:0", "gossip.keyringFile=" + keyringOf(t, dir, "A")},
		set...)
	if join != "" {
		set = append(set, "gossip.join="+join)
	}
	return agenttest.Up(t, dir, agent.Deps{}, set...)
}

// keyringOf writes a keyring with one key, all of whose bytes are equal.
func keyringOf(t testing.TB, dir, of string) string {
	t.Helper()
	path := filepath.Join(dir, "keyring-"+of)
	agenttest.WriteSecret(t, path, "# of the test\n"+strings.Repeat(of, 43)+"=\n")
	return path
}

// has waits until an agent has a resource from a source. An empty source means that the resource
// does not exist.
func has(t *testing.T, r *agenttest.Running, k resource.Key, from string) {
	t.Helper()
	changed, stop := r.Store().Watch()
	defer stop()
	t.Cleanup(func() {
		if rec, _ := r.Store().Snapshot().Get(k); t.Failed() {
			t.Logf("%s: %s from %s", r.Config().Node.Name, k, rec.Source)
		}
	})
	agenttest.Await(t, fmt.Sprintf("%s comes from %q", k, from), changed, func() bool {
		rec, ok := r.Store().Snapshot().Get(k)
		return ok == (from != "") && (!ok || rec.Source.String() == from)
	})
}

func timeoutText(name, idle string) string {
	return "type: MeshTimeout\nmesh: default\nname: " + name +
		"\nspec:\n  targetRef: {kind: Mesh}\n  to: [{targetRef: {kind: Mesh}, default: {idleTimeout: " + idle + "}}]\n"
}

var (
	poolMesh    = resource.Key{Kind: "Mesh", Name: "default"}
	poolTimeout = resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: "slow"}
	poolWeb     = resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web"}
)

// checkOf returns the pool check of an agent.
func checkOf(t *testing.T, r *agenttest.Running) string {
	t.Helper()
	s, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	for _, c := range s.Checks {
		if c.Name == "peers" {
			return c.Reason
		}
	}
	return ""
}

// TestPool checks that operators' writes on one node reach all nodes, that the resources of a node
// are visible with their owner on the others, and that both remain after a restart without peers.
func TestPool(t *testing.T) {
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	dir := agenttest.ShortDir(t)
	join := a.Addrs().Gossip.String()
	b := pooled(t, dir, "b", join)
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n---\n"+timeoutText("slow", "20s"))
	has(t, b, poolMesh, "gossip:a")
	has(t, b, poolTimeout, "gossip:a")

	// Any node may change resources written on another node.
	agenttest.Apply(t, b.Agent, timeoutText("slow", "30s"))
	has(t, a, poolTimeout, "gossip:b")
	has(t, b, poolTimeout, "api")

	agenttest.Apply(t, a.Agent, agenttest.DataplaneText("default", "web", "10.0.0.1"))
	has(t, b, poolWeb, "peer:a")
	if code, body := b.Request("DELETE", "http://nearside/meshes/default/dataplanes/web", ""); code != 409 ||
		!strings.Contains(body, "change it on the node a") {
		t.Errorf("somebody else's dataplane: %d %s", code, body)
	}
	if _, err := b.Ask(&core.Node{Id: "default.web"}, nil).Recv(); status.Code(err) != codes.PermissionDenied ||
		!strings.Contains(err.Error(), "belongs to the node a") {
		t.Errorf("the proxy of another node: %v", err)
	}
	members, err := b.Api().Members(t.Context())
	agenttest.Do(t, err)
	if len(members.Items) != 2 || members.Items[0].Name != "a" || members.Items[0].State != "alive" ||
		!members.Items[1].Self {
		t.Errorf("members %+v", members.Items)
	}

	agenttest.Do(t, a.Stop(), b.Stop())
	b = pooled(t, dir, "b", join)
	for k, from := range map[resource.Key]string{poolMesh: "gossip:a", poolTimeout: "api", poolWeb: "peer:a"} {
		if rec, ok := b.Store().Snapshot().Get(k); !ok || rec.Source.String() != from {
			t.Errorf("after a restart alone: %s from %q", k, rec.Source)
		}
	}
	if got := checkOf(t, b); !strings.Contains(got, "no address of gossip.join responds") {
		t.Errorf("alone: %s", got)
	}
	agenttest.Remove(t, b.Agent, poolTimeout)
	c := pooled(t, agenttest.ShortDir(t), "c", b.Addrs().Gossip.String())
	has(t, c, poolMesh, "gossip:a")
	has(t, c, poolTimeout, "")
}

// TestPoolIsClosed checks that an agent with another key or cluster name neither receives nor
// changes anything.
func TestPoolIsClosed(t *testing.T) {
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n")
	join := a.Addrs().Gossip.String()
	dir := agenttest.ShortDir(t)
	for what, set := range map[string][]string{
		"another key":     {"gossip.keyringFile=" + keyringOf(t, dir, "B")},
		"no key":          {"gossip.keyringFile=", "gossip.insecure=true"},
		"another cluster": {"gossip.cluster=east"},
	} {
		t.Run(what, func(t *testing.T) {
			own := agenttest.ShortDir(t)
			agenttest.Do(t, pooled(t, own, "x", "", set...).Stop()) // later starts do not wait for the pool
			x := pooled(t, own, "x", join, set...)
			agenttest.Apply(t, x.Agent, "type: Mesh\nname: x\n")
			agenttest.Eventually(t, "it is alone", func() bool {
				return strings.Contains(checkOf(t, x), "no address of gossip.join responds")
			})
			if _, ok := x.Store().Snapshot().Get(poolMesh); ok {
				t.Error("it has the mesh")
			}
			if _, ok := a.Store().Snapshot().Get(resource.Key{Kind: "Mesh", Name: "x"}); ok {
				t.Error("its mesh is in the pool")
			}
		})
	}
}

// TestPoolAndFiles checks that a node's file resources stay on the node and take precedence there.
// When they are removed, the pool's resource takes effect.
func TestPoolAndFiles(t *testing.T) {
	dir := agenttest.ShortDir(t)
	file := filepath.Join(dir, "resources", "slow.yaml")
	agenttest.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
	agenttest.Write(t, file, timeoutText("slow", "1s"))
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n---\n"+timeoutText("slow", "20s"))
	b := pooled(t, dir, "b", a.Addrs().Gossip.String())
	has(t, b, poolMesh, "gossip:a")
	has(t, b, poolTimeout, "file:"+file)
	agenttest.Eventually(t, "the check names the pool's resource, which may arrive later", func() bool {
		return strings.Contains(checkOf(t, b), "pool resources not in force on this node: 1, "+
			"the first is MeshTimeout/default/slow: this node has it from file:")
	})
	if rec, _ := a.Store().Snapshot().Get(poolTimeout); rec.Source.Kind != store.SourceAPI {
		t.Errorf("the file of another node has come: %s", rec.Source)
	}
	agenttest.Do(t, os.Remove(file))
	has(t, b, poolTimeout, "gossip:a")
	agenttest.Write(t, file, timeoutText("slow", "2s")) // also if the pool's resource was there first
	has(t, b, poolTimeout, "file:"+file)
}

// TestPoolImportsExisting checks that resources stored before the pool existed are replicated to
// it.
func TestPoolImportsExisting(t *testing.T) {
	dir := agenttest.ShortDir(t)
	a := agenttest.Up(t, dir, agent.Deps{}, "node.name=a")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n")
	agenttest.Do(t, a.Stop())
	a = pooled(t, dir, "a", "")
	b := pooled(t, agenttest.ShortDir(t), "b", a.Addrs().Gossip.String())
	has(t, b, poolMesh, "gossip:a")
}

// TestLostPool checks that a node with a damaged state file waits until an operator accepts the
// loss, and then receives the current resources from its peers, and none that was deleted.
func TestLostPool(t *testing.T) {
	dir := agenttest.ShortDir(t)
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	b := pooled(t, dir, "b", a.Addrs().Gossip.String())
	agenttest.Apply(t, a.Agent,
		"type: Mesh\nname: default\n---\n"+timeoutText("slow", "20s")+"---\n"+timeoutText("gone", "20s"))
	has(t, b, poolTimeout, "gossip:a")
	gone := poolTimeout
	gone.Name = "gone"
	has(t, b, gone, "gossip:a")
	agenttest.Do(t, b.Stop())
	agenttest.Remove(t, a.Agent, gone)
	agenttest.Do(t,
		os.WriteFile(filepath.Join(dir, "state", "nearside.db"), []byte(strings.Repeat("damaged", 10000)), 0o600))
	b = agenttest.Up(t, dir, agent.Deps{}, "node.name=b")
	if st, err := b.Api().Status(t.Context()); err != nil || st.Ready {
		t.Errorf("with a damaged state file: %+v, %v", st, err)
	}
	agenttest.Do(t, b.Stop())
	agenttest.Write(t, filepath.Join(dir, "state", statedir.AcceptLoss), "")
	b = pooled(t, dir, "b", a.Addrs().Gossip.String())
	has(t, b, gone, "")
	has(t, b, poolTimeout, "gossip:a")
}
