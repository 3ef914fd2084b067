package agent_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/keyring"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// stateOf returns the state of a node as an agent sees it.
func stateOf(t *testing.T, r *agenttest.Running, name string) string {
	t.Helper()
	got, err := r.Api().Members(t.Context())
	agenttest.Do(t, err)
	for _, m := range got.Items {
		if m.Name == name {
			return m.State
		}
	}
	return ""
}

// TestJoinAndLeave checks that an agent can join a pool by an address or a file with addresses,
// waits until all nodes have a resource, can leave permanently, and is forgotten if it dies.
func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n")
	b := pooled(t, agenttest.ShortDir(t), "b", "")
	joined, err := b.Api().Join(t.Context(), []string{"127.0.0.1:1", a.Addrs().Gossip.String()})
	agenttest.Do(t, err)
	if len(joined.Items) != 2 || joined.Items[0].Reached || !joined.Items[1].Reached {
		t.Errorf("joined %+v", joined.Items)
	}
	has(t, b, poolMesh, "gossip:a")
	list := filepath.Join(agenttest.ShortDir(t), "seeds")
	agenttest.Write(t, list, "# all\n"+a.Addrs().Gossip.String()+" # the first\nnonsense\n")
	c := pooled(t, agenttest.ShortDir(t), "c", "file:"+list)
	has(t, c, poolMesh, "gossip:a")
	if got := checkOf(t, c); !strings.Contains(got, `line 3: "nonsense" is not host:port`) {
		t.Errorf("check: %s", got)
	}

	// A resource that all nodes apply.
	agenttest.Apply(t, b.Agent, agenttest.DataplaneText("default", "web", "127.0.0.9"))
	has(t, a, poolWeb, "peer:b")
	agenttest.Apply(t, a.Agent, timeoutText("slow", "20s"))
	wait := func(q api.Wait) (got *api.Applied) {
		t.Helper()
		q.Type, q.Mesh, q.Name, q.Scope = "MeshTimeout", "default", "slow", api.ScopeMesh
		q.Timeout = agenttest.LongestWait
		agenttest.Eventually(t, "all nodes have answered", func() bool {
			var err error
			got, err = a.Api().Wait(t.Context(), q)
			agenttest.Do(t, err)
			return got.State != api.StatePending
		})
		return got
	}
	if got := wait(api.Wait{}); got.State != api.StateApplied || got.Nodes != 3 {
		t.Errorf("a policy that is on all nodes: %+v", got)
	}
	agenttest.Remove(t, a.Agent, poolTimeout)
	if got := wait(api.Wait{For: api.ForGone}); got.State != api.StateGone || got.Nodes != 3 {
		t.Errorf("gone: %+v", got)
	}

	agenttest.Do(t, b.Api().Leave(t.Context()))
	has(t, a, poolWeb, "")
	has(t, c, poolWeb, "")
	agenttest.Eventually(t, "b has left", func() bool {
		return stateOf(t, a, "b") == "left" && strings.Contains(checkOf(t, b), "this node has left the pool")
	})
	if rec, ok := b.Store().Snapshot().Get(poolWeb); !ok || rec.Source.Kind != "api" {
		t.Error("a node that has left has lost its own")
	}
	for _, name := range []string{"c", "nobody"} {
		if err := a.Api().Forget(t.Context(), name); err == nil {
			t.Errorf("%s is forgotten", name)
		}
	}
	agenttest.Apply(t, c.Agent, agenttest.DataplaneText("default", "api", "127.0.0.9"))
	api := resource.Key{Kind: "Dataplane", Mesh: "default", Name: "api"}
	has(t, a, api, "peer:c")
	agenttest.Do(t, c.Stop())
	agenttest.Eventually(t, "c is dead", func() bool { return stateOf(t, a, "c") == "dead" })
	agenttest.Do(t, a.Api().Forget(t.Context(), "c"))
	has(t, a, api, "")
}

