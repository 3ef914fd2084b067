package account_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/account"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

var web = node.Key{ID: "default.web", Flavor: node.FlavorEnvoy}

const listener = "inbound:10.0.0.1:8080"

// world is the environment of an account.
type world struct {
	mu      sync.Mutex // guards the fields below
	streams []api.LogStream
	traffic api.ListenerTraffic
	fails   error
}

// start runs an account.
func start(t *testing.T, w *world) *account.Account {
	a := account.New(account.Options{
		Streams: func() (out []api.LogStream) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, s := range w.streams {
				s.Dropped = maps.Clone(s.Dropped)
				out = append(out, s)
			}
			return out
		},
		Counts: func(context.Context, string) (api.ProxyCounts, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return api.ProxyCounts{Listeners: map[string]api.ListenerTraffic{listener: w.traffic}}, w.fails
		}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	synctest.Wait()
	return a
}

// problems returns the classes and severities, and the reasons.
func problems(a *account.Account) (classes, reasons string) {
	var c, r []string
	for _, p := range a.Problems() {
		c = append(c, p.Check+" "+p.Severity)
		r = append(r, p.Reason)
	}
	return strings.Join(c, "; "), strings.Join(r, "; ")
}

// TestGap checks that the traffic of a listener without a logger is counted from its publication
// until its logger is published, over a restart of the Envoy, and not before or after.
func TestGap(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("the listener exists: %t", old), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{}
				if old {
					w.mu.Lock()
					w.traffic = api.ListenerTraffic{Connections: 100, Requests: 1000}
					w.mu.Unlock()
				}
				a := start(t, w)
				missing := map[string]string{listener: "file /srv/a: it is a directory"}
				a.Unlogged(web, missing, func(string) bool { return old })
				synctest.Wait()
				w.mu.Lock()
				w.traffic.Connections += 3
				w.traffic.Requests += 40
				w.mu.Unlock()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				a.Unlogged(web, missing, func(string) bool { return true })
				w.mu.Lock()
				w.traffic = api.ListenerTraffic{Connections: 1, Requests: 2} // another process
				w.mu.Unlock()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				gaps := a.Gaps()
				if len(gaps) != 1 || gaps[0].Mesh != "default" || gaps[0].Dataplane != "web" || gaps[0].Traffic == nil ||
					*gaps[0].Traffic != (api.ListenerTraffic{Connections: 4, Requests: 42}) {
					t.Errorf("%+v", gaps)
				}
				if classes, reasons := problems(a); classes != "log-gap error" ||
					!strings.Contains(reasons, "4 connections and 42 requests since then are in no log") ||
					!strings.Contains(reasons, "it is a directory") {
					t.Errorf("%s: %s", classes, reasons)
				}
				w.mu.Lock()
				w.traffic.Requests += 5
				w.mu.Unlock()
				a.Unlogged(web, nil, nil)
				synctest.Wait()
				w.mu.Lock()
				w.traffic.Requests += 1000 // logged
				w.mu.Unlock()
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := a.Unrecorded(); got != (api.ListenerTraffic{Connections: 4, Requests: 47}) || len(a.Gaps()) != 0 {
					t.Errorf("in the end: %+v, %v", got, a.Gaps())
				}
				if classes, _ := problems(a); classes != "" {
					t.Error(classes)
				}
			})
		})
	}
}

// TestGapOfSilentEnvoy checks that a gap is a problem although its Envoy does not report traffic,
// and that it ends with the proxy.
func TestGapOfSilentEnvoy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, &world{fails: errors.New("no admin socket")})
		a.Unlogged(web, map[string]string{listener: "x", "inbound:10.0.0.1:81": "x"}, func(string) bool { return false })
		synctest.Wait()
		if _, reasons := problems(a); !strings.HasPrefix(reasons, "2 listeners have had no access log since ") ||
			!strings.HasSuffix(reasons, "its Envoy does not report the traffic") {
			t.Error(reasons)
		}
		a.Left(web)
		synctest.Wait()
		if got := a.Gaps(); len(got) != 0 {
			t.Error(got)
		}
	})
}

func stream(kind, name, destination string) api.LogStream {
	return api.LogStream{Kind: kind, Name: name, Destination: destination, Dropped: map[string]uint64{}}
}

