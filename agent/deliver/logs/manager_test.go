package logs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
)

// TestPrepare checks that destinations are ready when Prepare returns, unless it reports them, and
// that repeated calls cause no work until the next check.
func TestPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.run()()
		w.process("default.web", 10, 5)
		if got, _ := w.Prepare(key("none"), nil); got != nil {
			t.Error(got)
		}
		pipes := []draft.Pipe{tcp("a", "one:1"), file("b", "/var/log/nearside/x/../b.log"), file("c", "/etc/passwd"),
			file("d", "/var/log/nearside/../../../etc/shadow"), file("e", "/srv/logs/e")}
		got, _ := w.Prepare(key("web"), pipes)
		if len(got) != 2 || !strings.Contains(got[pipes[2].Path].Reason, "add the directory to accessLog.directories") ||
			got[pipes[3].Path].Reason == "" {
			t.Errorf("%v", got)
		}
		w.expect("first", "new default.web", "forward one:1 .", "file /var/log/nearside/b.log {0 3 0}",
			"file /srv/logs/e {0 3 0}", "set default.web [a:7 b:7 e:7]")

		good := []draft.Pipe{pipes[0], pipes[1]}
		if got, _ := w.Prepare(key("web"), good); len(got) != 0 {
			t.Error(got)
		}
		w.expect("a removed destination stays for a while", "set default.web [a:7 b:7 e:7]")
		w.Prepare(key("web"), good)
		w.expect("nothing new")

		w.lock(func() { w.fail[good[0].Path] = errors.New("it is a directory; remove it") })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.expect("looked after", "set default.web [a:7 b:7 e:7]")
		if w.notified() == 0 {
			t.Error("the result is outdated, but Changed was not called")
		}
		if got, _ := w.Prepare(key("web"), good); len(got) != 1 ||
			got[good[0].Path].Reason != "it is a directory; remove it" {
			t.Error(got)
		}
		before := w.notified()
		w.lock(func() { delete(w.fail, good[0].Path) })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if w.notified() == before {
			t.Error("the destination is ready again, but Changed was not called")
		}
		if got, _ := w.Prepare(key("web"), good); len(got) != 0 {
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

// TestNewProcess checks that partial lines in FIFOs are completed before a new process gets them,
// and never while the old process lives.
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

// TestHangs checks that a hanging destination blocks callers only briefly, and does not affect
// ready ones. A config waits for it for 5 s, once.
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
		for i, most := range []time.Duration{10 * time.Millisecond, 0} {
			began := time.Now()
			got, wait := w.Prepare(key("web"), two)
			if elapsed := time.Since(began); elapsed > most || len(got) != 1 || !wait ||
				!strings.Contains(got[two[1].Path].Reason, "not ready in time") {
				t.Errorf("%d: %v after %v", i, got, elapsed)
			}
		}
		before := w.notified()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if w.notified() == before {
			t.Error("the limit has passed, but Changed was not called")
		}
		for range 2 {
			if got, wait := w.Prepare(key("web"), two); len(got) != 1 || wait {
				t.Errorf("after the limit: %v, %v", got, wait)
			}
		}
		before = w.notified()
		close(hang)
		synctest.Wait()
		if w.notified() == before {
			t.Error("the destination is ready, but Changed was not called")
		}
		if got, _ := w.Prepare(key("web"), two); len(got) != 0 {
			t.Error(got)
		}
	})
}

// TestFailedDestinationIsRetried checks that a config waits up to 5 s for a destination that has
// failed, which is retried meanwhile, and not for a destination that policies must not use.
func TestFailedDestinationIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.run()()
		w.process("default.web", 10, 5)
		one := []draft.Pipe{tcp("a", "one:1")}
		fail := func(err error) { w.lock(func() { w.fail[one[0].Path] = err }) }
		fail(errors.New("no space left on device"))
		if got, wait := w.Prepare(key("web"), one); !wait || got[one[0].Path].Reason != "no space left on device" {
			t.Errorf("%v, %v", got, wait)
		}
		time.Sleep(time.Second)
		before := w.notified()
		fail(nil)
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if got, wait := w.Prepare(key("web"), one); wait || len(got) != 0 || w.notified() == before {
			t.Errorf("it is ready: %v, %v", got, wait)
		}
		two := append(one, tcp("b", "two:2"))
		w.lock(func() { w.fail[two[1].Path] = errors.New("I/O error") })
		began := time.Now()
		for {
			before := w.notified()
			got, wait := w.Prepare(key("web"), two)
			if len(got) != 1 {
				t.Errorf("%v", got)
			}
			if !wait {
				break
			}
			for w.notified() == before {
				time.Sleep(50 * time.Millisecond)
			}
		}
		if elapsed := time.Since(began); elapsed < 5*time.Second || elapsed > 5100*time.Millisecond {
			t.Errorf("it waited for %v", elapsed)
		}
		w.process("default.other", 11, 5)
		if got, wait := w.Prepare(key("other"), []draft.Pipe{file("c", "/etc/passwd")}); wait || len(got) != 1 {
			t.Errorf("a forbidden path: %v, %v", got, wait)
		}
	})
}

// TestOutputsAreShared checks that proxies share outputs, and that an output is closed when it is
// unused and has no pending lines.
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

// TestLeftByAnEarlierAgent checks that FIFOs of an earlier agent are read at once, that their
// process is known, and that FIFOs of a proxy that does not connect are removed.
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
		w.Left(key("gone")) // its Envoy may still connect
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

// TestPipesCannotBeOpened checks that the error is reported for each pipe, and that the manager
// retries.
func TestPipesCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world, _ *logs.Options) { w.opened = errors.New("others may write to it; chmod 0750") })
		defer w.run()()
		w.process("default.web", 10, 5)
		if got, _ := w.Prepare(key("web"),
			[]draft.Pipe{tcp("a", "one:1")}); !strings.Contains(got["/run/nearside/access/a"].Reason, "chmod 0750") ||
			len(w.Problems()) != 1 {
			t.Errorf("%v; %v", got, w.Problems())
		}
		w.lock(func() { w.opened = nil })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got, _ := w.Prepare(key("web"), []draft.Pipe{tcp("a", "one:1")}); len(got) != 0 || w.notified() == 0 {
			t.Errorf("%v", got)
		}
	})
}

// TestPrefix checks that the prefix of lines in the FIFO is removed for the collector, however much
// it accepts at once.
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
		w.outs["one:1"].got, w.outs["one:1"].limit = "", len("first\n")
		if n, err := to.Write(t.Context(), []byte(batch)); n != len("one:1;first\n") || err == nil ||
			w.outs["one:1"].got != "first\n" {
			t.Errorf("%d, %v: %q", n, err, w.outs["one:1"].got)
		}
	})
}
