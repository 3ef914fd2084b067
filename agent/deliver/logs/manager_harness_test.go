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

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/fifo"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/rotation"
)

// world is the environment of a manager, without files.
type world struct {
	t *testing.T
	*logs.Manager

	mu      sync.Mutex
	calls   []string
	fail    map[string]error // by path
	hang    chan struct{}    // Set blocks until it is closed; nil: Set does not block
	peers   map[string]access.Peer
	proc    string
	changed int
	stats   map[string]fifo.Status
	outs    map[string]*out
	left    map[string]map[string]string // labels of FIFOs left by an earlier agent, by path
	opened  error
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

// take returns the calls since the last take.
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

// reader is the world as Pipes. Its Run differs from that of the manager.
type reader struct{ *world }

func (r reader) Run(ctx context.Context) error { <-ctx.Done(); r.note("reading ends"); return nil }

func (r reader) Stats() map[string]fifo.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.stats)
}

// out is a destination.
type out struct {
	w     *world
	name  string
	mu    sync.Mutex
	got   string
	busy  bool
	limit int // accepted bytes; 0: all

	unused bool
}

func (o *out) Write(_ context.Context, b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.limit > 0 && len(b) > o.limit {
		o.got += string(b[:o.limit])
		return o.limit, errors.New("closed")
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
	var cfg config.Config
	cfg.Paths.Logs, cfg.Paths.Run, cfg.AccessLog.Directories = "/var/log/nearside", "/run/nearside", []string{"/srv/logs"}
	o := logs.Options{
		Dir: "/run/nearside/access", Paths: logpaths.New(&cfg), Proc: w.proc,
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

// lock runs f while nothing else accesses the world.
func (w *world) lock(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// notified returns how often Changed was called.
func (w *world) notified() (n int) {
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

// process sets the process of a proxy and its start time; 0: it has ended.
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

// expect compares the calls with the expected ones.
func (w *world) expect(when string, want ...string) {
	w.t.Helper()
	if got := w.take(); got != strings.Join(want, "; ") {
		w.t.Errorf("%s: %s\nwant %s", when, got, strings.Join(want, "; "))
	}
}
