package logs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/fifo"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/rotation"
)

// world is what a manager works with, without files.
type world struct {
	t *testing.T
	*logs.Manager

	mu      sync.Mutex
	calls   []string
	fail    map[string]error // by path
	hang    chan struct{}    // Set waits for it; nil: it does not
	peers   map[string]access.Peer
	proc    string
	changed int
	stats   map[string]fifo.Status
	outs    map[string]*out
	left    map[string]map[string]string // labels of FIFOs that an earlier agent has left, by path
	opened  error
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

// take returns what was called since it was called last.
func (w *world) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.calls, "; ")
	w.calls = nil
	return all
}

func (w *world) Set(owner string, want []fifo.Pipe) []error {
	w.mu.Lock()
	hang := w.hang
	w.mu.Unlock()
	if hang != nil {
		<-hang
	}
	var paths []string
	errs := make([]error, len(want))
	for i, p := range want {
		paths = append(paths, fmt.Sprintf("%s:%d", filepath.Base(p.Path), p.UID))
		w.mu.Lock()
		if errs[i] = w.fail[p.Path]; errs[i] == nil {
			w.stats[p.Path] = fifo.Status{Owner: owner, Labels: p.Labels}
		}
		w.mu.Unlock()
	}
	w.note("set %s %v", owner, paths)
	return errs
}

func (w *world) NewWriter(owner string) { w.note("new %s", owner) }

func (w *world) Gone(owner string) {
	w.note("gone %s", owner)
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.stats, func(_ string, s fifo.Status) bool { return s.Owner == owner })
}

func (w *world) Flush(_ context.Context, owner string) error { w.note("read %s", owner); return nil }

// reader is the world as pipes, whose Run is another one than that of the manager.
type reader struct{ *world }

func (r reader) Run(ctx context.Context) error { <-ctx.Done(); r.note("reading ends"); return nil }

func (r reader) Stats() map[string]fifo.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.stats)
}

// out is a destination.
type out struct {
	w    *world
	name string
	mu   sync.Mutex
	got  string
	busy bool
	most int // bytes that it takes; 0: all

	unused bool
}

func (o *out) Write(_ context.Context, b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.most > 0 && len(b) > o.most {
		o.got += string(b[:o.most])
		return o.most, errors.New("closed")
	}
	o.got += string(b)
	return len(b), nil
}

func (o *out) Stats() (s accesslog.Stats) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		s.Spooled = 1
	}
	return s
}

func (o *out) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (o *out) Discard() { o.unused = true }

func (o *out) SetLimits(l rotation.Limits) error { o.w.note("limits %s %v", o.name, l); return nil }

func (o *out) Close() error {
	if !o.unused {
		o.w.note("keep %s", o.name)
		return nil
	}
	o.w.note("close %s", o.name)
	return nil
}

func newWorld(t *testing.T, edit func(*world, *logs.Options)) *world {
	w := &world{t: t, fail: map[string]error{}, peers: map[string]access.Peer{}, stats: map[string]fifo.Status{},
		outs: map[string]*out{}, proc: t.TempDir()}
	open := func(name string) (logs.Output, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.outs[name] = &out{w: w, name: name}
		return w.outs[name], nil
	}
	o := logs.Options{
		Dir: "/run/nearside/access", Logs: "/var/log/nearside", Directories: []string{"/srv/logs"}, Proc: w.proc,
		Peer:    func(k node.Key) (access.Peer, bool) { w.mu.Lock(); defer w.mu.Unlock(); return w.peers[k.ID], true },
		Changed: func() { w.mu.Lock(); w.changed++; w.mu.Unlock() },
		Reopen:  func(_ context.Context, id string) error { w.note("reopen %s", id); return nil },
		Open: func(found func(string, map[string]string) accesslog.Destination, _ func(string)) (logs.Pipes, error) {
			var err error
			if w.lock(func() { err = w.opened }); err != nil {
				return nil, err
			}
			for _, path := range slices.Sorted(maps.Keys(w.left)) {
				w.stats[path] = fifo.Status{Owner: w.left[path]["node"], Labels: w.left[path]}
				w.note("found %s %v", filepath.Base(path), found(path, w.left[path]) != nil)
			}
			return reader{w}, nil
		},
		File: func(path string, l rotation.Limits) (logs.Output, error) {
			w.note("file %s %v", path, l)
			return open(path)
		},
		Forward: func(address, spool string) (logs.Output, error) {
			w.note("forward %s %s", address, filepath.Base(spool))
			return open(address)
		},
	}
	if edit != nil {
		edit(w, &o)
	}
	w.Manager = logs.New(o)
	return w
}