// TestConflicts checks that of two concurrent changes the one that lost is listed on the node that
// made it, and can be restored.
func TestConflicts(t *testing.T) {
	t.Parallel()
	dir := agenttest.ShortDir(t)
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n---\n"+timeoutText("slow", "20s"))
	b := pooled(t, dir, "b", a.Addrs().Gossip.String())
	has(t, b, poolTimeout, "gossip:a")
	agenttest.Do(t, b.Stop())
	agenttest.Apply(t, a.Agent, timeoutText("slow", "30s"))
	// With another key, b cannot return to a, which it knows, before its change.
	b = pooled(t, dir, "b", "", "gossip.keyringFile="+keyringOf(t, agenttest.ShortDir(t), "B"))
	agenttest.Apply(t, b.Agent, timeoutText("slow", "40s"))
	agenttest.Do(t, b.Stop())
	b = pooled(t, dir, "b", a.Addrs().Gossip.String())
	has(t, a, poolTimeout, "gossip:b")
	got, err := a.Api().Conflicts(t.Context(), false)
	agenttest.Do(t, err)
	if len(got.Items) != 1 {
		t.Fatalf("conflicts %+v", got.Items)
	}
	c := got.Items[0]
	if c.State != api.ConflictLost || c.Node != "a" || c.Type != "MeshTimeout" || c.Name != "slow" ||
		!strings.Contains(string(c.Resource), "30s") || c.Deleted {
		t.Errorf("conflict %+v %s", c, c.Resource)
	}
	var allNodes *api.Conflicts
	agenttest.Eventually(t, "both nodes answer", func() bool {
		allNodes, err = b.Api().Conflicts(t.Context(), true)
		agenttest.Do(t, err)
		return allNodes.Nodes == 2 && len(allNodes.Unanswered) == 0
	})
	// b finds it too, with the resource, if the change of a arrives there before that of b leaves.
	if len(allNodes.Items) != 1 || allNodes.Items[0].ID != c.ID || !slices.Contains(allNodes.Items[0].FoundOn, "a") ||
		(allNodes.Items[0].Resource != nil) != slices.Contains(allNodes.Items[0].FoundOn, "b") {
		t.Errorf("the other node lists %+v", allNodes)
	}
	if _, err := a.Api().RestoreConflict(t.Context(), api.RestoreConflict{ID: "nothing"}); err == nil {
		t.Error("what does not exist is restored")
	}
	if _, err := a.Api().RestoreConflict(t.Context(), api.RestoreConflict{ID: c.ID, DryRun: true}); err != nil {
		t.Error(err)
	}
	_, err = a.Api().RestoreConflict(t.Context(), api.RestoreConflict{ID: c.ID})
	agenttest.Do(t, err)
	has(t, b, poolTimeout, "gossip:a")
	for _, r := range []*agenttest.Running{a, b} {
		rec, _ := r.Store().Snapshot().Get(poolTimeout)
		if doc, err := resource.Marshal(rec.Resource); err != nil || !strings.Contains(string(doc), "30s") {
			t.Errorf("restored: %s %v", doc, err)
		}
		agenttest.Eventually(t, "no conflict is left", func() bool {
			x, err := r.Api().Conflicts(t.Context(), false)
			return err == nil && len(x.Items) == 0
		})
	}
}

