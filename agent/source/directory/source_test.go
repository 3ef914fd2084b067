package directory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// watched is a directory source at work.
type watched struct {
	t       *testing.T
	dir     string
	store   *store.Store
	source  *directory.Source
	scanned chan struct{}
	stop    func()
}

func watch(t *testing.T, dir string, s *store.Store, change func(*directory.Options)) *watched {
	t.Helper()
	w := &watched{t: t, dir: dir, store: s, scanned: make(chan struct{}, 1)}
	// Polling is off, so that what is found is found by events.
	o := directory.Options{Dirs: []directory.Dir{{Path: dir}}, Registry: kinds.Registry(), Store: s, Poll: time.Hour,
		Settle: 30 * time.Millisecond, Scanned: func() {
			select {
			case w.scanned <- struct{}{}:
			default:
			}
		}}
	if change != nil {
		change(&o)
	}
	w.source = directory.New(o)
	w.source.Scan()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.source.Run(ctx) }()
	w.stop = func() { cancel(); <-done }
	t.Cleanup(w.stop)
	return w
}

func (w *watched) path(name string) string { return filepath.Join(w.dir, name) }

func (w *watched) write(name, text string) { w.t.Helper(); agenttest.Write(w.t, w.path(name), text) }

// want waits until the store holds exactly these meshes.
func (w *watched) Want(meshes string) {
	w.t.Helper()
	changed, stop := w.store.Watch()
	defer stop()
	agenttest.Await(w.t, "the store holds "+meshes, changed, func() bool { return agenttest.Held(w.store) == meshes })
}

// status waits until the state of a file is as wanted.
func (w *watched) status(name, what string, cond func(httpapi.FileStatus) bool) httpapi.FileStatus {
	w.t.Helper()
	var got httpapi.FileStatus
	agenttest.Await(w.t, name+" "+what, w.scanned, func() bool {
		i := slices.IndexFunc(w.source.Files(), func(f httpapi.FileStatus) bool { return f.Path == w.path(name) })
		if i < 0 {
			return false
		}
		got = w.source.Files()[i]
		return cond(got)
	})
	return got
}

func (w *watched) faulty(name string, words ...string) httpapi.FileStatus {
	w.t.Helper()
	return w.status(name, "has a fault with the words "+strings.Join(words, ", "), func(f httpapi.FileStatus) bool {
		for _, word := range words {
			if !slices.ContainsFunc(f.Faults, func(x resource.Fault) bool { return strings.Contains(x.String(), word) }) {
				return false
			}
		}
		return true
	})
}

func TestDirAppearChangeVanish(t *testing.T) {
	w := watch(t, t.TempDir(), agenttest.Memory(t), nil)
	w.write("a.yaml", agenttest.Meshes("a"))
	w.write("b.json", `{"type": "Mesh", "name": "b"}`)
	w.write("c.yml", agenttest.Meshes("c"))
	w.Want("a@a.yaml b@b.json c@c.yml")
	w.write("a.yaml", agenttest.Meshes("a+", "x"))
	w.Want("a+@a.yaml b@b.json c@c.yml x@a.yaml")
	agenttest.Do(t, os.Remove(w.path("a.yaml")), os.Remove(w.path("c.yml")))
	w.Want("b@b.json")
}

func TestDirIsLoadedBeforeRun(t *testing.T) {
	dir, s := t.TempDir(), agenttest.Memory(t)
	agenttest.Write(t, filepath.Join(dir, "a.yaml"), agenttest.Meshes("a"))
	directory.New(directory.Options{Dirs: []directory.Dir{{Path: dir}}, Registry: kinds.Registry(), Store: s}).Scan()
	if got := agenttest.Held(s); got != "a@a.yaml" {
		t.Errorf("after the first scan: %q", got)
	}
}

