package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// memberOf returns a node as an agent sees it.
func memberOf(t *testing.T, r *agenttest.Running, name string) api.Member {
	t.Helper()
	got, err := r.Api().Members(t.Context())
	agenttest.Do(t, err)
	for _, m := range got.Items {
		if m.Name == name {
			return m
		}
	}
	return api.Member{}
}

// poolCheck returns a check of an agent.
func poolCheck(t *testing.T, r *agenttest.Running, name string) api.Check {
	t.Helper()
	s, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	for _, c := range s.Checks {
		if c.Name == name {
			return c
		}
	}
	return api.Check{}
}

// TestFilesThatDiffer checks that each node names the file resources that differ from those of
// another node, and no others.
func TestFilesThatDiffer(t *testing.T) {
	t.Parallel()
	start := func(name, join string, files map[string]string) (*agenttest.Running, string) {
		dir := agenttest.ShortDir(t)
		agenttest.Do(t, os.MkdirAll(filepath.Join(dir, "resources"), 0o755))
		for file, text := range files {
			agenttest.Write(t, filepath.Join(dir, "resources", file), text)
		}
		return pooled(t, dir, name, join), filepath.Join(dir, "resources")
	}
	const mesh = "type: Mesh\nname: default\n"
	a, _ := start("a", "", map[string]string{"mesh.yaml": mesh, "slow.yaml": timeoutText("slow", "1s"),
		"one.yaml": timeoutText("one", "1s"), "dp.yaml": agenttest.DataplaneText("default", "web", "10.0.0.1")})
	b, dir := start("b", a.Addrs().Gossip.String(), map[string]string{"mesh.yaml": mesh,
		"slow.yaml": timeoutText("slow", "2s"), "more.yaml": timeoutText("more", "1s")})
	difference := func(name, state string) api.FileDifference {
		return api.FileDifference{Type: "MeshTimeout", Mesh: "default", Name: name, State: state}
	}
	for _, x := range []struct {
		on   *agenttest.Running
		of   string
		want []api.FileDifference
		text string
	}{
		{a, "b", []api.FileDifference{difference("more", api.FileMissingHere), difference("one", api.FileMissingThere),
			difference("slow", api.FileDiffers)}, "differ from those of node b: MeshTimeout/default/more (missing here), " +
			"MeshTimeout/default/one (missing there), MeshTimeout/default/slow (differs);"},
		{b, "a", []api.FileDifference{difference("more", api.FileMissingThere), difference("one", api.FileMissingHere),
			difference("slow", api.FileDiffers)}, "differ from those of node a: MeshTimeout/default/more (missing there)"},
	} {
		agenttest.Eventually(t, "the differences are known on the node that is not "+x.of, func() bool {
			f := memberOf(t, x.on, x.of).Files
			if f == nil || f.Total != len(x.want) {
				return false
			}
			for i, d := range f.Items {
				if d != x.want[i] {
					return false
				}
			}
			return true
		})
		agenttest.Eventually(t, "the check names them", func() bool {
			c := poolCheck(t, x.on, "pool-files")
			return c.OK && c.Degraded && !c.Error && strings.Contains(c.Reason, x.text)
		})
	}
	agenttest.Write(t, filepath.Join(dir, "slow.yaml"), timeoutText("slow", "1s"))
	agenttest.Write(t, filepath.Join(dir, "one.yaml"), timeoutText("one", "1s"))
	agenttest.Do(t, os.Remove(filepath.Join(dir, "more.yaml")))
	for _, x := range []*agenttest.Running{a, b} {
		other := map[*agenttest.Running]string{a: "b", b: "a"}[x]
		agenttest.Eventually(t, "the files are equal", func() bool {
			f := memberOf(t, x, other).Files
			return f != nil && f.Total == 0
		})
		agenttest.Eventually(t, "the check says so", func() bool {
			c := poolCheck(t, x, "pool-files")
			return !c.Degraded && c.Reason == "1 other live node has equal resources in files"
		})
	}
}