// lock has f look at the world, or change it, while nobody else does.
func (w *world) lock(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// told is how often somebody was told of a change.
func (w *world) told() (n int) {
	w.lock(func() { n = w.changed })
	return n
}

// run runs the manager until the test ends.
func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Manager.Run(ctx) }()
	return func() { cancel(); <-done }
}

// process has a proxy run as a process that began at some time; 0: it is not there any more.
func (w *world) process(id string, pid int32, start int) {
	w.t.Helper()
	dir := filepath.Join(w.proc, fmt.Sprint(pid))
	if start == 0 {
		if err := os.RemoveAll(dir); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "stat"),
		fmt.Appendf(nil, "%d (e) n) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 %d 0\n", pid, start), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.peers[id] = access.Peer{Local: true, UID: 7, GID: 8, PID: pid}
	w.mu.Unlock()
}

func key(name string) node.Key { return node.Key{ID: "default." + name, Flavor: node.FlavorEnvoy} }

func tcp(name, address string) draft.Pipe {
	return draft.Pipe{Path: "/run/nearside/access/" + name, Kind: draft.PipeTCP, Target: address}
}

func file(name, path string) draft.Pipe {
	return draft.Pipe{Path: "/run/nearside/access/" + name, Kind: draft.PipeFile, Target: path,
		Rotation: rotation.Limits{MaxFiles: 3}}
}

// expect compares the calls with those that are wanted.
func (w *world) expect(when string, want ...string) {
	w.t.Helper()
	if got := w.take(); got != strings.Join(want, "; ") {
		w.t.Errorf("%s: %s\nwant %s", when, got, strings.Join(want, "; "))
	}
}

// TestPrepare: when it returns, what is not told to be missing is there, and asking again costs
// nothing until it is time to look.
func TestPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.run()()
		w.process("default.web", 10, 5)
		if got := w.Prepare(key("none"), nil); got != nil {
			t.Error(got)
		}
		pipes := []draft.Pipe{tcp("a", "one:1"), file("b", "/var/log/nearside/x/../b.log"), file("c", "/etc/passwd"),
			file("d", "/var/log/nearside/../../../etc/shadow"), file("e", "/srv/logs/e")}
		got := w.Prepare(key("web"), pipes)
		if len(got) != 2 || !strings.Contains(got[pipes[2].Path], "add the directory to accessLog.directories") ||
			got[pipes[3].Path] == "" {
			t.Errorf("%v", got)
		}
		w.expect("first", "new default.web", "forward one:1 .", "file /var/log/nearside/b.log {0 3 0}",
			"file /srv/logs/e {0 3 0}", "set default.web [a:7 b:7 e:7]")

		good := []draft.Pipe{pipes[0], pipes[1]}
		if got := w.Prepare(key("web"), good); len(got) != 0 {
			t.Error(got)
		}
		w.expect("what is not named any more stays for a while", "set default.web [a:7 b:7 e:7]")
		w.Prepare(key("web"), good)
		w.expect("nothing new")

		w.lock(func() { w.fail[good[0].Path] = errors.New("it is a directory; remove it") })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.expect("looked after", "set default.web [a:7 b:7 e:7]")
		if w.told() == 0 {
			t.Error("what was said does not hold any more, and nobody is told")
		}
		if got := w.Prepare(key("web"), good); len(got) != 1 || got[good[0].Path] != "it is a directory; remove it" {
			t.Error(got)
		}
		before := w.told()
		w.lock(func() { delete(w.fail, good[0].Path) })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if w.told() == before {
			t.Error("it works again, and nobody is told")
		}
		if got := w.Prepare(key("web"), good); len(got) != 0 {
			t.Error(got)
		}
		w.take()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := w.take(); !strings.HasSuffix(got, "set default.web [a:7 b:7]") {
			t.Errorf("after a while: %s", got)
		}
	})
}