// TestKeyChange checks that a pool can change its key without losing changes, and reports unusable
// keyrings.
func TestKeyChange(t *testing.T) {
	t.Parallel()
	var agents []*agenttest.Running
	var rings []keyring.File
	var paths []string
	join := ""
	for i := range 3 {
		dir := agenttest.ShortDir(t)
		r := pooled(t, dir, fmt.Sprintf("n%d", i), join)
		if i == 0 {
			join = r.Addrs().Gossip.String()
			agenttest.Apply(t, r.Agent, "type: Mesh\nname: default\n")
		}
		agents, rings, paths = append(agents, r), append(rings, keyring.Open(filepath.Join(dir, "keyring-A"))),
			append(paths, filepath.Join(dir, "keyring-A"))
	}
	old, err := rings[0].List()
	agenttest.Do(t, err)
	fresh := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("n", 32)))
	reloads := map[int]int{} // by agent, before the steps
	step := func(what string, change func(keyring.File) error) {
		t.Helper()
		for i, ring := range rings {
			agenttest.Do(t, change(ring))
			agenttest.Eventually(t, what+" is known", func() bool {
				return strings.Count(agents[i].Logs.String(), "keyring reloaded")-reloads[i] == stepsSoFar(what)
			})
			// Changes pass between each pair of nodes.
			agenttest.Apply(t, agents[i].Agent, timeoutText("slow", fmt.Sprintf("%d.%ds", stepsSoFar(what), i+1)))
			for _, o := range agents {
				agenttest.Eventually(t, "the change after "+what, func() bool {
					rec, ok := o.Store().Snapshot().Get(poolTimeout)
					if !ok {
						return false
					}
					mine, _ := agents[i].Store().Snapshot().Get(poolTimeout)
					return rec.Digest == mine.Digest
				})
			}
		}
	}
	for _, a := range agents { // so each of them asks the two others
		agenttest.Eventually(t, "3 live members", func() bool {
			got, err := a.Api().Members(t.Context())
			return err == nil && len(got.Items) == 3 &&
				!slices.ContainsFunc(got.Items, func(m api.Member) bool { return m.State != "alive" })
		})
	}
	var id string
	id, err = rings[0].Add(fresh)
	agenttest.Do(t, err)
	keys := func(r *agenttest.Running) (got *api.Keyring) {
		t.Helper()
		agenttest.Eventually(t, "all nodes answer", func() bool {
			var err error
			got, err = r.Api().Keyring(t.Context()) // the agent loads the file at once
			agenttest.Do(t, err)
			return got.Nodes == 3 && len(got.Unanswered) == 0
		})
		return got
	}
	got := keys(agents[0])
	if len(got.Items) != 2 || got.File != paths[0] ||
		!reflect.DeepEqual(got.Items[0], api.PoolKey{Fingerprint: old[0], Loaded: true, Encrypts: true,
			EncryptsOn: []string{"n1", "n2"}}) ||
		!reflect.DeepEqual(got.Items[1], api.PoolKey{Fingerprint: id, Loaded: true, MissingOn: []string{"n1", "n2"}}) {
		t.Errorf("keys after an addition on one node: %+v", got)
	}
	got = keys(agents[1])
	if len(got.Items) != 2 || got.Items[1].Loaded || got.Items[1].Fingerprint != id ||
		!slices.Equal(got.Items[1].MissingOn, []string{"n2"}) {
		t.Errorf("keys on another node: %+v", got)
	}
	agenttest.Do(t, rings[0].Remove(id))
	_, err = agents[0].Api().Keyring(t.Context())
	agenttest.Do(t, err)
	reloads = map[int]int{0: 2}

	step("add", func(f keyring.File) (err error) { id, err = f.Add(fresh); return err })
	step("use", func(f keyring.File) error { return f.Use(id) })
	step("remove", func(f keyring.File) error { return f.Remove(old[0]) })
	if list, err := rings[0].List(); err != nil || len(list) != 1 || list[0] != id {
		t.Errorf("keys %q, %v", list, err)
	}
	if b, err := os.ReadFile(paths[0]); err != nil || !strings.HasPrefix(string(b), "# of the test\n") {
		t.Errorf("the comment is gone: %v", err)
	}
	for what, err := range map[string]error{
		"the key that encrypts": rings[0].Remove(id), "no key": rings[0].Use("0000000000000000"),
		"twice":    func() error { _, err := rings[0].Add(fresh); return err }(),
		"nonsense": func() error { _, err := rings[0].Add("x"); return err }(),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	agenttest.Do(t, os.WriteFile(paths[0], []byte("nonsense\n"), 0o600))
	agenttest.Eventually(t, "the check says so", func() bool {
		return strings.Contains(checkOf(t, agents[0]), "the changed keyring is invalid")
	})
}

// stepsSoFar returns how often a keyring was read before this step.
func stepsSoFar(step string) int { return map[string]int{"add": 1, "use": 2, "remove": 3}[step] }