// TestMembersAreCompared checks that a list of members compares the present contents: right after a
// change has arrived on another node, that node is in sync, although its last probe response is
// older.
func TestMembersAreCompared(t *testing.T) {
	t.Parallel()
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n")
	b := pooled(t, agenttest.ShortDir(t), "b", a.Addrs().Gossip.String())
	has(t, b, poolMesh, "gossip:a")
	for _, idle := range []string{"20s", "30s", "40s", "50s"} {
		agenttest.Apply(t, a.Agent, timeoutText("slow", idle))
		agenttest.Eventually(t, "the change arrives", func() bool {
			mine, _ := a.Store().Snapshot().Get(poolTimeout)
			rec, ok := b.Store().Snapshot().Get(poolTimeout)
			return ok && rec.Digest == mine.Digest
		})
		for {
			asked := time.Now()
			m := memberOf(t, a, "b")
			if m.InSync && m.Lag == 0 && m.Revision == memberOf(t, a, "a").Revision && !m.Since.IsZero() {
				break
			}
			if time.Since(asked) < time.Second { // otherwise, b may not have answered in time
				t.Fatalf("after %s: %+v", idle, m)
			}
		}
	}
	if c := poolCheck(t, a, "pool-state"); !c.OK || c.Degraded ||
		c.Reason != "1 other live node has the resources of this node" {
		t.Errorf("check: %+v", c)
	}
	agenttest.Do(t, b.Stop())
	agenttest.Eventually(t, "the check names the dead node", func() bool {
		return strings.Contains(checkOf(t, a), "1 member is dead: b")
	})
}

// TestAuthorOnOtherNodes checks that another node shows who wrote a resource, and where.
func TestAuthorOnOtherNodes(t *testing.T) {
	t.Parallel()
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	b := pooled(t, agenttest.ShortDir(t), "b", a.Addrs().Gossip.String())
	_, err := a.Api().Apply(t.Context(), []byte("type: Mesh\nname: default\n"), false)
	agenttest.Do(t, err)
	has(t, b, poolMesh, "gossip:a")
	want, err := a.Api().Get(t.Context(), "meshes", "", "default")
	agenttest.Do(t, err)
	got, err := b.Api().Get(t.Context(), "meshes", "", "default")
	agenttest.Do(t, err)
	if want.Meta.Author == "" || got.Meta.Author != want.Meta.Author || got.Meta.Source != "gossip:a" {
		t.Errorf("on the other node %+v, on the writer %+v", got.Meta, want.Meta)
	}
}

// TestClocksThatDiffer checks that in a pool of two nodes with different clocks both nodes report
// it and accept writes, and that the slower one names the records that wait for their date.
func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	dir := agenttest.ShortDir(t)
	b := agenttest.Up(t, dir, agent.Deps{Now: func() time.Time { return time.Now().Add(time.Hour) }}, "node.name=b",
		"gossip.bind=127.0.0.1:0", "gossip.keyringFile="+keyringOf(t, dir, "A"), "gossip.join="+a.Addrs().Gossip.String())
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n")
	has(t, b, poolMesh, "gossip:a")
	agenttest.Apply(t, b.Agent, timeoutText("slow", "20s"))
	for _, r := range []*agenttest.Running{a, b} {
		agenttest.Eventually(t, "the clocks are compared", func() bool {
			return strings.Contains(checkOf(t, r), "the clock of a node differs by")
		})
	}
	agenttest.Eventually(t, "the check names the record", func() bool {
		c := poolCheck(t, a, "pool-state")
		return c.OK && c.Degraded && strings.Contains(c.Reason, "records dated in the future, which take effect at their "+
			"date: 1, the first is MeshTimeout/default/slow: takes effect at ")
	})
	if _, ok := a.Store().Snapshot().Get(poolTimeout); ok {
		t.Error("a record dated in the future is in force")
	}
	if code, body := a.Request("GET", "http://nearside/metrics", ""); code != 200 ||
		!strings.Contains(body, `nearside_gossip_refused_records{reason="clock"} 1`) ||
		!strings.Contains(body, "nearside_gossip_differs_seconds ") {
		t.Errorf("metrics: %d %s", code, body)
	}
}
