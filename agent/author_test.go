package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// wantAuthor waits until an agent shows a resource with an author and a commit.
func wantAuthor(t *testing.T, r *agenttest.Running, plural string, k resource.Key, want api.Author, commit string) {
	t.Helper()
	var got api.Meta
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s on %s: %+v", k, r.Config().Node.Name, got)
		}
	})
	agenttest.Eventually(t, k.String()+" has its author on "+r.Config().Node.Name, func() bool {
		item, err := r.Api().Get(t.Context(), plural, k.Mesh, k.Name)
		if err != nil {
			return false
		}
		got = item.Meta
		return got.SignedBy == want && got.Author == want.Name && got.Commit == commit
	})
}

// TestAuthors checks the author of each resource on three agents: of an unsigned write, of a signed
// write, of a Dataplane, and of a published directory; after a restart, and on a node that joins
// late.
func TestAuthors(t *testing.T) {
	t.Parallel()
	dirs := map[string]string{}
	for _, n := range []string{"a", "b", "c"} {
		dirs[n] = agenttest.ShortDir(t)
	}
	dir := filepath.Join(dirs["b"], "team")
	agenttest.Do(t, os.MkdirAll(dir, 0o700))
	for name, text := range map[string]string{"t.yaml": timeoutText("team", "7s"), "publish.revision": "c0ffee\nCarol\n"} {
		agenttest.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	a := pooled(t, dirs["a"], "a", "")
	join := a.Addrs().Gossip.String()
	b := pooled(t, dirs["b"], "b", join, checkout(dir).set())
	alice := trustKey("alice")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n")
	mesh, err := a.Api().Get(t.Context(), "meshes", "", "default")
	agenttest.Do(t, err)
	has(t, b, poolMesh, "gossip:a")
	agenttest.Apply(t, b.Agent, agenttest.DataplaneText("default", "web", "10.0.0.2"))
	_, err = b.Api().WriteSigned(t.Context(), alice, signedPut(t, timeoutText("slow", "20s")))
	agenttest.Do(t, err)

	team := poolTimeout
	team.Name = "team"
	has(t, a, team, "published:team")
	user, key := mesh.Meta.Author, sign.Fingerprint(alice.Public()).String()
	check := func(r *agenttest.Running) {
		t.Helper()
		wantAuthor(t, r, "meshes", poolMesh, api.Author{Name: user, Node: "a", Verified: true}, "")
		wantAuthor(t, r, "meshtimeouts", poolTimeout, api.Author{Name: "Alice", Key: key, Verified: true}, "")
		wantAuthor(t, r, "meshtimeouts", team, api.Author{Name: "Carol", Node: "b", Verified: true}, "c0ffee")
		if r != b {
			wantAuthor(t, r, "dataplanes", poolWeb, api.Author{Name: "b", Node: "b", Verified: true}, "")
		}
		h, err := r.Api().History(t.Context(), "meshtimeouts", "default", "slow")
		agenttest.Do(t, err)
		if n := len(h.Items); n == 0 || h.Items[n-1].SignedBy.Key != key {
			t.Errorf("the history on %s: %+v", r.Config().Node.Name, h.Items)
		}
	}
	check(a)
	check(b)
	check(pooled(t, dirs["c"], "c", join))
	agenttest.Do(t, a.Stop())
	check(pooled(t, dirs["a"], "a", b.Addrs().Gossip.String()))
}

// signedPut returns the change that stores a document, with the author Alice.
func signedPut(t testing.TB, text string) engine.Put {
	t.Helper()
	r := agenttest.Decoded(t, text)[0]
	body, err := resource.Marshal(r)
	agenttest.Do(t, err)
	return engine.Put{Key: engine.Key(r.Key), MediaType: store.MediaType, Body: body, Author: "Alice"}
}
