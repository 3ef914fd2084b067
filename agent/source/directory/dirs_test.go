package directory_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/source/kubernetes"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// teams authorizes the roles of the tests: the role team may change meshes whose names begin with
// "t".
func teams(t *testing.T) func(string, access.Action) error {
	t.Helper()
	r, err := access.NewRoles(access.RoleOptions{GID: -1, Roles: []access.Role{
		{Name: "team",
			Allow: []access.Allow{{Kinds: []string{"Mesh"}, Names: []string{"t*"}, Verbs: []string{"create", "update"}}}},
		{Name: "creator", Allow: []access.Allow{{Kinds: []string{"Mesh"}, Verbs: []string{"create"}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r.CheckRole
}

// watchDirs watches the directories a and b. b has a role.
func watchDirs(t *testing.T, dir string, s *store.Store, role string, change ...func(*directory.Options)) *watched {
	t.Helper()
	return watch(t, dir, s, func(o *directory.Options) {
		o.Dirs = []directory.Dir{{Path: filepath.Join(dir, "a")}, {Path: filepath.Join(dir, "b"), Role: role}}
		o.May = teams(t)
		for _, f := range change {
			f(o)
		}
	})
}

// twoDirs creates a directory with the subdirectories a and b.
func twoDirs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "a"), 0o755), os.Mkdir(filepath.Join(dir, "b"), 0o755))
	return dir
}

// TestDirsAreWatched checks that changes in each directory are detected, and that a missing
// directory does not affect the others.
func TestDirsAreWatched(t *testing.T) {
	w := watchDirs(t, twoDirs(t), agenttest.Memory(t), "")
	w.write("a/x.yaml", agenttest.Meshes("x"))
	w.write("b/y.yaml", agenttest.Meshes("y"))
	w.Want("x@x.yaml y@y.yaml")
	w.write("a/x.yaml", agenttest.Meshes("x+"))
	w.write("b/y.yaml", agenttest.Meshes("y+"))
	w.Want("x+@x.yaml y+@y.yaml")

	agenttest.Do(t, os.Rename(w.path("b"), w.path("c")))
	w.status("b", "is missing", func(f api.FileStatus) bool {
		return len(f.Faults) == 1 && strings.Contains(f.Faults[0].Reason, "cannot be read")
	})
	w.write("a/x.yaml", agenttest.Meshes("x"))
	w.write("a/z.yaml", agenttest.Meshes("z"))
	w.Want("x@x.yaml y+@y.yaml z@z.yaml")
	agenttest.Do(t, os.Remove(w.path("a/z.yaml")))
	w.Want("x@x.yaml y+@y.yaml")

	agenttest.Do(t, os.Remove(w.path("c/y.yaml")), os.Rename(w.path("c"), w.path("b")))
	w.Want("x@x.yaml")
	w.write("b/x.yaml", agenttest.Meshes("x+", "b"))
	w.Want("b@x.yaml x@x.yaml")
	f := w.status("b/x.yaml", "is in conflict", func(f api.FileStatus) bool { return len(f.Conflicts) == 1 })
	if got, want := f.Conflicts["Mesh/x"], "file:"+w.path("a/x.yaml"); got != want {
		t.Errorf("conflict with %q, want %q", got, want)
	}
}

// TestLastPodLeaves removes the only file of a directory of the watcher. Its resources do not stay
// as long as those of a directory that a tool may be recreating.
func TestLastPodLeaves(t *testing.T) {
	s := agenttest.Memory(t)
	w := watchDirs(t, twoDirs(t), s, access.TemplateKubernetes, func(o *directory.Options) {
		o.Retain, o.RetainDeleted, o.Settle = time.Hour, 30*time.Millisecond, 10*time.Millisecond
	})
	changed, stop := s.Watch()
	defer stop()
	pods := func() int { return len(s.Snapshot().Set().Kind("Dataplane")) }
	w.write("b/pod.yaml", "{apiVersion: kuma.io/v1alpha1, kind: Dataplane, metadata: {name: pod, namespace: shop}, spec: "+
		"{networking: {address: 10.0.0.9, inbound: [{port: 8080, tags: {kuma.io/service: web}}]}}}\n")
	agenttest.Await(t, "the pod is there", changed, func() bool { return pods() == 1 })
	w.write("b/"+kubernetes.Marker, "")
	agenttest.Do(t, os.Remove(w.path("b/pod.yaml")))
	agenttest.Await(t, "the pod is gone", changed, func() bool { return pods() == 0 })
}

// TestDirRole checks that resources are refused if the role of the directory does not allow them,
// and that the other resources of the file are used.
func TestDirRole(t *testing.T) {
	dir, s := twoDirs(t), agenttest.Memory(t)
	w := watchDirs(t, dir, s, "team")
	w.write("b/y.yaml", agenttest.Meshes("t1", "x", "t2"))
	w.Want("t1@y.yaml t2@y.yaml")
	f := w.faulty("b/y.yaml", "Mesh/x is refused: the role team may not create Mesh x/x; the roles that allow "+
		"it: creator, mesh-operator. Move it to a directory with such a role, or change the role of "+w.path("b"))
	if len(f.Faults) != 1 || f.Faults[0].Resource != "Mesh/x" || f.Resources != 2 || f.Stale {
		t.Errorf("status: %+v", f)
	}
	w.write("b/y.yaml", agenttest.Meshes("t1+", "x"))
	w.Want("t1+@y.yaml")
	w.write("a/x.yaml", agenttest.Meshes("x"))
	w.Want("t1+@y.yaml x@x.yaml")
	w.write("b/y.yaml", agenttest.Meshes("x"))
	w.Want("x@x.yaml")
	w.write("b/y.yaml", agenttest.Meshes("t1"))
	w.Want("t1@y.yaml x@x.yaml")
	w.status("b/y.yaml", "has no fault", func(f api.FileStatus) bool { return len(f.Faults) == 0 })

	// The role has no features.
	w.write("b/y.yaml", `{type: Mesh, name: t1, logging: {backends: [{name: a, type: file, conf: {path: /tmp/a}}]}}`)
	w.faulty("b/y.yaml", "Mesh/t1 is refused: the role team may not create Mesh t1/t1 with log-path")
	w.faulty("b/y.yaml", `logging.backends[0].conf.path names the log file "/tmp/a"`)
	w.Want("x@x.yaml")
	w.write("b/y.yaml", agenttest.Meshes("t1"))
	w.Want("t1@y.yaml x@x.yaml")

	// The role has fewer rights after a restart.
	w.stop()
	w = watchDirs(t, dir, s, "creator")
	w.Want("x@x.yaml")
	w.faulty("b/y.yaml", "the role creator may not update Mesh t1/t1")
	// This also removes retained content of a file with faults.
	w.stop()
	w = watchDirs(t, dir, s, "team")
	w.Want("t1@y.yaml x@x.yaml")
	w.stop()
	w.write("b/y.yaml", "nonsense: 1\n")
	w = watchDirs(t, dir, s, "creator")
	w.Want("x@x.yaml")
	w.stop()
	// Without an authorizer, roles allow nothing.
	w.write("b/y.yaml", agenttest.Meshes("t1"))
	w = watchDirs(t, dir, s, "team", func(o *directory.Options) { o.May = nil })
	w.faulty("b/y.yaml", "roles are not known")
	w.Want("x@x.yaml")
}

// TestDirRefusedDisplacesNothing checks that a refused resource does not replace retained content.
func TestDirRefusedDisplacesNothing(t *testing.T) {
	w := watchDirs(t, twoDirs(t), agenttest.Memory(t), "team", func(o *directory.Options) { o.Retain = time.Hour })
	w.write("a/x.yaml", agenttest.Meshes("x"))
	w.Want("x@x.yaml")
	agenttest.Do(t, os.Truncate(w.path("a/x.yaml"), 0))
	w.status("a/x.yaml", "is seen as empty", func(f api.FileStatus) bool { return f.Missing == api.MissingEmpty })
	w.write("b/y.yaml", agenttest.Meshes("x+"))
	w.faulty("b/y.yaml", "Mesh/x is refused")
	if got := agenttest.Held(w.store); got != "x@x.yaml" {
		t.Errorf("the store holds %q", got)
	}
}

// TestDirRemovedFromConfig checks that resources of a directory that is no longer configured are
// removed when all configured directories can be read.
func TestDirRemovedFromConfig(t *testing.T) {
	dir, s := twoDirs(t), agenttest.Memory(t)
	agenttest.Write(t, filepath.Join(dir, "a/x.yaml"), agenttest.Meshes("x"))
	agenttest.Write(t, filepath.Join(dir, "b/y.yaml"), agenttest.Meshes("y"))
	scan := func(dirs ...string) string {
		o := directory.Options{Registry: kinds.Registry(), Store: s}
		for _, d := range dirs {
			o.Dirs = append(o.Dirs, directory.Dir{Path: filepath.Join(dir, d)})
		}
		directory.New(o).Scan()
		return agenttest.Held(s)
	}
	if got := scan("a", "b"); got != "x@x.yaml y@y.yaml" {
		t.Fatal(got)
	}
	if got := scan("a", "missing"); got != "x@x.yaml y@y.yaml" {
		t.Errorf("while a directory is missing: %q", got)
	}
	if got := scan("a"); got != "x@x.yaml" {
		t.Errorf("without b: %q", got)
	}
	agenttest.Do(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "c")))
	if got := scan("b", "c"); got != "x@x.yaml y@y.yaml" || agenttest.Flapped(s, agenttest.MeshKey("x")) {
		t.Errorf("with a renamed to c: %q", got)
	}
}

