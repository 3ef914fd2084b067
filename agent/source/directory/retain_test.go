package directory_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// unwatched is a directory source on a fake clock. It scans on request, because a watcher's reads
// would block the clock.
type unwatched struct {
	*testing.T
	dir    string
	store  *store.Store
	source *directory.Source
}

// withUnwatched runs fn with a source that retains content for a second.
func withUnwatched(t *testing.T, fn func(t *testing.T, u *unwatched)) {
	dir := t.TempDir()
	agenttest.Write(t, filepath.Join(dir, "a.yaml"), agenttest.Meshes("a", "b"))
	agenttest.Write(t, filepath.Join(dir, "z.yaml"), agenttest.Meshes("z"))
	synctest.Test(t, func(t *testing.T) {
		u := &unwatched{T: t, dir: dir, store: agenttest.Memory(t)}
		u.source = directory.New(directory.Options{Dirs: []directory.Dir{{Path: dir}}, Registry: kinds.Registry(),
			Store: u.store, Poll: 1000 * time.Hour,
			Watcher: func() (*fsnotify.Watcher, error) { return nil, errors.New("as asked") }})
		u.source.Scan()
		ctx, cancel := context.WithCancel(t.Context())
		go u.source.Run(ctx)
		t.Cleanup(func() { cancel(); synctest.Wait() })
		u.holds("a@a.yaml b@a.yaml z@z.yaml")
		fn(t, u)
	})
}

// later advances the fake clock.
func later(d time.Duration) { <-time.After(d) }

func (u *unwatched) path(name string) string { return filepath.Join(u.dir, name) }

// look makes the source scan after changes to files.
func (u *unwatched) look(done ...error) {
	u.Helper()
	agenttest.Do(u.T, done...)
	u.source.Rescan()
	synctest.Wait()
}

func (u *unwatched) holds(want string) {
	u.Helper()
	synctest.Wait()
	if got := agenttest.Held(u.store); got != want {
		u.Fatalf("the store holds %q, want %q", got, want)
	}
}

// missing requires the file to be missing in a given way, and its content to be retained for left.
func (u *unwatched) missing(name, how string, left time.Duration) {
	u.Helper()
	var f api.FileStatus
	if i := slices.IndexFunc(u.source.Files(), func(f api.FileStatus) bool { return f.Path == u.path(name) }); i >= 0 {
		f = u.source.Files()[i]
	}
	if f.Missing != how || (how != "") != f.Stale || how != "" && time.Until(f.KeptUntil) != left ||
		how == "" && !f.KeptUntil.IsZero() {
		u.Fatalf("%s: got %+v (%s left), want %q and %s", name, f, time.Until(f.KeptUntil), how, left)
	}
}

// graces are the grace times of files without content.
var graces = map[string]time.Duration{api.MissingEmpty: time.Second,
	api.MissingVanished: 150 * time.Millisecond}

// hollow lists the ways to remove the content of a file temporarily.
var hollow = map[string]struct {
	how string
	do  func(path string) error
}{
	"truncated": {api.MissingEmpty, func(p string) error { return os.Truncate(p, 0) }},
	"comments only": {api.MissingEmpty,
		func(p string) error { return os.WriteFile(p, []byte("# soon\n---\n"), 0o644) }},
	"unlinked":     {api.MissingVanished, os.Remove},
	"renamed away": {api.MissingVanished, func(p string) error { return os.Rename(p, p+"~") }},
}

