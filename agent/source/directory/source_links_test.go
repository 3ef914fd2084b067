package directory_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func TestDirStrangeThings(t *testing.T) {
	dir := t.TempDir()
	at := func(n string) string { return filepath.Join(dir, n) }
	agenttest.Write(t, at("good.yaml"), agenttest.Meshes("good"))
	agenttest.Write(t, at("zz.yaml"), agenttest.Meshes("zz"))
	agenttest.Do(t, os.Mkdir(at("dir.yaml"), 0o755),
		syscall.Mkfifo(at("fifo.yaml"), 0o644),
		os.Symlink("loop2.yaml", at("loop.yaml")), os.Symlink("loop.yaml", at("loop2.yaml")),
		os.Symlink(".", at("self.yaml")),
		os.Symlink("/nowhere/at/all", at("dangling.yaml")),
		os.Symlink("/dev/zero", at("device.yaml")))
	agenttest.Write(t, at("big.yaml"), "")
	agenttest.Do(t, os.Truncate(at("big.yaml"), 50<<20))
	agenttest.Write(t, at("latin1.yaml"), "type: Mesh\nname: caf\xe9\n")
	agenttest.Write(t, at("broken.yaml"), "type: [")
	agenttest.Write(t, at("empty.yaml"), "")
	w := watch(t, dir, agenttest.Memory(t), nil)
	w.Want("good@good.yaml zz@zz.yaml")
	for name, words := range map[string]string{
		"dir.yaml": "a directory", "fifo.yaml": "a pipe", "loop.yaml": "form a loop", "loop2.yaml": "form a loop",
		"self.yaml": "a directory", "dangling.yaml": "does not exist", "device.yaml": "a device", "big.yaml": "52428800 " +
			"bytes; a resource file may have at most 16777216", "latin1.yaml": "UTF-8", "broken.yaml": "YAML",
	} {
		w.faulty(name, words)
	}
	if f := w.status("empty.yaml", "is there", func(api.FileStatus) bool { return true }); len(f.Faults) != 0 {
		t.Errorf("an empty file has faults: %v", f.Faults)
	}
	// Each becomes a valid file.
	agenttest.Do(t, os.Remove(at("dir.yaml")), os.Remove(at("fifo.yaml")), os.Remove(at("loop.yaml")))
	w.write("dir.yaml", agenttest.Meshes("dir"))
	w.write("fifo.yaml", agenttest.Meshes("fifo"))
	w.write("big.yaml", agenttest.Meshes("big"))
	w.write("loop.yaml", agenttest.Meshes("loop")) // loop2 now points to it
	w.Want("big@big.yaml dir@dir.yaml fifo@fifo.yaml good@good.yaml loop@loop.yaml zz@zz.yaml")
}

func TestDirTotalSize(t *testing.T) {
	dir := t.TempDir()
	for i := range 4 {
		agenttest.Write(t, filepath.Join(dir, fmt.Sprintf("%d.yaml", i)),
			agenttest.Meshes(fmt.Sprintf("m%d", i))+strings.Repeat("#", 1000))
	}
	w := watch(t, dir, agenttest.Memory(t), func(o *directory.Options) { o.TotalBytes = 2500 })
	w.Want("m0@0.yaml m1@1.yaml")
	w.faulty("3.yaml", "too large", "2500")
	w = watch(t, dir, agenttest.Memory(t), func(o *directory.Options) { o.Files = 3 })
	if f := w.source.Files(); len(f) != 1 || !strings.Contains(f[0].Faults[0].Reason, "too many files (at most 3") {
		t.Errorf("status: %+v", f)
	}
}

func TestDirMissing(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "etc", "resources")
	w := watch(t, dir, agenttest.Memory(t), nil)
	f := w.source.Files()
	if len(f) != 1 || f[0].Path != dir || !strings.Contains(f[0].Faults[0].Reason, "cannot be read") {
		t.Fatalf("status: %+v", f)
	}
	agenttest.Do(t, os.Mkdir(filepath.Join(base, "etc"), 0o755))
	agenttest.Do(t, os.Mkdir(dir, 0o755))
	w.write("a.yaml", agenttest.Meshes("a"))
	w.Want("a@a.yaml")
	// A directory that disappears retains its resources, and is watched again when it returns.
	agenttest.Do(t, os.Rename(dir, filepath.Join(base, "away")))
	agenttest.Await(t, "the directory is missed", w.scanned, func() bool {
		f := w.source.Files()
		return len(f) > 0 && f[0].Path == dir
	})
	if got := agenttest.Held(w.store); got != "a@a.yaml" {
		t.Errorf("without the directory: %q", got)
	}
	agenttest.Do(t, os.Mkdir(dir, 0o755))
	w.Want("")
	w.write("b.yaml", agenttest.Meshes("b"))
	w.Want("b@b.yaml")
	agenttest.Do(t, os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644))
	agenttest.Await(t, "a file in place of the directory is seen", w.scanned, func() bool {
		f := w.source.Files()
		return len(f) > 0 && f[0].Path == dir && strings.Contains(f[0].Faults[0].Reason, "not a directory")
	})
}

// TestDirLinks uses links to the directory, to a file outside, and through another directory.
func TestDirLinks(t *testing.T) {
	base := t.TempDir()
	at := func(n string) string { return filepath.Join(base, n) }
	for _, d := range []string{"v1", "v2", "else", "far"} {
		agenttest.Do(t, os.Mkdir(at(d), 0o755))
	}
	agenttest.Write(t, at("else/e.yaml"), agenttest.Meshes("e"))
	agenttest.Write(t, at("far/f.yaml"), agenttest.Meshes("f"))
	for _, v := range []string{"v1", "v2"} {
		agenttest.Do(t, os.Symlink("../else/e.yaml", at(v+"/e.yaml")), os.Symlink(at("hop")+"/f.yaml", at(v+"/f.yaml")))
	}
	agenttest.Do(t, os.Symlink("far", at("hop")), os.Symlink("v1", at("dir")))
	agenttest.Write(t, at("v1/a.yaml"), agenttest.Meshes("a"))
	agenttest.Write(t, at("v2/a.yaml"), agenttest.Meshes("a+"))
	w := watch(t, at("dir"), agenttest.Memory(t), nil)
	w.Want("a@a.yaml e@e.yaml f@f.yaml")

	agenttest.Write(t, at("else/e.yaml"), agenttest.Meshes("e+"))
	w.Want("a@a.yaml e+@e.yaml f@f.yaml")
	agenttest.Do(t, os.Mkdir(at("near"), 0o755))
	agenttest.Write(t, at("near/f.yaml"), agenttest.Meshes("f+"))
	agenttest.Do(t, os.Symlink("near", at("hop2")), os.Rename(at("hop2"), at("hop")))
	w.Want("a@a.yaml e+@e.yaml f+@f.yaml")
	agenttest.Write(t, at("near/f.yaml"), agenttest.Meshes("f"))
	w.Want("a@a.yaml e+@e.yaml f@f.yaml")
	agenttest.Do(t, os.Symlink("v2", at("dir2")), os.Rename(at("dir2"), at("dir")))
	w.Want("a+@a.yaml e+@e.yaml f@f.yaml")
	agenttest.Write(t, at("v2/a.yaml"), agenttest.Meshes("a"))
	w.Want("a@a.yaml e+@e.yaml f@f.yaml")
}