// TestNewProcess: FIFOs are cleared of half lines before a new process gets them, and never while
// the old one lives.
func TestNewProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.run()()
		pipes := []draft.Pipe{tcp("a", "one:1")}
		w.process("default.web", 10, 5)
		w.Prepare(key("web"), pipes)
		w.expect("first", "new default.web", "forward one:1 .", "set default.web [a:7]")
		w.process("default.web", 11, 6) // takes over from 10
		w.Prepare(key("web"), pipes)
		w.expect("hot restart", "set default.web [a:7]")
		w.process("default.web", 11, 0)
		w.process("default.web", 12, 7)
		w.Prepare(key("web"), pipes)
		w.expect("restart", "new default.web", "set default.web [a:7]")
	})
}

// TestHangs: what takes long holds up nobody for more than a moment, and takes nothing away that
// was there.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.run()()
		w.process("default.web", 10, 5)
		one := []draft.Pipe{tcp("a", "one:1")}
		w.Prepare(key("web"), one)
		hang := make(chan struct{})
		w.mu.Lock()
		w.hang = hang
		w.mu.Unlock()
		two := []draft.Pipe{one[0], tcp("b", "two:2")}
		for i, most := range []time.Duration{250 * time.Millisecond, 0} {
			began := time.Now()
			got := w.Prepare(key("web"), two)
			if took := time.Since(began); took > most || len(got) != 1 ||
				!strings.Contains(got[two[1].Path], "not made ready in time") {
				t.Errorf("%d: %v after %v", i, got, took)
			}
		}
		before := w.told()
		close(hang)
		synctest.Wait()
		if w.told() == before {
			t.Error("it is ready, and nobody is told")
		}
		if got := w.Prepare(key("web"), two); len(got) != 0 {
			t.Error(got)
		}
	})
}

// TestOutputsAreShared: proxies share what they log to; it is closed once nobody needs it and it
// holds nothing.
func TestOutputsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		stop := w.run()
		w.process("default.a", 10, 5)
		w.process("default.b", 11, 5)
		w.Prepare(key("a"), []draft.Pipe{tcp("a", "one:1"), file("af", "/srv/logs/f")})
		other := file("bf", "/srv/logs/f")
		other.Rotation.MaxFiles = 9
		w.Prepare(key("b"), []draft.Pipe{tcp("b", "one:1"), other})
		w.expect("both", "new default.a", "forward one:1 .", "file /srv/logs/f {0 3 0}", "set default.a [a:7 af:7]",
			"new default.b", "set default.b [b:7 bf:7]")
		w.Left(key("a"))
		w.Left(key("a"))
		synctest.Wait()
		if got := w.take(); got != "gone default.a; reopen default.a" && got != "reopen default.a; gone default.a" {
			t.Errorf("one has left: %s", got)
		}
		w.outs["one:1"].mu.Lock()
		w.outs["one:1"].busy = true
		w.outs["one:1"].mu.Unlock()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.expect("the limits of the other", "limits /srv/logs/f {0 9 0}", "set default.b [b:7 bf:7]")
		w.Left(key("b"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := w.take(); !strings.Contains(got, "gone default.b") || !strings.Contains(got, "reopen default.b") ||
			!strings.HasSuffix(got, "; close /srv/logs/f") {
			t.Errorf("both have left: %s", got)
		}
		w.outs["one:1"].mu.Lock()
		w.outs["one:1"].busy = false
		w.outs["one:1"].mu.Unlock()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.expect("the collector has all", "close one:1")
		stop()
		w.expect("stopped", "reading ends")
	})
}

