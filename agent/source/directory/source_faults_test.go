package directory_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func TestDirBadFileKeepsLastGood(t *testing.T) {
	dir, s := t.TempDir(), agenttest.Memory(t)
	retain := func(o *directory.Options) { o.Retain = time.Hour } // a write empties the file for a moment
	w := watch(t, dir, s, retain)
	w.write("a.yaml", agenttest.Meshes("a", "b"))
	w.write("z.yaml", agenttest.Meshes("z"))
	w.Want("a@a.yaml b@a.yaml z@z.yaml")

	// A document with a fault retains the last good content of the whole file.
	w.write("a.yaml", agenttest.Meshes("a+")+"---\ntype: Mesh\nname: c\nnonsense: 1\n")
	f := w.faulty("a.yaml", w.path("a.yaml")+":8", "nonsense")
	if !f.Stale || f.Resources != 2 || f.Loaded.IsZero() {
		t.Errorf("status: %+v", f)
	}
	w.write("z.yaml", agenttest.Meshes("z+")) // other files are not affected
	w.Want("a@a.yaml b@a.yaml z+@z.yaml")

	// Also after a restart.
	w.stop()
	w = watch(t, dir, s, retain)
	if f := w.faulty("a.yaml", "nonsense"); !f.Stale || f.Resources != 2 || f.Loaded.IsZero() {
		t.Errorf("status after a restart: %+v", f)
	}
	w.Want("a@a.yaml b@a.yaml z+@z.yaml")

	w.write("a.yaml", agenttest.Meshes("a+"))
	w.Want("a+@a.yaml z+@z.yaml")
	w.status("a.yaml", "is mended", func(f api.FileStatus) bool {
		return len(f.Faults) == 0 && !f.Stale && f.Resources == 1
	})
}

func TestDirVanishedWhileDown(t *testing.T) {
	dir, s := t.TempDir(), agenttest.Memory(t)
	w := watch(t, dir, s, nil)
	w.write("a.yaml", agenttest.Meshes("a"))
	w.write("b.yaml", agenttest.Meshes("b"))
	w.Want("a@a.yaml b@b.yaml")
	w.stop()
	agenttest.Do(t, os.Remove(w.path("a.yaml")))
	w = watch(t, dir, s, nil)
	w.Want("b@b.yaml")
	w.stop() // two sources on one store would undo each other's changes
	// With another directory, resources of the old one are removed when the new one can be read.
	other := filepath.Join(t.TempDir(), "other")
	w = watch(t, other, s, nil)
	w.Want("b@b.yaml")
	agenttest.Do(t, os.Mkdir(other, 0o755))
	w.Want("")
}

func TestDirDuplicates(t *testing.T) {
	w := watch(t, t.TempDir(), agenttest.Memory(t), nil)
	w.write("b.yaml", agenttest.Meshes("x+", "b"))
	w.Want("b@b.yaml x+@b.yaml")
	w.write("c.yaml", agenttest.Meshes("x", "c"))
	w.Want("b@b.yaml c@c.yaml x+@b.yaml")
	f := w.status("c.yaml", "is in conflict", func(f api.FileStatus) bool { return len(f.Conflicts) == 1 })
	if got, want := f.Conflicts["Mesh/x"], "file:"+w.path("b.yaml"); got != want || f.Resources != 1 {
		t.Errorf("conflict with %q, want %q; %d resources", got, want, f.Resources)
	}
	w.write("a.yaml", agenttest.Meshes("x")) // the first file by path wins
	w.Want("b@b.yaml c@c.yaml x@a.yaml")
	w.status("b.yaml", "is in conflict", func(f api.FileStatus) bool { return len(f.Conflicts) == 1 })
	agenttest.Do(t, os.Remove(w.path("a.yaml")))
	w.Want("b@b.yaml c@c.yaml x+@b.yaml")
	if agenttest.Flapped(w.store, agenttest.MeshKey("x")) {
		t.Error("the resource was deleted while it moved between files")
	}
	w.write("e.yaml", agenttest.Meshes("e", "e+")) // a declaration before its document
	w.Want("b@b.yaml c@c.yaml e+@e.yaml x+@b.yaml")
	w.write("d.yaml", agenttest.Meshes("d+", "d"))
	w.faulty("d.yaml", "Mesh/d", "more than once")
}

func TestDirMove(t *testing.T) {
	// A file waits for the end of another file's grace time to take over a resource.
	w := watch(t, t.TempDir(), agenttest.Memory(t), func(o *directory.Options) { o.Retain = 250 * time.Millisecond })
	w.replace("b.yaml", agenttest.Meshes("x", "b"))
	w.Want("b@b.yaml x@b.yaml")
	for _, to := range []string{"a", "c"} { // before and after it in path order
		w.replace(to+".yaml", agenttest.Meshes("x"))
		w.replace("b.yaml", agenttest.Meshes("b"))
		w.Want("b@b.yaml x@" + to + ".yaml")
		w.replace("b.yaml", agenttest.Meshes("b", "x"))
		agenttest.Do(t, os.Remove(w.path(to+".yaml")))
		w.Want("b@b.yaml x@b.yaml")
	}
	agenttest.Do(t, os.Rename(w.path("b.yaml"), w.path("e.yaml")))
	w.Want("b@e.yaml x@e.yaml")
	if agenttest.Flapped(w.store, agenttest.MeshKey("x")) || agenttest.Flapped(w.store, agenttest.MeshKey("b")) {
		t.Error("a resource was deleted while it moved")
	}
}

func TestDirConflictWithAPI(t *testing.T) {
	w := watch(t, t.TempDir(), agenttest.Memory(t), nil)
	agenttest.ByAPI(t, w.store, agenttest.Meshes("x"))
	w.write("a.yaml", agenttest.Meshes("a", "x+"))
	w.Want("a@a.yaml x@api")
	f := w.status("a.yaml", "is in conflict", func(f api.FileStatus) bool { return len(f.Conflicts) == 1 })
	if f.Conflicts["Mesh/x"] != "api" || f.Resources != 1 {
		t.Errorf("status: %+v", f)
	}
	if _, err := w.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
		Ops: []store.Op{{Delete: agenttest.MeshKey("x")}}}); err != nil {
		t.Fatal(err)
	}
	w.Want("a@a.yaml x+@a.yaml") // released by the API
}