// TestDirUnrelated checks that what is no resource file, and a file written anew with the same
// content, changes nothing.
func TestDirUnrelated(t *testing.T) {
	w := watch(t, t.TempDir(), agenttest.Memory(t), func(o *directory.Options) { o.Settle = time.Hour })
	w.write("a.yaml", agenttest.Meshes("a"))
	w.Want("a@a.yaml")
	before := w.store.Snapshot().Revision()
	for _, n := range []string{
		".a.yaml.swp", ".#a.yaml", "#a.yaml#", "a.yaml~", "a.yaml.bak", "README", ".hidden.yaml", "4913",
	} {
		w.write(n, agenttest.Meshes("no"))
	}
	w.write("a.yaml", agenttest.Meshes("a"))
	w.write("z.yaml", agenttest.Meshes("z"))
	w.Want("a@a.yaml z@z.yaml")
	if got := w.store.Snapshot().Revision(); got != before+1 {
		t.Errorf("revision %d, want %d", got, before+1)
	}
}

func TestDirEditors(t *testing.T) {
	w := watch(t, t.TempDir(), agenttest.Memory(t), func(o *directory.Options) { o.Settle = time.Hour })
	w.write("a.yaml", agenttest.Meshes("a"))
	w.Want("a@a.yaml")
	// Some editors are slow, so that the state between their steps is seen.
	seen := func(how string) {
		w.status("a.yaml", "is seen as "+how, func(f httpapi.FileStatus) bool { return f.Missing == how })
	}
	for name, save := range map[string]func(text string, slow bool){
		"rename over": func(text string, _ bool) {
			w.write(".a.tmp", text)
			agenttest.Do(t, os.Rename(w.path(".a.tmp"), w.path("a.yaml")))
		},
		"backup, then new": func(text string, slow bool) {
			agenttest.Do(t, os.Rename(w.path("a.yaml"), w.path("a.yaml~")))
			if slow {
				seen(httpapi.MissingVanished)
			}
			w.write("a.yaml", text)
		},
		"truncate, then write": func(text string, slow bool) {
			agenttest.Do(t, os.Truncate(w.path("a.yaml"), 0))
			if slow {
				seen(httpapi.MissingEmpty)
			}
			w.write("a.yaml", text)
		},
		"remove, then new": func(text string, slow bool) {
			agenttest.Do(t, os.Remove(w.path("a.yaml")))
			if slow {
				seen(httpapi.MissingVanished)
			}
			w.write("a.yaml", text)
		},
	} {
		before := w.store.Snapshot().Revision()
		for _, slow := range []bool{false, true} {
			save(agenttest.Meshes("a+"), slow)
			w.Want("a+@a.yaml")
			save(agenttest.Meshes("a"), slow)
			w.Want("a@a.yaml")
		}
		if got := w.store.Snapshot().Revision() - before; got != 4 {
			t.Fatalf("%s: %d changes, want 4", name, got)
		}
	}
}