// TestDrops checks that dropped lines are a problem for an hour after the last one, that a full
// file system is named once, and that counters of a new stream with the same name start at 0.
func TestDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{streams: []api.LogStream{stream(api.LogFIFO, "/run/a", "file /srv/a"),
			stream(api.LogFile, "/srv/a", "file /srv/a"), stream(api.LogFile, "/srv/b", "file /srv/b"),
			stream(api.LogFIFO, "/run/b", "file /srv/b"), stream(api.LogForwarder, "c:1", "tcp c:1")}}
		a := start(t, w)
		w.mu.Lock()
		w.streams[0].Dropped["disk-full"], w.streams[3].Dropped["disk-full"] = 3, 4
		w.streams[1].Full, w.streams[2].Full = "/srv", "/srv"
		w.streams[4].Dropped["spool-full"] = 1
		w.mu.Unlock()
		classes, reasons := problems(a)
		if classes != "log-dropped error; log-dropped error" || strings.Count(reasons, "/srv") != 1 ||
			!strings.Contains(reasons, "7 lines for 2 destinations on the file system /srv dropped (disk-full)") ||
			!strings.Contains(reasons, "1 line for tcp c:1 dropped (spool-full)") {
			t.Errorf("%s: %s", classes, reasons)
		}
		if full := a.Full(); len(full) != 1 || full["/srv"] != 2 {
			t.Errorf("full: %v", full)
		}
		w.mu.Lock()
		w.streams = w.streams[4:]
		w.streams[0].Dropped = map[string]uint64{}
		w.mu.Unlock()
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if classes, _ := problems(a); classes != "log-dropped error; log-dropped error; log-dropped error" {
			t.Errorf("for an hour: %s", classes)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if classes, _ := problems(a); classes != "" {
			t.Errorf("after an hour: %s", classes)
		}
	})
}

// TestWaiting checks old spools, collectors that acknowledge nothing, and refused senders.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{streams: []api.LogStream{stream(api.LogForwarder, "c:1", "tcp c:1"),
			stream(api.LogReceiver, "r", "file /srv/r")}}
		a := start(t, w)
		f, r := &w.streams[0], &w.streams[1]
		step := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if classes, reasons := problems(a); classes != want {
				t.Errorf("%q, want %q: %s", classes, want, reasons)
			}
		}
		w.mu.Lock()
		f.In, f.InFlight = 10, 10
		w.mu.Unlock()
		step(15*time.Second, "")
		step(10*time.Second, "log-collector warning")
		if got := a.Stalled()["tcp c:1"]; got < 20*time.Second {
			t.Error(got)
		}
		w.mu.Lock()
		f.Written, f.InFlight = 1, 9
		w.mu.Unlock()
		step(5*time.Second, "")
		w.mu.Lock()
		f.Spooled, f.InFlight, f.SpoolOldest = 9, 0, 31
		f.Health = "connection refused"
		w.mu.Unlock()
		step(30*time.Second, "log-spool warning")
		w.mu.Lock()
		f.Written, f.Spooled, f.SpoolOldest, f.Health = 10, 0, 0, ""
		r.Refused = 5
		w.mu.Unlock()
		step(time.Minute, "log-senders warning")
		step(time.Hour, "")
		if got := a.Stalled()["tcp c:1"]; got > 5*time.Second {
			t.Errorf("nothing waits, but: %v", got)
		}
	})
}

// TestDirectories checks that a replaced directory is one problem for an hour, not one for each of
// its files and FIFOs, and that a stream that begins again at 0 is no change.
func TestDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{streams: []api.LogStream{stream(api.LogFile, "/srv/a", "file /srv/a"),
			stream(api.LogFile, "/srv/b", "file /srv/b"), stream(api.LogForwarder, "c:1", "tcp c:1")}}
		a := start(t, w)
		w.mu.Lock()
		w.streams[0].In = 5
		w.streams[0].DirectoryChanges, w.streams[1].DirectoryChanges, w.streams[2].DirectoryChanges = 2, 2, 1
		w.mu.Unlock()
		classes, reasons := problems(a)
		if classes != "log-directory warning; log-directory warning" || !strings.Contains(reasons, "/srv was removed, "+
			"replaced, or made unsafe 2 times") || !strings.Contains(reasons, "the spool of tcp c:1 was removed") {
			t.Errorf("%s: %s", classes, reasons)
		}
		time.Sleep(59 * time.Minute)
		w.mu.Lock()
		w.streams[0] = stream(api.LogFile, "/srv/a", "file /srv/a")
		w.mu.Unlock()
		synctest.Wait()
		if classes, _ := problems(a); classes != "log-directory warning; log-directory warning" {
			t.Errorf("for an hour: %s", classes)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if classes, reasons := problems(a); classes != "" {
			t.Errorf("after an hour: %s: %s", classes, reasons)
		}
	})
}