// TestLeftByAnEarlierAgent: its FIFOs are read on at once, and their process is known; those of a
// proxy that does not come go.
func TestLeftByAnEarlierAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		labels := func(node, kind, target string) map[string]string {
			return map[string]string{"node": node, "process": "10 5", "kind": kind, "target": target, "limits": "1 2 3"}
		}
		spool := t.TempDir()
		for _, name := range []string{"tcp-old%3A1", "tcp-x", "other", "file-%2Fetc%2Fa", "tcp-a%zz", "tcp-b-1"} {
			if err := os.Mkdir(filepath.Join(spool, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		w := newWorld(t, func(w *world, o *logs.Options) {
			o.Spool = spool
			w.left = map[string]map[string]string{
				"/run/nearside/access/a": labels("default.web", "tcp", "one:1"), "/run/nearside/access/b": labels("default.gone",
					"file", "/srv/logs/f"), "/run/nearside/access/c": labels("default.gone", "file", "/etc/f"),
				"/run/nearside/access/d": {"node": "default.web"},
			}
		})
		w.expect("found", "forward one:1 tcp-one%3A1", "found a true", "file /srv/logs/f {1 2 3}", "found b true",
			"found c false", "found d false")
		stop := w.run()
		synctest.Wait()
		w.expect("spools", "forward old:1 tcp-old%3A1", "forward x tcp-x")
		w.process("default.web", 10, 5)
		w.Prepare(key("web"), []draft.Pipe{tcp("a", "one:1")})
		w.expect("the same process", "set default.web [a:7]")
		w.Left(key("gone")) // not known to be gone: its Envoy may come still
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if got := w.take(); strings.Contains(got, "gone") || !strings.Contains(got, "close old:1") {
			t.Errorf("early: %s", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := w.take(); !strings.Contains(got, "gone default.gone") || !strings.Contains(got, "close /srv/logs/f") {
			t.Errorf("late: %s", got)
		}
		stop()
		w.expect("stopped", "reopen default.web", "read default.web", "reading ends", "keep one:1")
	})
}

// TestPipesCannotBeOpened: no config names a FIFO then, and it is tried again.
func TestPipesCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world, _ *logs.Options) { w.opened = errors.New("others may write to it; chmod 0750") })
		defer w.run()()
		w.process("default.web", 10, 5)
		if got := w.Prepare(key("web"), []draft.Pipe{tcp("a", "one:1")}); !strings.Contains(got["/run/nearside/access/a"],
			"chmod 0750") || len(w.Trouble()) != 1 {
			t.Errorf("%v; %v", got, w.Trouble())
		}
		w.lock(func() { w.opened = nil })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := w.Prepare(key("web"), []draft.Pipe{tcp("a", "one:1")}); len(got) != 0 || w.told() == 0 {
			t.Errorf("%v", got)
		}
	})
}

// TestPrefix: what lines begin with in the FIFO does not reach the collector, however much it takes
// at once.
func TestPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		labels := map[string]string{"node": "default.web", "kind": "tcp", "target": "one:1", "prefix": "one:1;",
			"limits": "0 0 0"}
		var to accesslog.Destination
		w := newWorld(t, func(w *world, o *logs.Options) {
			open := o.Open
			o.Open = func(found func(string, map[string]string) accesslog.Destination, reopen func(string)) (logs.Pipes, error) {
				to = found("/run/nearside/access/a", labels)
				return open(found, reopen)
			}
		})
		batch := "one:1;first\none:1;second\nthird one:1;\n\n"
		if n, err := to.Write(t.Context(), []byte(batch)); n != len(batch) || err != nil ||
			w.outs["one:1"].got != "first\nsecond\nthird one:1;\n\n" {
			t.Errorf("%d, %v: %q", n, err, w.outs["one:1"].got)
		}
		w.outs["one:1"].got, w.outs["one:1"].most = "", len("first\n")
		if n, err := to.Write(t.Context(), []byte(batch)); n != len("one:1;first\n") || err == nil ||
			w.outs["one:1"].got != "first\n" {
			t.Errorf("%d, %v: %q", n, err, w.outs["one:1"].got)
		}
	})
}