// TestDirConfigMap plays what the kubelet does with a mounted ConfigMap.
func TestDirConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(v string, files map[string]string) {
		agenttest.Do(t, os.Mkdir(filepath.Join(dir, v), 0o755))
		for n, text := range files {
			agenttest.Write(t, filepath.Join(dir, v, n), text)
		}
		agenttest.Do(t, os.Symlink(v, filepath.Join(dir, "..data_tmp")),
			os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version("..2026_1", map[string]string{"a.yaml": agenttest.Meshes("a"), "b.yaml": agenttest.Meshes("b")})
	for _, n := range []string{"a.yaml", "b.yaml"} {
		agenttest.Do(t, os.Symlink("..data/"+n, filepath.Join(dir, n)))
	}
	w := watch(t, dir, agenttest.Memory(t), nil)
	w.Want("a@a.yaml b@b.yaml")

	version("..2026_2", map[string]string{"a.yaml": agenttest.Meshes("a+"), "b.yaml": agenttest.Meshes("b+")})
	agenttest.Do(t, os.RemoveAll(w.path("..2026_1")))
	w.Want("a+@a.yaml b+@b.yaml")

	// A key goes: its link leads nowhere until the kubelet removes it.
	version("..2026_3", map[string]string{"a.yaml": agenttest.Meshes("a")})
	agenttest.Do(t, os.RemoveAll(w.path("..2026_2")))
	w.Want("a@a.yaml b+@b.yaml")
	w.faulty("b.yaml", "leads nowhere")
	agenttest.Do(t, os.Remove(w.path("b.yaml")))
	w.Want("a@a.yaml")
	if agenttest.Flapped(w.store, agenttest.MeshKey("a")) {
		t.Error("a resource was deleted by a swap")
	}
}

func TestDirBadFileKeepsLastGood(t *testing.T) {
	dir, s := t.TempDir(), agenttest.Memory(t)
	w := watch(t, dir, s, nil)
	w.write("a.yaml", agenttest.Meshes("a", "b"))
	w.write("z.yaml", agenttest.Meshes("z"))
	w.Want("a@a.yaml b@a.yaml z@z.yaml")

	// One bad document keeps the whole file at its last good content.
	w.write("a.yaml", agenttest.Meshes("a+")+"---\ntype: Mesh\nname: c\nnonsense: 1\n")
	f := w.faulty("a.yaml", w.path("a.yaml")+":8", "nonsense")
	if !f.Stale || f.Resources != 2 || f.Loaded.IsZero() {
		t.Errorf("status: %+v", f)
	}
	w.write("z.yaml", agenttest.Meshes("z+")) // the others go on
	w.Want("a@a.yaml b@a.yaml z+@z.yaml")

	// Over a restart too.
	w.stop()
	w = watch(t, dir, s, nil)
	if f := w.faulty("a.yaml", "nonsense"); !f.Stale || f.Resources != 2 || f.Loaded.IsZero() {
		t.Errorf("status after a restart: %+v", f)
	}
	w.Want("a@a.yaml b@a.yaml z+@z.yaml")

	w.write("a.yaml", agenttest.Meshes("a+"))
	w.Want("a+@a.yaml z+@z.yaml")
	w.status("a.yaml", "is mended", func(f httpapi.FileStatus) bool {
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
	w.stop() // two sources on one store would undo each other's work
	// Another directory: what came from the old one goes, once the new one can be read.
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
	f := w.status("c.yaml", "is in conflict", func(f httpapi.FileStatus) bool { return len(f.Conflicts) == 1 })
	if got, want := f.Conflicts["Mesh/x"], "file:"+w.path("b.yaml"); got != want || f.Resources != 1 {
		t.Errorf("conflict with %q, want %q; %d resources", got, want, f.Resources)
	}
	w.write("a.yaml", agenttest.Meshes("x")) // the first by name holds
	w.Want("b@b.yaml c@c.yaml x@a.yaml")
	w.status("b.yaml", "is in conflict", func(f httpapi.FileStatus) bool { return len(f.Conflicts) == 1 })
	agenttest.Do(t, os.Remove(w.path("a.yaml")))
	w.Want("b@b.yaml c@c.yaml x+@b.yaml")
	if agenttest.Flapped(w.store, agenttest.MeshKey("x")) {
		t.Error("the resource was deleted while it moved between files")
	}
	w.write("d.yaml", agenttest.Meshes("d", "d+"))
	w.faulty("d.yaml", "Mesh/d", "more than once")
}

func TestDirMove(t *testing.T) {
	// A file that waits for another to give a resource up waits for it to settle; no writer pauses for
	// that long here.
	w := watch(t, t.TempDir(), agenttest.Memory(t), func(o *directory.Options) { o.Settle = 250 * time.Millisecond })
	w.write("b.yaml", agenttest.Meshes("x", "b"))
	w.Want("b@b.yaml x@b.yaml")
	for _, to := range []string{"a", "c"} { // before and behind it in order
		w.write(to+".yaml", agenttest.Meshes("x"))
		w.write("b.yaml", agenttest.Meshes("b"))
		w.Want("b@b.yaml x@" + to + ".yaml")
		w.write("b.yaml", agenttest.Meshes("b", "x"))
		agenttest.Do(t, os.Remove(w.path(to+".yaml")))
		w.Want("b@b.yaml x@b.yaml")
	}
	agenttest.Do(t, os.Rename(w.path("b.yaml"), w.path("e.yaml")))
	w.Want("b@e.yaml x@e.yaml")
	if agenttest.Flapped(w.store, agenttest.MeshKey("x")) || agenttest.Flapped(w.store, agenttest.MeshKey("b")) {
		t.Error("a resource was deleted while it moved")
	}
}

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
		"dir.yaml": "a directory", "fifo.yaml": "a pipe", "loop.yaml": "in a circle", "loop2.yaml": "in a circle",
		"self.yaml": "a directory", "dangling.yaml": "leads nowhere", "device.yaml": "a device", "big.yaml": "52428800 " +
			"bytes; a resource file may have at most 16777216", "latin1.yaml": "UTF-8", "broken.yaml": "YAML",
	} {
		w.faulty(name, words)
	}
	if f := w.status("empty.yaml", "is there", func(httpapi.FileStatus) bool { return true }); len(f.Faults) != 0 {
		t.Errorf("an empty file has faults: %v", f.Faults)
	}
	// Each becomes a good file.
	agenttest.Do(t, os.Remove(at("dir.yaml")), os.Remove(at("fifo.yaml")), os.Remove(at("loop.yaml")))
	w.write("dir.yaml", agenttest.Meshes("dir"))
	w.write("fifo.yaml", agenttest.Meshes("fifo"))
	w.write("big.yaml", agenttest.Meshes("big"))
	w.write("loop.yaml", agenttest.Meshes("loop")) // loop2 now leads to it and holds the same
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
	// A directory that goes takes nothing with it, and one that comes back is watched again.
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

// TestDirLinks has links to the directory, to a file elsewhere, and through another directory.
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

func TestDirConflictWithAPI(t *testing.T) {
	w := watch(t, t.TempDir(), agenttest.Memory(t), nil)
	agenttest.ByAPI(t, w.store, agenttest.Meshes("x"))
	w.write("a.yaml", agenttest.Meshes("a", "x+"))
	w.Want("a@a.yaml x@api")
	f := w.status("a.yaml", "is in conflict", func(f httpapi.FileStatus) bool { return len(f.Conflicts) == 1 })
	if f.Conflicts["Mesh/x"] != "api" || f.Resources != 1 {
		t.Errorf("status: %+v", f)
	}
	if _, err := w.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI},
		Ops: []store.Op{{Delete: agenttest.MeshKey("x")}}}); err != nil {
		t.Fatal(err)
	}
	w.Want("a@a.yaml x+@a.yaml") // free now
}

