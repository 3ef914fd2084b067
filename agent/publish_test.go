package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// checkout is a directory on a node that is published with the id "team".
type checkout string

func newCheckout(t *testing.T) checkout {
	return checkout(filepath.Join(agenttest.ShortDir(t), "team"))
}

// set returns the setting of a node with the directory.
func (c checkout) set() string {
	return fmt.Sprintf("resources.dir=[{path: resources}, {path: %s, publish: true, id: team}]", c)
}

// write replaces the files by those of a commit: the mesh default, and timeouts with the name of
// the commit as a label.
func (c checkout) write(t *testing.T, commit string, timeouts ...string) {
	t.Helper()
	text := "type: Mesh\nname: default\n"
	for _, name := range timeouts {
		text += "---\n" + strings.Replace(timeoutText(name, "20s"), "\nspec:", "\nlabels: {commit: "+commit+"}\nspec:", 1)
	}
	agenttest.Do(t, os.MkdirAll(string(c), 0o755))
	agenttest.Write(t, filepath.Join(string(c), "team.yaml"), text)
	agenttest.Write(t, filepath.Join(string(c), "publish.revision"), commit+"\nAda\n")
}

// published waits until an agent has a timeout of a commit from the directory.
func published(t *testing.T, r *agenttest.Running, name, commit string) {
	t.Helper()
	k := resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: name}
	agenttest.Await(t, fmt.Sprintf("%s has %s of commit %s", r.Config().Node.Name, name, commit), storeChanges(t, r),
		func() bool {
			rec, ok := r.Store().Snapshot().Get(k)
			return ok && rec.Source.String() == "published:team" && rec.Resource.Labels["commit"] == commit
		})
}

// publishCheck waits until the check of published directories contains the texts.
func publishCheck(t *testing.T, r *agenttest.Running, texts ...string) {
	t.Helper()
	last := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last check of %s: %s", r.Config().Node.Name, last)
		}
	})
	agenttest.Eventually(t, fmt.Sprintf("the check of %s contains %q", r.Config().Node.Name, texts), func() bool {
		s, err := r.Api().Status(t.Context())
		agenttest.Do(t, err)
		for _, c := range s.Checks {
			if c.Name == "published-directories" {
				last = c.Reason
				for _, text := range texts {
					if !strings.Contains(c.Reason, text) {
						return false
					}
				}
				return true
			}
		}
		return false
	})
}

func timeoutKey(name string) resource.Key {
	return resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: name}
}

// TestPublish checks that all nodes get the resources of a published directory with author and
// commit, that a removed one is deleted on all nodes without a tombstone, that the API refuses
// changes, that a file takes precedence on its node, that all of this survives a restart, and that
// operators can delete a directory that no node has any more.
func TestPublish(t *testing.T) {
	t.Parallel()
	files := newCheckout(t)
	files.write(t, "v1", "slow", "extra")
	a := pooled(t, agenttest.ShortDir(t), "a", "", files.set())
	join := a.Addrs().Gossip.String()
	dir := agenttest.ShortDir(t)
	b := pooled(t, dir, "b", join)
	for _, r := range []*agenttest.Running{a, b} {
		published(t, r, "slow", "v1")
		published(t, r, "extra", "v1")
		publishCheck(t, r, "team: published by a at commit v1, 3 resources")
	}
	if code, body := b.Request("GET", "http://nearside/meshes/default/meshtimeouts/slow?meta=true", ""); code != 200 ||
		!strings.Contains(body, `"source":"published:team","author":"Ada","commit":"v1"`) {
		t.Errorf("%d %s", code, body)
	}
	for _, r := range []*agenttest.Running{a, b} {
		if code, body := r.Request("DELETE", "http://nearside/meshes/default/meshtimeouts/slow", ""); code != 409 ||
			!strings.Contains(body, "directory team, which is published at commit v1") {
			t.Errorf("%d %s", code, body)
		}
	}

	own := filepath.Join(dir, "resources", "own.yaml")
	agenttest.Do(t, os.MkdirAll(filepath.Dir(own), 0o755))
	agenttest.Write(t, own, timeoutText("extra", "5s"))
	has(t, b, timeoutKey("extra"), "file:"+own)
	publishCheck(t, b, "1 published resource is not in force on this node", "MeshTimeout/default/extra")
	published(t, a, "extra", "v1")
	agenttest.Do(t, os.Remove(own))
	published(t, b, "extra", "v1")

	files.write(t, "v2", "slow")
	for _, r := range []*agenttest.Running{a, b} {
		has(t, r, timeoutKey("extra"), "")
		published(t, r, "slow", "v2")
		if v := r.Store().Version(timeoutKey("extra")); v != nil {
			t.Errorf("%s holds a version of the deleted resource: %+v", r.Config().Node.Name, v)
		}
	}

	agenttest.Do(t, a.Stop(), b.Stop())
	b = pooled(t, dir, "b", join)
	if rec, ok := b.Store().Snapshot().Get(timeoutKey("slow")); !ok || rec.Source.String() != "published:team" {
		t.Errorf("after a restart alone: %v from %q", ok, rec.Source)
	}
	publishCheck(t, b, "published by a at commit v2", "no live node has these or later files")
	agenttest.Do(t, b.Api().Forget(t.Context(), "team"))
	has(t, b, timeoutKey("slow"), "")
	has(t, b, poolMesh, "")
}

