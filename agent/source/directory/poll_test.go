package directory_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// asAnother runs fn on a thread with the file permissions of an ordinary user. The thread ends with
// fn.
func asAnother(t *testing.T, fn func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		fn()
		return
	}
	const nobody = 65534
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		_ = unix.Setfsgid(nobody)
		_ = unix.Setfsuid(nobody)
		if got, err := unix.SetfsuidRetUid(-1); err != nil || got != nobody { // -1 returns the ID without changing it
			ended <- errors.New("this process may not act as another user")
			return
		}
		fn()
		ended <- nil
	}()
	if err := <-ended; err != nil {
		t.Skip(err)
	}
}

// openDir returns a directory that every user can access.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	agenttest.Do(t, os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755))
	return dir
}

// polled runs a source that must detect changes without events.
func polled(t *testing.T, dir string, watcher func() (*fsnotify.Watcher, error)) (*watched, *agenttest.Logs) {
	t.Helper()
	l := agenttest.NewLogs()
	w := watch(t, dir, agenttest.Memory(t), func(o *directory.Options) {
		o.Watcher, o.Log, o.Poll = watcher, l.Logger(), 300*time.Millisecond
	})
	return w, l
}

func TestDirWithoutWatcher(t *testing.T) {
	w, l := polled(t, t.TempDir(), func() (*fsnotify.Watcher, error) { return nil, errors.New("too many open instances") })
	agenttest.Await(t, "the log names the limit", l.Ch, func() bool {
		return strings.Contains(l.String(), "fs.inotify.max_user_instances") &&
			strings.Contains(l.String(), "too many open instances")
	})
	w.write("a.yaml", agenttest.Meshes("a"))
	w.Want("a@a.yaml")
	w.write("a.yaml", agenttest.Meshes("a+", "b"))
	w.Want("a+@a.yaml b@a.yaml")
	agenttest.Do(t, os.Remove(w.path("a.yaml")))
	w.Want("")
}

// TestDirWatcherThatEnds uses a watcher with closed channels.
func TestDirWatcherThatEnds(t *testing.T) {
	w, l := polled(t, t.TempDir(), func() (*fsnotify.Watcher, error) {
		f, err := fsnotify.NewWatcher()
		if err != nil {
			return nil, err
		}
		return f, f.Close()
	})
	agenttest.Await(t, "the log says so", l.Ch, func() bool {
		return strings.Contains(l.String(), "the watcher of the resource directories has stopped")
	})
	w.write("a.yaml", agenttest.Meshes("a"))
	w.Want("a@a.yaml")
	if n := strings.Count(l.String(), "has stopped"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// TestDirWithoutWatch uses a link to a file in a directory that the agent's user can traverse but
// not watch.
func TestDirWithoutWatch(t *testing.T) {
	dir, closed := openDir(t), openDir(t)
	secret := filepath.Join(closed, "x.yaml")
	agenttest.Write(t, secret, agenttest.Meshes("x"))
	agenttest.Do(t, os.Symlink(secret, filepath.Join(dir, "x.yaml")), os.Chmod(closed, 0o311))
	t.Cleanup(func() { agenttest.Do(t, os.Chmod(closed, 0o755)) })
	s, l := agenttest.Memory(t), agenttest.NewLogs()
	source := directory.New(directory.Options{Dirs: []directory.Dir{{Path: dir}}, Registry: kinds.Registry(), Store: s,
		Log: l.Logger(), Poll: 300 * time.Millisecond})
	asAnother(t, func() {
		ctx, cancel := context.WithCancel(context.Background())
		found := make(chan struct{})
		go func() {
			defer close(found)
			defer cancel()
			changed, stop := s.Watch()
			defer stop()
			late := time.After(agenttest.Patience)
			for agenttest.Held(s) != "x@x.yaml" ||
				!strings.Contains(l.String(), "cannot watch a resource directory, polling it instead") {
				select {
				case <-changed:
				case <-l.Ch:
				case <-late:
					t.Errorf("at the start: %q, %s", agenttest.Held(s), l)
					return
				}
			}
			if err := os.WriteFile(secret, []byte(agenttest.Meshes("x+")), 0o644); err != nil {
				t.Error(err)
			}
			for agenttest.Held(s) != "x+@x.yaml" {
				select {
				case <-changed:
				case <-late:
					t.Errorf("the change is not found: %q", agenttest.Held(s))
					return
				}
			}
		}()
		source.Run(ctx)
		<-found
	})
	if n := strings.Count(l.String(), "cannot watch a resource directory"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// TestDirUnreadableFile uses a file that the agent's user must not read: the file has a fault and
// retains its content.
func TestDirUnreadableFile(t *testing.T) {
	dir, s := openDir(t), agenttest.Memory(t)
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	agenttest.Write(t, a, agenttest.Meshes("a"))
	agenttest.Write(t, b, agenttest.Meshes("b"))
	agenttest.Do(t, os.Chmod(a, 0o644), os.Chmod(b, 0o644))
	source := directory.New(directory.Options{Dirs: []directory.Dir{{Path: dir}}, Registry: kinds.Registry(), Store: s})
	asAnother(t, source.Scan)
	agenttest.Write(t, a, agenttest.Meshes("a+"))
	agenttest.Write(t, b, agenttest.Meshes("b+"))
	agenttest.Do(t, os.Chmod(a, 0))
	asAnother(t, source.Scan)
	if got := agenttest.Held(s); got != "a@a.yaml b+@b.yaml" {
		t.Errorf("the store holds %q", got)
	}
	f := source.Files()[0]
	if !f.Stale || len(f.Faults) != 1 || f.Missing != "" ||
		!strings.Contains(f.Faults[0].Reason, "allow the agent's user to read it") {
		t.Errorf("status: %+v", f)
	}
	agenttest.Do(t, os.Chmod(a, 0o644))
	asAnother(t, source.Scan)
	if got := agenttest.Held(s); got != "a+@a.yaml b+@b.yaml" || len(source.Files()[0].Faults) != 0 {
		t.Errorf("when it can be read again: %q, %+v", got, source.Files()[0])
	}
	agenttest.Do(t, os.Chmod(dir, 0o311))
	asAnother(t, source.Scan)
	agenttest.Do(t, os.Chmod(dir, 0o755))
	if f := source.Files()[0]; f.Path != dir || len(f.Faults) != 1 || agenttest.Held(s) != "a+@a.yaml b+@b.yaml" {
		t.Errorf("a directory that cannot be listed: %+v, %q", f, agenttest.Held(s))
	}
}