// TestDirPolls finds changes without events.
func TestDirPolls(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "deep")
	agenttest.Do(t, os.Mkdir(sub, 0o755))
	w := watch(t, sub, agenttest.Memory(t), func(o *directory.Options) {
		o.Poll, o.Quiet, o.Ceiling = 30*time.Millisecond, time.Hour, time.Hour
	})
	w.write("a.yaml", agenttest.Meshes("a"))
	w.Want("a@a.yaml")
	w.write("a.yaml", agenttest.Meshes("b"))
	w.Want("b@a.yaml")
}

// TestDirChurn writes, replaces and removes files while they are read, and compares with what is
// there at the end.
func TestDirChurn(t *testing.T) {
	w := watch(t, t.TempDir(), agenttest.Memory(t), func(o *directory.Options) {
		o.Quiet, o.Ceiling = time.Millisecond, 2*time.Millisecond
	})
	r := rand.New(rand.NewPCG(1, 2))
	final := map[string]string{}
	for range 400 {
		n := fmt.Sprintf("m%d", r.IntN(6))
		switch r.IntN(4) {
		case 0:
			_ = os.Remove(w.path(n + ".yaml"))
			delete(final, n)
			continue
		case 1:
			w.write(".tmp", agenttest.Meshes(n))
			agenttest.Do(t, os.Rename(w.path(".tmp"), w.path(n+".yaml")))
			final[n] = n
		case 2:
			w.write(n+".yaml", agenttest.Meshes(n+"+")+strings.Repeat("# filler\n", r.IntN(20_000)))
			final[n] = n + "+"
		case 3:
			w.write(n+".yaml", agenttest.Meshes(n)[:5]+"[")
			w.write(n+".yaml", agenttest.Meshes(n))
			final[n] = n
		}
	}
	var want []string
	for n, content := range final {
		want = append(want, content+"@"+n+".yaml")
	}
	slices.Sort(want)
	w.Want(strings.Join(want, " "))
}

