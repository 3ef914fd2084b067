package directory_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// watchPublished watches a published directory.
func watchPublished(t *testing.T, dir string, s *store.Store, change ...func(*directory.Options)) (w *watched,
	inPool *atomic.Bool) {
	t.Helper()
	inPool = new(atomic.Bool)
	return watch(t, dir, s, func(o *directory.Options) {
		o.Dirs = []directory.Dir{{Path: dir, Publish: "p"}}
		o.OfNode = func(kind string) bool { return kind == "Dataplane" }
		o.InPool = func(id string) bool { return id == "p" && inPool.Load() }
		for _, f := range change {
			f(o)
		}
	}), inPool
}

// content waits until the published content has these resources and a fault with a text, and is not
// busy.
func (w *watched) content(names, fault string) (got directory.Published) {
	w.t.Helper()
	agenttest.Await(w.t, "the content is "+names+" "+fault, w.scanned, func() bool {
		got = w.source.Published()[0]
		var list []string
		for _, r := range got.Resources {
			list = append(list, r.Name)
		}
		return !got.Busy && strings.Join(list, " ") == names && strings.Contains(got.Fault, fault) &&
			(got.Fault == "") == (fault == "")
	})
	return got
}

// TestPublishedUntilInPool checks that files of a published directory are in force on their node
// until the pool owns their resources. From then on they only change the content to publish.
func TestPublishedUntilInPool(t *testing.T) {
	w, inPool := watchPublished(t, t.TempDir(), agenttest.Memory(t))
	w.write("a.yaml", agenttest.Meshes("a", "b"))
	w.Want("a@a.yaml b@a.yaml")
	before := w.content("a b", "")
	inPool.Store(true)
	w.replace("a.yaml", agenttest.Meshes("a+"))
	w.write("c.yaml", agenttest.Meshes("c"))
	after := w.content("a c", "")
	if before.Digest == after.Digest || !after.Since.After(before.Since) {
		t.Error("the digest or the time has not changed with the content")
	}
	w.Want("a@a.yaml b@a.yaml") // the pool replaces them
	for _, f := range w.source.Files() {
		if f.Resources != 1 || len(f.Conflicts) > 0 {
			t.Errorf("status of %s: %+v", f.Path, f)
		}
	}
}

// TestPublishedRefuses checks that a directory with a faulty file, a resource that belongs to a
// node, or a file outside is not published at all, and that the fault names the reason.
func TestPublishedRefuses(t *testing.T) {
	w, inPool := watchPublished(t, t.TempDir(), agenttest.Memory(t))
	inPool.Store(true)
	w.write("a.yaml", agenttest.Meshes("a"))
	w.content("a", "")
	w.write("b.yaml", "type: Mesh\nname: 7x_\n")
	w.content("a", "b.yaml")
	w.write("b.yaml", "type: Dataplane\nmesh: a\nname: d\nnetworking: {address: 10.0.0.1, inbound: "+
		"[{port: 80, tags: {kuma.io/service: s}}]}\n")
	w.content("a", "a Dataplane belongs to the node that runs it and cannot be published")
	agenttest.Do(t, os.Remove(w.path("b.yaml")))
	w.content("a", "")
	out := filepath.Join(t.TempDir(), "out.yaml")
	agenttest.Write(t, out, agenttest.Meshes("out"))
	agenttest.Do(t, os.Symlink(out, w.path("link.yaml")))
	w.content("a", "is published, so links must be relative and stay inside")
	agenttest.Do(t, os.Remove(w.path("link.yaml")))
	w.write("z.yaml", agenttest.Meshes("a+", "z"))
	w.content("a z", "") // the first file has a
}

// TestPublishedNeverEmptyByAccident checks that a missing directory, and an empty one without a
// revision, are faults. A revision confirms that a directory is empty on purpose.
func TestPublishedNeverEmptyByAccident(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	agenttest.Do(t, os.Mkdir(dir, 0o755))
	w, inPool := watchPublished(t, dir, agenttest.Memory(t))
	inPool.Store(true)
	w.content("", "neither resources nor a revision")
	w.write("a.yaml", agenttest.Meshes("a"))
	w.content("a", "")
	agenttest.Do(t, os.Rename(dir, dir+".old"))
	w.content("a", "cannot be read")
	agenttest.Do(t, os.Mkdir(dir, 0o755))
	w.content("", "neither resources nor a revision")
	w.write(directory.RevisionFile, "v2\n")
	if got := w.content("", ""); got.Commit != "v2" {
		t.Errorf("commit %q", got.Commit)
	}
}

// TestPublishedIsBusyWhileFilesChange checks that the content is not ready while a deleted file may
// come back.
func TestPublishedIsBusyWhileFilesChange(t *testing.T) {
	w, inPool := watchPublished(t, t.TempDir(), agenttest.Memory(t), func(o *directory.Options) { o.Retain = time.Hour })
	inPool.Store(true)
	w.write("a.yaml", agenttest.Meshes("a"))
	w.write("b.yaml", agenttest.Meshes("b"))
	w.content("a b", "")
	agenttest.Do(t, os.Remove(w.path("b.yaml")))
	agenttest.Await(t, "the content is busy", w.scanned, func() bool { return w.source.Published()[0].Busy })
	if n := len(w.source.Published()[0].Resources); n != 2 {
		t.Errorf("%d resources, want 2", n)
	}
	w.write("b.yaml", agenttest.Meshes("b+"))
	w.content("a b", "")
}
