package rotation_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// change is a change of the directories root/above/logs. afterwards are the directories in which
// the lines are, in order. undo, if any, is called before they are read.
type change struct {
	make       func(root string) error
	afterwards []string
	undo       func(root string) error
}

func at(root string) string { return filepath.Join(root, "above", "logs") }

func mount(dir string) error {
	return syscall.Mount("rotation-test", dir, "tmpfs", 0, "size=4m,mode=750")
}

var changes = map[string]change{
	"removed": {make: func(r string) error { return os.RemoveAll(at(r)) }, afterwards: []string{"above/logs"}},
	"recreated": {make: func(r string) error { return errors.Join(os.RemoveAll(at(r)), os.Mkdir(at(r), 0o750)) },
		afterwards: []string{"above/logs"}},
	"moved": {make: func(r string) error { return os.Rename(at(r), at(r)+".1") },
		afterwards: []string{"above/logs.1", "above/logs"}},
	"moved and recreated": {
		make:       func(r string) error { return errors.Join(os.Rename(at(r), at(r)+".1"), os.Mkdir(at(r), 0o750)) },
		afterwards: []string{"above/logs.1", "above/logs"}},
	"mounted over": {make: func(r string) error { return mount(at(r)) }, afterwards: []string{"above/logs", "moved"},
		undo: func(r string) error {
			return errors.Join(os.Mkdir(filepath.Join(r, "moved"), 0o750),
				syscall.Mount(at(r), filepath.Join(r, "moved"), "", syscall.MS_BIND, ""),
				syscall.Unmount(at(r), syscall.MNT_DETACH))
		}},
	"ancestor removed": {make: func(r string) error { return os.RemoveAll(filepath.Dir(at(r))) },
		afterwards: []string{"above/logs"}},
	"ancestor renamed": {
		make:       func(r string) error { return os.Rename(filepath.Dir(at(r)), filepath.Join(r, "other")) },
		afterwards: []string{"other/logs", "above/logs"}},
	"root removed": {make: os.RemoveAll, afterwards: []string{"above/logs"}},
	"writable for all": {make: func(r string) error { return os.Chmod(at(r), 0o777) },
		afterwards: []string{"above/logs"}},
	"closed": {make: func(r string) error { return os.Chmod(at(r), 0) }, afterwards: []string{"above/logs"}},
}

// keepsLines reports whether a change removes the lines before it.
func (c change) keepsLines(name string) bool {
	return !strings.Contains(name, "removed") && name != "recreated"
}

// newTree returns a root with the directory of a log, and the path of the log.
func newTree(t *testing.T) (root, path string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "root")
	if err := errors.Join(os.MkdirAll(at(root), 0o750), os.Chmod(filepath.Dir(at(root)), 0o711)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Unmount(at(root), syscall.MNT_DETACH)
		_ = syscall.Unmount(filepath.Join(root, "moved"), syscall.MNT_DETACH)
	})
	return root, filepath.Join(at(root), "access.log")
}

// TestDirectoryRecovers changes the directory of a log between and during writes. No line is lost
// except those that the change removes, the directory has its mode, and the log keeps its lock.
func TestDirectoryRecovers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	for name, c := range changes {
		t.Run("file "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRecovery(t, c, c.keepsLines(name), openedFile) })
		})
		t.Run("plain "+name, func(t *testing.T) { testRecovery(t, c, c.keepsLines(name), openedPlain) })
	}
}

func testRecovery(t *testing.T, c change, keeps bool, opened func(rotation.Options) (log, error)) {
	root, path := newTree(t)
	o := rotation.Options{Path: path, Roots: []string{root}}
	f, err := opened(o)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, lines(0, 10))
	if err := c.make(root); err != nil {
		t.Fatal(err)
	}
	f.write(t, lines(10, 20)) // before the change is found
	if err := f.check(); err != nil {
		t.Errorf("health: %v", err)
	}
	f.write(t, lines(20, 30))
	if st, err := os.Stat(at(root)); err != nil || st.Mode().Perm() != 0o750 && st.Mode().Perm() != 0 {
		t.Errorf("the directory: %v, %v", st, err)
	}
	if st, err := os.Stat(filepath.Dir(at(root))); err != nil || st.Mode().Perm() != 0o711 {
		t.Errorf("the parent: %v, %v", st, err)
	}
	if second, err := opened(o); err == nil {
		t.Error("a second process can open the log")
		second.close()
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
	if c.undo != nil {
		if err := c.undo(root); err != nil {
			t.Fatal(err)
		}
	}
	got := ""
	for _, dir := range c.afterwards {
		if name := filepath.Join(root, dir, "access.log"); exists(name) {
			got += read(t, name)
		}
	}
	want := lines(10, 30)
	if keeps {
		want = lines(0, 30)
	}
	if got != want {
		t.Errorf("lines %q, want %q", got, want)
	}
}

// log is a File or a Plain. check returns its health after a second.
type log struct {
	write func(*testing.T, string)
	check func() error
	close func() error
}