// TestPublishTakeover checks that only one node publishes, that an older checkout on another node
// does not replace its version, and that another node with later files takes over if the directory
// cannot be read, or if the node dies. An empty directory without a revision deletes nothing.
func TestPublishTakeover(t *testing.T) {
	t.Parallel()
	first, second := newCheckout(t), newCheckout(t)
	first.write(t, "v1", "slow")
	second.write(t, "v1", "slow")
	firstDir := agenttest.ShortDir(t)
	a := pooled(t, firstDir, "a", "", first.set())
	join := a.Addrs().Gossip.String()
	publishCheck(t, a, "published by a at commit v1")
	b := pooled(t, agenttest.ShortDir(t), "b", join, second.set())
	c := pooled(t, agenttest.ShortDir(t), "c", join)
	all := []*agenttest.Running{a, b, c}

	first.write(t, "v2", "slow", "extra")
	for _, r := range all {
		published(t, r, "extra", "v2")
		publishCheck(t, r, "published by a at commit v2")
	}
	publishCheck(t, b, "the files of this node are behind at commit v1")

	// Its files are lost. Those of the other node are older, so nothing changes until they are later.
	agenttest.Do(t, os.RemoveAll(string(first)), os.Mkdir(string(first), 0o755))
	publishCheck(t, a, "no live node has these or later files", "neither resources nor a revision")
	published(t, c, "extra", "v2")
	second.write(t, "v3", "slow")
	for _, r := range all {
		publishCheck(t, r, "published by b at commit v3")
		published(t, r, "slow", "v3")
		has(t, r, timeoutKey("extra"), "")
	}

	// The first checkout is back, and does not replace the other one.
	first.write(t, "v4", "slow", "other")
	publishCheck(t, a, "published by b at commit v3", "the files of this node are ahead at commit v4")
	agenttest.Do(t, b.Stop())
	for _, r := range []*agenttest.Running{a, c} {
		published(t, r, "other", "v4")
		publishCheck(t, r, "published by a at commit v4")
	}

	// A revision confirms that an empty directory is intended.
	agenttest.Do(t, os.Remove(filepath.Join(string(first), "team.yaml")))
	publishCheck(t, a, "team: published by a at commit v4, 0 resources")
	has(t, c, timeoutKey("slow"), "")
	has(t, c, poolMesh, "")
}

// TestPublishHandover checks that resources of a directory remain in force while the pool takes
// over their ownership, and that operators' resources keep precedence until they are deleted.
func TestPublishHandover(t *testing.T) {
	t.Parallel()
	files := newCheckout(t)
	files.write(t, "v1", "slow")
	dir := agenttest.ShortDir(t)
	alone := agenttest.Up(t, dir, agent.Deps{}, "node.name=a", files.set())
	has(t, alone, timeoutKey("slow"), "file:"+filepath.Join(string(files), "team.yaml"))
	agenttest.Apply(t, alone.Agent, timeoutText("written", "5s"))
	agenttest.Do(t, alone.Stop())

	files.write(t, "v2", "slow", "written")
	a := pooled(t, dir, "a", "", files.set())
	published(t, a, "slow", "v2")
	if agenttest.Flapped(a.Store(), timeoutKey("slow")) {
		t.Error("the resource was deleted meanwhile")
	}
	publishCheck(t, a, "MeshTimeout/default/written: an operator wrote it over the API")
	has(t, a, timeoutKey("written"), "api")
	agenttest.Remove(t, a.Agent, timeoutKey("written"))
	published(t, a, "written", "v2")
}

// TestPublishJoin checks that a node that does not know the pool yet uses its files only itself, so
// that they do not replace later ones of the pool, and that two pools that each published the
// directory agree on one version after they have joined.
func TestPublishJoin(t *testing.T) {
	t.Parallel()
	late, other, files := newCheckout(t), newCheckout(t), newCheckout(t)
	late.write(t, "v1", "slow")
	b := pooled(t, agenttest.ShortDir(t), "b", "127.0.0.1:1", late.set())
	files.write(t, "v2", "slow")
	a := pooled(t, agenttest.ShortDir(t), "a", "", files.set())
	publishCheck(t, a, "published by a at commit v2")
	has(t, b, timeoutKey("slow"), "file:"+filepath.Join(string(late), "team.yaml"))
	publishCheck(t, b, "not published yet; this node uses its own files")
	join := a.Addrs().Gossip.String()
	if _, err := b.Api().Join(t.Context(), []string{join}); err != nil {
		t.Fatal(err)
	}
	published(t, b, "slow", "v2")
	publishCheck(t, b, "published by a at commit v2")

	other.write(t, "v3", "slow")
	c := pooled(t, agenttest.ShortDir(t), "c", "", other.set())
	publishCheck(t, c, "published by c at commit v3")
	if _, err := c.Api().Join(t.Context(), []string{join}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*agenttest.Running{a, b, c} {
		publishCheck(t, r, "published by c at commit v3")
		published(t, r, "slow", "v3")
	}
}