func TestDirWriterThatPauses(t *testing.T) {
	for name, h := range hollow {
		for _, c := range []struct {
			content, want string
			revisions     uint64
		}{
			{agenttest.Meshes("a", "b"), "a@a.yaml b@a.yaml z@z.yaml", 0},
			{agenttest.Meshes("b", "a"), "a@a.yaml b@a.yaml z@z.yaml", 0},
			{agenttest.Meshes("a+", "b"), "a+@a.yaml b@a.yaml z@z.yaml", 1},
			{agenttest.Meshes("a"), "a@a.yaml z@z.yaml", 1},
		} {
			t.Run(name, func(t *testing.T) {
				withUnwatched(t, func(t *testing.T, u *unwatched) {
					before := u.store.Snapshot().Revision()
					u.look(h.do(u.path("a.yaml")))
					u.holds("a@a.yaml b@a.yaml z@z.yaml")
					u.missing("a.yaml", h.how, graces[h.how])
					later(graces[h.how] - time.Millisecond)
					u.look() // another scan does not restart the grace time
					u.holds("a@a.yaml b@a.yaml z@z.yaml")
					u.missing("a.yaml", h.how, time.Millisecond)
					agenttest.Write(t, u.path("a.yaml"), c.content)
					u.look()
					later(time.Hour)
					u.holds(c.want)
					u.missing("a.yaml", "", 0)
					if got := u.store.Snapshot().Revision() - before; got != c.revisions {
						t.Errorf("%d changes, want %d", got, c.revisions)
					}
				})
			})
		}
	}
}

func TestDirStaysHollow(t *testing.T) {
	for name, h := range hollow {
		t.Run(name, func(t *testing.T) {
			withUnwatched(t, func(t *testing.T, u *unwatched) {
				u.look(h.do(u.path("a.yaml")))
				later(graces[h.how] - time.Nanosecond)
				u.holds("a@a.yaml b@a.yaml z@z.yaml")
				later(time.Nanosecond) // no event triggers a scan
				u.holds("z@z.yaml")
				u.missing("a.yaml", "", 0)
				if i := slices.IndexFunc(u.source.Files(),
					func(f api.FileStatus) bool { return f.Path == u.path("a.yaml") }); (i >= 0) !=
					(h.how == api.MissingEmpty) {
					t.Errorf("files: %+v", u.source.Files())
				}
				agenttest.Write(t, u.path("a.yaml"), agenttest.Meshes("a"))
				u.look()
				u.holds("a@a.yaml z@z.yaml")
			})
		})
	}
}

// TestDirFileInParts writes a file in valid parts. Parts that lack an earlier resource are not
// applied until the file is 20 ms old.
func TestDirFileInParts(t *testing.T) {
	withUnwatched(t, func(t *testing.T, u *unwatched) {
		write := func(names ...string) {
			t.Helper()
			agenttest.Write(t, u.path("a.yaml"), agenttest.Meshes(names...))
			u.look(os.Chtimes(u.path("a.yaml"), time.Time{}, time.Now()))
		}
		write("a+")
		later(19 * time.Millisecond)
		u.holds("a@a.yaml b@a.yaml z@z.yaml")
		write("a+", "b+")
		u.holds("a+@a.yaml b+@a.yaml z@z.yaml")
		later(time.Hour)
		write("a+")
		later(19 * time.Millisecond)
		u.holds("a+@a.yaml b+@a.yaml z@z.yaml")
		if agenttest.Flapped(u.store, agenttest.MeshKey("b")) {
			t.Error("a resource was deleted before the file was complete")
		}
		later(20 * time.Millisecond)
		u.holds("a+@a.yaml z@z.yaml")
	})
}

// TestDirRemovedWithoutNextStep checks that a removed file counts as gone after 45 ms without
// events, and not only after 150 ms.
func TestDirRemovedWithoutNextStep(t *testing.T) {
	dir, s := t.TempDir(), agenttest.Memory(t)
	agenttest.Write(t, filepath.Join(dir, "a.yaml"), agenttest.Meshes("a"))
	agenttest.Write(t, filepath.Join(dir, "b.yaml"), agenttest.Meshes("b"))
	left := make(chan time.Duration, 100)
	var source *directory.Source
	source = directory.New(directory.Options{Dirs: []directory.Dir{{Path: dir}}, Registry: kinds.Registry(), Store: s,
		Ceiling: agenttest.Patience, // an event counts this long, also if a busy machine delays the scan
		Scanned: func() {
			for _, f := range source.Files() {
				if f.Missing == api.MissingVanished {
					left <- time.Until(f.KeptUntil)
				}
			}
		}})
	source.Scan()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); source.Run(ctx) }()
	defer func() { cancel(); <-done }()
	agenttest.Eventually(t, "the directory is watched", func() bool {
		agenttest.Write(t, filepath.Join(dir, "c.yaml"), agenttest.Meshes("c"))
		return strings.Contains(agenttest.Held(s), "c@c.yaml")
	})
	agenttest.Do(t, os.Remove(filepath.Join(dir, "a.yaml")))
	if got := <-left; got > 45*time.Millisecond {
		t.Errorf("the resources of a removed file are retained for %v more", got)
	}
	agenttest.Eventually(t, "the resources are deleted", func() bool { return agenttest.Held(s) == "b@b.yaml c@c.yaml" })
}