func openedFile(o rotation.Options) (log, error) {
	f, err := rotation.Open(o)
	if err != nil {
		return log{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	check := func() error {
		pass(time.Second)
		return f.Stats().Health
	}
	return log{func(t *testing.T, s string) { write(t, f, s) }, check, func() error {
		cancel()
		return errors.Join(<-ended, f.Close())
	}}, nil
}

func openedPlain(o rotation.Options) (log, error) {
	p, err := rotation.OpenPlain(o)
	if err != nil {
		return log{}, err
	}
	return log{func(t *testing.T, s string) {
		t.Helper()
		if n, err := p.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("Write: %d, %v", n, err)
		}
	}, p.Look, p.Close}, nil
}

// TestWaitingLinesGetFreshOpen checks that lines that wait for a missing directory are written when
// the writer stops, if the directory can be created then.
func TestWaitingLinesGetFreshOpen(t *testing.T) {
	for name, stop := range map[string]func(context.CancelFunc, *rotation.File){
		"stopped": func(cancel context.CancelFunc, _ *rotation.File) { cancel() },
		"closed": func(_ context.CancelFunc, f *rotation.File) {
			if err := f.Close(); err != nil {
				panic(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root, path := newTree(t)
				f, err := rotation.Open(rotation.Options{Path: path}) // without roots
				if err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(root); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					_, err := f.Write(ctx, []byte("waits\n"))
					ended <- err
				}()
				pass(10 * time.Second)
				if h := f.Stats().Health; h == nil || !strings.Contains(h.Error(), "create its parent directory") {
					t.Errorf("health: %v", h)
				}
				if err := os.MkdirAll(filepath.Dir(at(root)), 0o750); err != nil {
					t.Fatal(err)
				}
				stop(cancel, f)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if got := read(t, path); got != "waits\n" {
					t.Errorf("the file holds %q", got)
				}
				_ = f.Close()
			})
		})
	}
}

// TestBackAndForth checks that a log returns to its directory when a mount over it ends, and that a
// directory on which it cannot write is no reason to lose lines.
func TestBackAndForth(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	synctest.Test(t, func(t *testing.T) {
		root, path := newTree(t)
		f, err := rotation.Open(rotation.Options{Path: path, Roots: []string{root}})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, f)
		write(t, f, lines(0, 10))
		if err := syscall.Mount("rotation-test", at(root), "tmpfs", syscall.MS_RDONLY, "mode=750"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		write(t, f, lines(10, 20))
		if h := f.Stats().Health; h == nil || !strings.Contains(h.Error(), "read-only file system") {
			t.Errorf("health on a read-only file system: %v", h)
		}
		if err := syscall.Mount("rotation-test", at(root), "tmpfs", syscall.MS_REMOUNT, ""); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		write(t, f, lines(20, 30))
		if h := f.Stats().Health; h != nil || read(t, path) != lines(20, 30) {
			t.Errorf("after a remount: %v, %q", h, read(t, path))
		}
		if err := syscall.Unmount(at(root), syscall.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		write(t, f, lines(30, 40))
		if s := f.Stats(); s.Health != nil || s.Recovered != 2 {
			t.Errorf("stats %+v", s)
		}
		if got := read(t, path); got != lines(0, 20)+lines(30, 40) {
			t.Errorf("the file holds %q", got)
		}
		stop()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLinkOfRoot checks that a link of root to a directory is followed, also after it was changed.
func TestLinkOfRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make such a link")
	}
	synctest.Test(t, func(t *testing.T) {
		root, path := newTree(t)
		link, other := filepath.Join(root, "link"), filepath.Join(root, "other")
		if err := errors.Join(os.Mkdir(other, 0o750), os.Symlink("above/logs", link)); err != nil {
			t.Fatal(err)
		}
		f, err := rotation.Open(rotation.Options{Path: filepath.Join(link, "access.log")})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, f)
		write(t, f, "one\n")
		if err := errors.Join(os.Remove(link), os.Symlink(other, link)); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		write(t, f, "two\n")
		if a, b := read(t, path), read(t, filepath.Join(other, "access.log")); a != "one\n" || b != "two\n" {
			t.Errorf("%q, %q", a, b)
		}
		stop()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestTwoAgents checks that a second process cannot take a log whose directory was replaced or
// whose lock file was removed.
func TestTwoAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, path := newTree(t)
		o := rotation.Options{Path: path, Roots: []string{root}}
		f, err := rotation.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, f)
		if err := os.Remove(sibling(path, ".access.log.lock")); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if _, err := rotation.Open(o); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("a second process after the lock file was removed: %v", err)
		}
		write(t, f, "one\n")
		if err := os.Rename(at(root), at(root)+".1"); err != nil {
			t.Fatal(err)
		}
		g, err := rotation.Open(o) // before f finds the change
		if err != nil {
			t.Fatal(err)
		}
		write(t, g, "theirs\n")
		pass(time.Second)
		write(t, f, "two\n")
		if h := f.Stats().Health; h == nil || !strings.Contains(h.Error(), "in use by another process") {
			t.Errorf("health: %v", h)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		pass(time.Second)
		write(t, f, "three\n")
		if a, b := read(t, filepath.Join(at(root)+".1", "access.log")), read(t, path); a != "one\ntwo\n" ||
			b != "theirs\nthree\n" || f.Stats().Health != nil {
			t.Errorf("%q, %q, %v", a, b, f.Stats().Health)
		}
		stop()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}
