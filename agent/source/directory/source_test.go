package directory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// watched is a running directory source.
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
	// Polling is off, so that only events trigger scans.
	o := directory.Options{Dirs: []directory.Dir{{Path: dir}}, Registry: kinds.Registry(), Store: s, Poll: time.Hour,
		Retain: 30 * time.Millisecond, Scanned: func() {
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

// replace writes a file in one step. After write, a busy machine may scan the file while it is
// still empty, and longer than its content is retained.
func (w *watched) replace(name, text string) {
	w.t.Helper()
	w.write(".next", text)
	agenttest.Do(w.t, os.Rename(w.path(".next"), w.path(name)))
}

// Want waits until the store contains exactly these meshes.
func (w *watched) Want(meshes string) {
	w.t.Helper()
	changed, stop := w.store.Watch()
	defer stop()
	agenttest.Await(w.t, "the store holds "+meshes, changed, func() bool { return agenttest.Held(w.store) == meshes })
}

// status waits until the status of a file meets a condition.
func (w *watched) status(name, what string, cond func(api.FileStatus) bool) api.FileStatus {
	w.t.Helper()
	var got api.FileStatus
	agenttest.Await(w.t, name+" "+what, w.scanned, func() bool {
		files := w.source.Files() // once: it changes with each scan
		i := slices.IndexFunc(files, func(f api.FileStatus) bool { return f.Path == w.path(name) })
		if i < 0 {
			return false
		}
		got = files[i]
		return cond(got)
	})
	return got
}

func (w *watched) faulty(name string, words ...string) api.FileStatus {
	w.t.Helper()
	return w.status(name, "has a fault with the words "+strings.Join(words, ", "), func(f api.FileStatus) bool {
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

// TestDirUnrelated checks that other files, and files rewritten with the same content, change
// nothing.
func TestDirUnrelated(t *testing.T) {
	w := watch(t, t.TempDir(), agenttest.Memory(t), func(o *directory.Options) { o.Retain = time.Hour })
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
	w := watch(t, t.TempDir(), agenttest.Memory(t), func(o *directory.Options) { o.Retain = time.Hour })
	w.write("a.yaml", agenttest.Meshes("a"))
	w.Want("a@a.yaml")
	// Some editors are slow, so their intermediate states are scanned.
	seen := func(how string) {
		w.status("a.yaml", "is seen as "+how, func(f api.FileStatus) bool { return f.Missing == how })
	}
	for name, save := range map[string]func(text string, slow bool){
		"rename over": func(text string, _ bool) {
			w.write(".a.tmp", text)
			agenttest.Do(t, os.Rename(w.path(".a.tmp"), w.path("a.yaml")))
		},
		"backup, then new": func(text string, slow bool) {
			agenttest.Do(t, os.Rename(w.path("a.yaml"), w.path("a.yaml~")))
			if slow {
				seen(api.MissingVanished)
			}
			w.write("a.yaml", text)
		},
		"truncate, then write": func(text string, slow bool) {
			agenttest.Do(t, os.Truncate(w.path("a.yaml"), 0))
			if slow {
				seen(api.MissingEmpty)
			}
			w.write("a.yaml", text)
		},
		"remove, then new": func(text string, slow bool) {
			agenttest.Do(t, os.Remove(w.path("a.yaml")))
			if slow {
				seen(api.MissingVanished)
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

// TestDirConfigMap simulates the kubelet's updates of a mounted ConfigMap.
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

	// A key is removed: its link is dangling until the kubelet removes it.
	version("..2026_3", map[string]string{"a.yaml": agenttest.Meshes("a")})
	agenttest.Do(t, os.RemoveAll(w.path("..2026_2")))
	w.Want("a@a.yaml b+@b.yaml")
	w.faulty("b.yaml", "does not exist")
	agenttest.Do(t, os.Remove(w.path("b.yaml")))
	w.Want("a@a.yaml")
	if agenttest.Flapped(w.store, agenttest.MeshKey("a")) {
		t.Error("a resource was deleted by a swap")
	}
}

// TestDirPolls checks that changes are detected without events.
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

// TestDirChurn writes, replaces, and removes files while they are read, and checks the final state.
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

// TestDirReadsOneFile changes two files, one of them through a hard link elsewhere, which causes no
// event. Events of other files do not lead to a read of the first.
func TestDirReadsOneFile(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	silent := filepath.Join(other, "x")
	agenttest.Write(t, silent, agenttest.Meshes("b"))
	agenttest.Do(t, os.Link(silent, filepath.Join(dir, "b.yaml")))
	agenttest.Write(t, filepath.Join(dir, "a.yaml"), agenttest.Meshes("a"))
	scans, looked := 0, make(chan struct{})
	w := watch(t, dir, agenttest.Memory(t), func(o *directory.Options) {
		tell := o.Scanned
		o.Scanned = func() {
			if scans++; scans == 2 { // Run has read the directory
				close(looked)
			}
			tell()
		}
	})
	w.Want("a@a.yaml b@b.yaml")
	<-looked
	agenttest.Write(t, silent, agenttest.Meshes("b+"))
	w.replace("a.yaml", agenttest.Meshes("a+", "c"))
	w.Want("a+@a.yaml b@b.yaml c@a.yaml")
	w.replace("new.yaml", agenttest.Meshes("d"))
	w.Want("a+@a.yaml b@b.yaml c@a.yaml d@new.yaml")
	w.replace("a.yaml", agenttest.Meshes("a+"))
	w.Want("a+@a.yaml b@b.yaml d@new.yaml")
	w.replace("new.yaml", "type: Mesh\n")
	w.faulty("new.yaml")
	w.Want("a+@a.yaml b@b.yaml d@new.yaml")
	agenttest.Do(t, os.Remove(w.path("new.yaml")))
	w.Want("a+@a.yaml b@b.yaml")
	agenttest.Do(t, os.Rename(w.path("a.yaml"), w.path("z.yaml")))
	w.Want("a+@z.yaml b@b.yaml")
	w.write(".hidden.yaml", "")
	agenttest.Do(t, os.Truncate(w.path("z.yaml"), 0))
	w.Want("b@b.yaml")
	w.source.Rescan()
	w.Want("b+@b.yaml")
}