// TestDirHollowInTurns uses a writer that truncates, unlinks, and writes half a document before the
// whole one.
func TestDirHollowInTurns(t *testing.T) {
	withUnwatched(t, func(t *testing.T, u *unwatched) {
		before := u.store.Snapshot().Revision()
		u.look(os.Truncate(u.path("a.yaml"), 0))
		later(600 * time.Millisecond)
		u.look(os.Remove(u.path("a.yaml")))
		u.missing("a.yaml", api.MissingVanished, 400*time.Millisecond) // the same absence
		agenttest.Write(t, u.path("a.yaml"), "---\ntype: Mesh\nname: a\n---\ntype: Me")
		u.look()
		later(time.Hour)
		u.holds("a@a.yaml b@a.yaml z@z.yaml") // a fault retains the content as long as it lasts
		u.look(os.Remove(u.path("a.yaml")))
		u.missing("a.yaml", api.MissingVanished, graces[api.MissingVanished]) // another absence
		agenttest.Write(t, u.path("a.yaml"), agenttest.Meshes("a", "b"))
		u.look()
		later(time.Hour)
		u.holds("a@a.yaml b@a.yaml z@z.yaml")
		if got := u.store.Snapshot().Revision(); got != before {
			t.Errorf("revision %d, want %d", got, before)
		}
	})
}

// TestDirHollowAtStart checks that the first scan removes missing resources at once.
func TestDirHollowAtStart(t *testing.T) {
	for name, h := range hollow {
		dir, s := t.TempDir(), agenttest.Memory(t)
		path := filepath.Join(dir, "a.yaml")
		agenttest.Write(t, path, agenttest.Meshes("a"))
		o := directory.Options{Dirs: []directory.Dir{{Path: dir}}, Registry: kinds.Registry(), Store: s}
		directory.New(o).Scan()
		agenttest.Do(t, h.do(path))
		directory.New(o).Scan()
		if got := agenttest.Held(s); got != "" {
			t.Errorf("%s: after the start the store holds %q", name, got)
		}
	}
}

// TestDirRenamedFile moves resources to other files, before and after the old one in path order.
// The new files take effect at once.
func TestDirRenamedFile(t *testing.T) {
	withUnwatched(t, func(t *testing.T, u *unwatched) {
		u.look(os.Rename(u.path("a.yaml"), u.path("e.yaml")))
		u.holds("a@e.yaml b@e.yaml z@z.yaml")
		u.look(os.Rename(u.path("e.yaml"), u.path("c.yaml")))
		u.holds("a@c.yaml b@c.yaml z@z.yaml")
		if files := u.source.Files(); len(files) != 2 { // a file whose resources all moved is not retained
			t.Errorf("files: %+v", files)
		}
		// Only some resources move; the others are retained.
		agenttest.Write(t, u.path("x.yaml"), agenttest.Meshes("b+"))
		u.look(os.Remove(u.path("c.yaml")))
		u.holds("a@c.yaml b+@x.yaml z@z.yaml")
		later(time.Second)
		u.holds("b+@x.yaml z@z.yaml")
		if agenttest.Flapped(u.store, agenttest.MeshKey("b")) {
			t.Error("a resource was deleted while it moved")
		}
	})
}