// TestDirRoleLinks checks that in a directory with a role, links cannot point to files that only
// the agent can read.
func TestDirRoleLinks(t *testing.T) {
	w := watchDirs(t, twoDirs(t), agenttest.Memory(t), "team")
	w.write("a/secret.yaml", agenttest.Meshes("t1"))
	w.Want("t1@secret.yaml")
	for _, link := range []struct{ name, to string }{
		{"up", "../a/secret.yaml"}, {"over.a.link", "up.yaml"}, {"absolute", w.path("a/secret.yaml")},
		{"nowhere", "/nonexistent/x"},
	} {
		agenttest.Do(t, os.Symlink(link.to, w.path("b/"+link.name+".yaml")))
		w.faulty("b/"+link.name+".yaml", "the symbolic link leads out of its directory; the directory has a role")
	}
	w.write("b/real", agenttest.Meshes("t2"))
	agenttest.Do(t, os.Symlink("real", w.path("b/inside.yaml")))
	w.Want("t1@secret.yaml t2@inside.yaml")
}

// TestDirsHaveBoundsOfTheirOwn checks that a directory above its limit does not affect others.
func TestDirsHaveBoundsOfTheirOwn(t *testing.T) {
	dir := twoDirs(t)
	for i := range 4 {
		agenttest.Write(t, filepath.Join(dir, fmt.Sprintf("a/%d.yaml", i)),
			agenttest.Meshes(fmt.Sprintf("a%d", i))+strings.Repeat("#", 300))
		agenttest.Write(t, filepath.Join(dir, fmt.Sprintf("b/%d.yaml", i)), agenttest.Meshes(fmt.Sprintf("b%d", i)))
	}
	w := watchDirs(t, dir, agenttest.Memory(t), "", func(o *directory.Options) { o.TotalBytes, o.Files = 700, 4 })
	w.Want("a0@0.yaml a1@1.yaml b0@0.yaml b1@1.yaml b2@2.yaml b3@3.yaml")
	for i := range 9 {
		w.write(fmt.Sprintf("a/x%d.yaml", i), agenttest.Meshes("x"))
	}
	w.status("a", "has too many files", func(f api.FileStatus) bool { return len(f.Faults) == 1 })
	w.write("b/0.yaml", agenttest.Meshes("b0+"))
	w.Want("a0@0.yaml a1@1.yaml b0+@0.yaml b1@1.yaml b2@2.yaml b3@3.yaml")
	if n := slices.IndexFunc(w.source.Files(), func(f api.FileStatus) bool { return f.Path == dir+"/b" }); n >= 0 {
		t.Errorf("b has a fault too: %+v", w.source.Files()[n])
	}
}
