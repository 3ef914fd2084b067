package logs_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

// relay records its routes.
type relay struct {
	w      *world
	mu     sync.Mutex
	routes map[string]logs.Route
	waits  map[string]bool
	asks   int // calls of Recheck
}

func (r *relay) Recheck() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asks++
}

func (r *relay) SetRoute(x logs.Route) error {
	r.w.note("route %s %s %s", x.Authority, x.Endpoint, filepath.Base(x.Spool))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.routes[x.Authority] = x
	return nil
}

func (r *relay) RemoveRoute(authority string, discard bool) error {
	r.w.note("no route %s %v", authority, discard)
	return nil
}

func (r *relay) Stats() map[string]accesslog.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]accesslog.Stats{}
	for authority := range r.routes {
		var s accesslog.Stats
		if r.waits[authority] {
			s.Spooled = 1
		}
		out[authority] = s
	}
	return out
}

// TestRoutes checks that records of a proxy are accepted only from its user, that a route is
// removed when it is unused and has no pending records, and that records of an earlier agent are
// sent, but not added to before the proxy connects.
func TestRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spool := t.TempDir()
		for _, name := range []string{"otlp-old.x-old%3A1", "otlp-bad", "otlp-a%zz-b"} {
			if err := os.Mkdir(filepath.Join(spool, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		r := &relay{routes: map[string]logs.Route{}, waits: map[string]bool{"old.x": true}}
		w := newWorld(t, func(w *world, o *logs.Options) { r.w, o.Relay, o.Spool = w, r, spool })
		defer w.run()()
		synctest.Wait()
		w.expect("left", "route old.x old:1 otlp-old.x-old%3A1")
		err := r.routes["old.x"].Allow(logs.Caller{Known: true, UID: 7})
		if err == nil || !strings.Contains(err.Error(), "no proxy has requested") {
			t.Errorf("a route that no proxy has requested: %v", err)
		}
		w.process("default.web", 10, 5)
		pipe := draft.Pipe{Path: "/run/nearside/otlp.sock", Kind: draft.PipeOTLP, Target: "otel:4317",
			Route: "a-b.otlp.nearside", Cluster: "c"}
		if got, _ := w.Prepare(key("web"), []draft.Pipe{pipe}); len(got) != 0 {
			t.Error(got)
		}
		w.expect("first", "new default.web", "route a-b.otlp.nearside otel:4317 otlp-a%2Db.otlp.nearside-otel%3A4317",
			"set default.web []")
		permit := r.routes[pipe.Route].Allow
		allow := func(known bool, uid uint32) error { return permit(logs.Caller{Known: known, UID: uid}) }
		if permit(logs.Caller{Known: true, UID: 7, Pod: "u-1"}) == nil {
			t.Error("a pod may send as a user of the node")
		}
		if allow(true, 7) != nil || allow(true, 8) == nil || allow(false, 7) == nil || allow(true, 0) == nil {
			t.Error("another user may send, or the user of the proxy may not")
		}
		w.mu.Lock()
		w.peers["default.web"] = access.Peer{Local: true, UID: 9, PID: 10}
		w.mu.Unlock()
		w.Prepare(key("web"), []draft.Pipe{pipe})
		if allow(true, 9) != nil || allow(true, 7) == nil {
			t.Error("the new user of the proxy may not send, or the old one may")
		}
		w.mu.Lock()
		w.peers["default.web"] = access.Peer{Local: true, Foreign: true, UID: 65534, PID: 10}
		w.mu.Unlock()
		if got, _ := w.Prepare(key("web"), []draft.Pipe{pipe}); !strings.Contains(got[pipe.Route].Reason,
			"user of its Envoy is unknown") {
			t.Errorf("an unknown user: %v", got)
		}
		w.take()
		w.Prepare(key("web"), nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := w.take(); strings.Count(got, "no route") != 1 || !strings.Contains(got, "no route a-b.otlp.nearside true") {
			t.Errorf("unused: %s", got)
		}
		r.mu.Lock()
		delete(r.waits, "old.x")
		r.mu.Unlock()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if got := w.take(); !strings.Contains(got, "no route old.x true") {
			t.Errorf("all sent: %s", got)
		}
	})
}

// TestNoRelay checks that records go directly to their collector without a relay.
func TestNoRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.run()()
		w.process("default.web", 10, 5)
		pipe := draft.Pipe{Path: "/run/nearside/otlp.sock", Kind: draft.PipeOTLP, Target: "otel:4317", Route: "r",
			Cluster: "c"}
		if got, _ := w.Prepare(key("web"), []draft.Pipe{pipe}); !strings.Contains(got["r"].Reason, "socket") {
			t.Errorf("%v", got)
		}
	})
}

// TestRouteOfRestart checks that a route of an earlier agent allows no caller before its proxy has
// requested it, and that waiting calls are told about that.
func TestRouteOfRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spool := t.TempDir()
		if err := os.Mkdir(filepath.Join(spool, "otlp-old.x-otel%3A4317"), 0o700); err != nil {
			t.Fatal(err)
		}
		r := &relay{routes: map[string]logs.Route{}}
		w := newWorld(t, func(w *world, o *logs.Options) { r.w, o.Relay, o.Spool = w, r, spool })
		defer w.run()()
		synctest.Wait()
		if r.routes["old.x"].Allow(logs.Caller{Known: true, UID: 7}) == nil {
			t.Error("a route that no proxy has requested allows a caller")
		}
		w.process("default.web", 10, 5)
		pipe := []draft.Pipe{{Path: "/run/nearside/otlp.sock", Kind: draft.PipeOTLP, Target: "otel:4317", Route: "old.x",
			Cluster: "c"}}
		w.Prepare(key("web"), pipe)
		synctest.Wait()
		if err := r.routes["old.x"].Allow(logs.Caller{Known: true, UID: 7}); err != nil || r.asks != 1 {
			t.Errorf("the Envoy of the proxy: %v; calls were told %d times", err, r.asks)
		}
		if r.routes["old.x"].Allow(logs.Caller{Known: true, UID: 8}) == nil {
			t.Error("another user may send")
		}
		time.Sleep(time.Minute)
		w.Prepare(key("web"), pipe)
		synctest.Wait()
		if r.asks != 1 {
			t.Errorf("nothing has changed, but calls were told %d times", r.asks)
		}
	})
}