// TestDirReadsOneFile has two files change, one of them without an event: by another name that it
// has elsewhere. The event of the other one leads to no look at it.
func TestDirReadsOneFile(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	silent := filepath.Join(elsewhere, "x")
	agenttest.Write(t, silent, agenttest.Meshes("b"))
	agenttest.Do(t, os.Link(silent, filepath.Join(dir, "b.yaml")))
	agenttest.Write(t, filepath.Join(dir, "a.yaml"), agenttest.Meshes("a"))
	scans, looked := 0, make(chan struct{})
	w := watch(t, dir, agenttest.Memory(t), func(o *directory.Options) {
		tell := o.Scanned
		o.Scanned = func() {
			if scans++; scans == 2 { // Run has looked at the directory
				close(looked)
			}
			tell()
		}
	})
	w.Want("a@a.yaml b@b.yaml")
	<-looked
	write := func(name, text string) { // never seen empty
		t.Helper()
		agenttest.Write(t, filepath.Join(elsewhere, "next"), text)
		agenttest.Do(t, os.Rename(filepath.Join(elsewhere, "next"), w.path(name)))
	}
	agenttest.Write(t, silent, agenttest.Meshes("b+"))
	write("a.yaml", agenttest.Meshes("a+", "c"))
	w.Want("a+@a.yaml b@b.yaml c@a.yaml")
	write("new.yaml", agenttest.Meshes("d"))
	w.Want("a+@a.yaml b@b.yaml c@a.yaml d@new.yaml")
	write("a.yaml", agenttest.Meshes("a+"))
	w.Want("a+@a.yaml b@b.yaml d@new.yaml")
	write("new.yaml", "type: Mesh\n")
	w.faulty("new.yaml")
	w.Want("a+@a.yaml b@b.yaml d@new.yaml")
	agenttest.Do(t, os.Remove(w.path("new.yaml"))) // what goes may have gone elsewhere: all files are looked at
	w.Want("a+@a.yaml b+@b.yaml")
}

// TestDirFileInParts has a file written in parts, each of which is whole: none is believed that
// lacks what was there.
func TestDirFileInParts(t *testing.T) {
	dir, s := t.TempDir(), agenttest.Memory(t)
	w := watch(t, dir, s, func(o *directory.Options) { o.Rest = 500 * time.Millisecond })
	w.write("a.yaml", agenttest.Meshes("a", "b"))
	w.Want("a@a.yaml b@a.yaml")
	w.write("a.yaml", agenttest.Meshes("a+"))
	<-time.After(100 * time.Millisecond)
	w.write("a.yaml", agenttest.Meshes("a+", "b+"))
	w.Want("a+@a.yaml b+@a.yaml")
	if agenttest.Flapped(s, agenttest.MeshKey("b")) {
		t.Error("what was not written yet was deleted")
	}
	w.write("a.yaml", agenttest.Meshes("a+"))
	w.Want("a+@a.yaml")
}