// TestDirHeir checks that a second file with the same resource takes over when the first one is
// finally removed.
func TestDirHeir(t *testing.T) {
	withUnwatched(t, func(t *testing.T, u *unwatched) {
		agenttest.Write(t, u.path("m.yaml"), agenttest.Meshes("a+"))
		u.look()
		u.holds("a@a.yaml b@a.yaml z@z.yaml")
		before := u.store.Snapshot().Revision()
		u.look(os.Truncate(u.path("a.yaml"), 0))
		u.holds("a@a.yaml b@a.yaml z@z.yaml")
		agenttest.Write(t, u.path("a.yaml"), agenttest.Meshes("a", "b"))
		u.look()
		if got := u.store.Snapshot().Revision(); got != before {
			t.Errorf("revision %d, want %d", got, before)
		}
		u.look(os.Remove(u.path("a.yaml")))
		later(time.Second)
		u.holds("a+@m.yaml z@z.yaml")
		if agenttest.Flapped(u.store, agenttest.MeshKey("a")) {
			t.Error("a resource was deleted before its heir had it")
		}
	})
}

// TestDirSwapped replaces the directory by one without the file, removes it, and restores it.
func TestDirSwapped(t *testing.T) {
	withUnwatched(t, func(t *testing.T, u *unwatched) {
		away := u.dir + "-away"
		u.look(os.Rename(u.dir, away), os.Mkdir(u.dir, 0o755))
		u.holds("a@a.yaml b@a.yaml z@z.yaml")
		u.missing("z.yaml", api.MissingVanished, time.Second)
		later(900 * time.Millisecond)
		u.look(os.Remove(u.dir))
		later(time.Hour) // nothing is deleted while the directory cannot be read
		u.holds("a@a.yaml b@a.yaml z@z.yaml")
		u.look(os.Mkdir(u.dir, 0o755))
		u.missing("z.yaml", api.MissingVanished, time.Second) // a new directory may still be filled
		before := u.store.Snapshot().Revision()
		u.look(os.Remove(u.dir), os.Rename(away, u.dir))
		later(time.Hour)
		u.holds("a@a.yaml b@a.yaml z@z.yaml")
		if got := u.store.Snapshot().Revision(); got != before {
			t.Errorf("revision %d, want %d", got, before)
		}
	})
}

// TestDirMountedVersions simulates a mounted ConfigMap whose new version lacks a file.
func TestDirMountedVersions(t *testing.T) {
	withUnwatched(t, func(t *testing.T, u *unwatched) {
		agenttest.Do(t, os.Remove(u.path("a.yaml")), os.Remove(u.path("z.yaml")))
		swap := func(v string, names ...string) error {
			agenttest.Do(t, os.Mkdir(u.path(v), 0o755))
			for _, n := range names {
				agenttest.Write(t, filepath.Join(u.path(v), n+".yaml"), agenttest.Meshes(n))
			}
			return errors.Join(os.Symlink(v, u.path("..tmp")), os.Rename(u.path("..tmp"), u.path("..data")))
		}
		u.look(swap("..1", "a", "z"), os.Symlink("..data/a.yaml", u.path("a.yaml")),
			os.Symlink("..data/z.yaml", u.path("z.yaml")))
		u.holds("a@a.yaml z@z.yaml")
		u.look(swap("..2", "a"), os.Remove(u.path("z.yaml")))
		u.holds("a@a.yaml z@z.yaml")
		u.missing("z.yaml", api.MissingVanished, graces[api.MissingVanished])
		later(time.Second)
		u.holds("a@a.yaml")
	})
}

// TestDirKeepsABoundedNumber lets more files vanish than a directory may contain.
func TestDirKeepsABoundedNumber(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := agenttest.Memory(t)
		source := directory.New(directory.Options{Dirs: []directory.Dir{{Path: dir}}, Registry: kinds.Registry(),
			Store: s, Files: 4})
		source.Scan()
		for round := range 5 {
			for i := range 4 {
				if round > 0 {
					agenttest.Do(t, os.Remove(filepath.Join(dir, fmt.Sprintf("%d-%d.yaml", round-1, i))))
				}
				agenttest.Write(t, filepath.Join(dir, fmt.Sprintf("%d-%d.yaml", round, i)),
					agenttest.Meshes(fmt.Sprintf("m-%d-%d", round, i)))
			}
			source.Scan()
			if got := len(source.Files()); got > 8 {
				t.Fatalf("%d files are retained", got)
			}
		}
		if got := agenttest.Held(s); strings.Count(got, "@4-") != 4 {
			t.Errorf("the existing files are not in force: %s", got)
		}
	})
}
