package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// times returns how often to repeat an action: few by default, or the value of the environment
// variable.
func times(t *testing.T, name string, few int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	agenttest.Do(t, err)
	return n
}

func logsTo(text string) func(string) bool {
	return func(dump string) bool { return strings.Contains(dump, text) }
}

// loggingToFile returns an agent with an Envoy that logs its requests to the rotated file web.log.
func loggingToFile(t *testing.T) *logging {
	w := newLogging(t)
	w.log(w.file("web.log"))
	w.start()
	w.startEnvoy()
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	return w
}

// TestAccessLogSurvivesTheAgent checks that each line is in the rotated files exactly once when the
// agent is restarted and killed under load. NEARSIDE_LOG_RESTARTS, NEARSIDE_LOG_KILLS, and
// NEARSIDE_LOG_AWAY (requests while the agent is down) set the number of repetitions.
func TestAccessLogSurvivesTheAgent(t *testing.T) {
	w := loggingToFile(t)
	w.hold()
	away := int64(times(t, "NEARSIDE_LOG_AWAY", 300))
	stop := w.load("a", 1500)
	for i, s := range append(repeat(syscall.SIGTERM, times(t, "NEARSIDE_LOG_RESTARTS", 2)),
		repeat(syscall.SIGKILL, times(t, "NEARSIDE_LOG_KILLS", 1))...) {
		w.more(away)
		w.kill(s)
		w.more(away)
		w.start()
		t.Logf("%d: %v", i, s)
	}
	w.more(away)
	w.exactlyOnce("web.log", "a", 1, stop())
	if lost := w.gauge("filesystem.write_failed"); lost > 0 {
		t.Errorf("%d writes of Envoy have failed", lost)
	}
}

func repeat(s syscall.Signal, n int) (out []syscall.Signal) {
	for range n {
		out = append(out, s)
	}
	return out
}

// TestAccessLogRemovedUnderLoad removes one FIFO of an Envoy and replaces the next with a regular
// file. Each time the agent must recreate the FIFO, Envoy must reopen it, and each line must be
// logged exactly once.
func TestAccessLogRemovedUnderLoad(t *testing.T) {
	w := loggingToFile(t)
	fifos, err := filepath.Glob(w.dir + "/run/access/nearside-default.web-*.fifo")
	agenttest.Do(t, err)
	if len(fifos) != 1 {
		t.Fatalf("FIFOs: %q", fifos)
	}
	stop := w.load("a", 1500)
	for _, spoil := range []func(){
		func() { agenttest.Do(t, os.Remove(fifos[0])) },
		func() {
			agenttest.Do(t, os.Remove(fifos[0]))
			agenttest.Write(t, fifos[0], "")
		},
	} {
		w.more(300)
		spoil()
		w.await("the FIFO is there again", func() bool {
			st, err := os.Lstat(fifos[0])
			return err == nil && st.Mode().Type() == os.ModeNamedPipe
		})
		w.await("the Envoy has opened it", func() bool {
			got, err := w.api().AccessLogs(t.Context())
			agenttest.Do(t, err)
			for i := range got.Items {
				if got.Items[i].Kind == api.LogFIFO && got.Items[i].Open {
					return true
				}
			}
			return false
		})
	}
	w.more(300)
	w.exactlyOnce("web.log", "a", 1, stop())
}

// TestAccessLogAfterAFullPipe kills the Envoy in the middle of a line, while the FIFO has no
// reader. All lines of the next Envoy must be complete.
func TestAccessLogAfterAFullPipe(t *testing.T) {
	w := loggingToFile(t)
	w.hold()
	w.kill(syscall.SIGKILL)
	w.requests("a", 6000) // 1.5 MB
	w.await("the FIFO is full", func() bool { return w.gauge("filesystem.write_total_buffered") > 64<<10 })
	w.envoy.Stop()
	w.start()
	w.startEnvoy()
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	first := w.sent.Load() + 1
	w.requests("b", 500)
	last := w.sent.Load()
	var numbers map[int64]int
	var own []string // includes the end of a line that the kill may have truncated
	w.await("the lines of the next Envoy", func() bool {
		own = nil
		for _, line := range w.lines("web.log") {
			if !strings.HasPrefix(line, "a") {
				own = append(own, line)
			}
		}
		numbers, _ = whole(own, "b")
		return len(numbers) >= 500
	})
	if _, torn := whole(own, "b"); len(torn) > 1 || len(torn) == 1 && strings.Contains(torn[0], "b") {
		t.Errorf("torn: %.300q", torn)
	}
	for n := first; n <= last; n++ {
		if numbers[n] != 1 {
			t.Errorf("line %d is there %d times", n, numbers[n])
		}
	}
}

// TestAccessLogDeadBackend logs to a file and to a collector that accepts connections but never
// reads. The file must get its lines, and the Envoy must not buffer lines.
func TestAccessLogDeadBackend(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	agenttest.Do(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	w := newLogging(t)
	long := func(backend string) string {
		return strings.Replace(backend, filler, strings.Repeat(filler+" ", 9)+filler, 1)
	}
	w.log(long(w.file("web.log")), long(w.tcp(l.Addr().String())), long(w.tcp(agenttest.FreeAddress(t))))
	w.start()
	w.startEnvoy()
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	w.noProblems()
	var most int64
	for i := range 10 {
		w.requests("a", 200) // 5 MB in total
		most = max(most, w.gauge("filesystem.write_total_buffered"))
		w.exactlyOnce("web.log", "a", 1, int64(i+1)*200)
	}
	if most > 4<<20 {
		t.Errorf("Envoy kept %d bytes", most)
	}
}

// TestAccessLogWhenEnvoyStops checks that requests and connections that are open when Envoy ends
// are in the file.
func TestAccessLogWhenEnvoyStops(t *testing.T) {
	w := loggingToFile(t)
	ended := make(chan error, 1)
	go func() {
		_, err := w.request(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "a", "/slow")
		ended <- err
	}()
	w.await("the request is open", func() bool { return w.slow.Load() == 1 })
	agenttest.Do(t, w.envoy.Signal(syscall.SIGTERM))
	<-w.envoy.Ended()
	<-ended
	w.await("the open request is in the log", func() bool {
		lines := w.lines("web.log")
		return len(lines) == 1 && strings.HasPrefix(lines[0], "a1 0 DC ")
	})
}

// TestAccessLogPolicyRemoved removes the policy under load. The file must contain all requests that
// were answered before, no line may be truncated, and no request may fail.
func TestAccessLogPolicyRemoved(t *testing.T) {
	w := loggingToFile(t)
	stop := w.load("a", 500)
	w.more(300)
	before := w.answered()
	w.resource("log", "")
	w.await("no listener logs any more", func() bool {
		_, dump := w.envoy.Admin("/config_dump?resource=dynamic_listeners")
		return !strings.Contains(dump, `"active_state"`) || !strings.Contains(activeOf(dump), "/run/access/")
	})
	w.more(100)
	stop()
	w.exactlyOnce("web.log", "a", 1, before)

	w.log(w.file("other.log"))
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	w.await("the new listener logs", func() bool {
		w.requests("b", 1)
		numbers, torn := whole(w.lines("other.log"), "b")
		return len(numbers) > 0 && len(torn) == 0
	})
}

// activeOf returns the active states in a listeners dump.
func activeOf(dump string) string {
	active, _, _ := strings.Cut(dump, `"draining_state"`)
	return active
}

// TestAccessLogInTheWay puts other files at the path of the FIFO. The agent must repair or report
// this, and the Envoy must neither hang nor reject anything.
func TestAccessLogInTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(t *testing.T, path string)
		told    string // expected report; "" means that the agent repairs it
		arrives string // lines from before
	}{
		"a regular file": {func(t *testing.T, path string) {
			agenttest.Do(t, os.Remove(path))
			agenttest.Write(t, path, "something\n")
		}, "", "something\n"},
		"no directory":  {func(t *testing.T, path string) { agenttest.Do(t, os.RemoveAll(filepath.Dir(path))) }, "", ""},
		"no permission": {func(t *testing.T, path string) { agenttest.Do(t, os.Chmod(path, 0)) }, "", ""},
		"a directory": {func(t *testing.T, path string) {
			agenttest.Do(t, os.Remove(path), os.Mkdir(path, 0o700))
			agenttest.Write(t, path+"/keep", "somebody's")
		}, "directory", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLogging(t)
			w.uid = 65533 // a user to whom file permissions apply
			w.log(w.file("web.log"))
			w.start()
			w.startEnvoy()
			w.inSync(logsTo("/run/access/nearside-default.web-"))
			fifos, err := filepath.Glob(w.dir + "/run/access/nearside-default.web-*.fifo")
			agenttest.Do(t, err)
			if len(fifos) != 1 {
				t.Fatalf("FIFOs: %q", fifos)
			}
			w.envoy.Stop()
			w.kill(syscall.SIGTERM)
			c.spoil(t, fifos[0])
			w.start()
			w.startEnvoy() // and waits until it is live
			if c.told == "" {
				w.inSync(logsTo("/run/access/nearside-default.web-"))
				w.requests("a", 100)
				w.await("all is logged", func() bool {
					numbers, torn := whole(w.lines("web.log"), "a")
					return len(numbers) == 100 && strings.Join(torn, "") == c.arrives
				})
				return
			}
			w.inSync(func(dump string) bool {
				return strings.Contains(dump, "inbound:127.0.0.1:") && !strings.Contains(dump, "/run/access/")
			})
			w.requests("a", 10)
			s, err := w.api().Status(t.Context())
			agenttest.Do(t, err)
			reported := ""
			for _, p := range s.Problems {
				reported += p.Resource + ": " + p.Reason + "\n"
			}
			if !strings.Contains(reported, "Dataplane/default/web: the access log of MeshAccessLog/default/all to file") ||
				!strings.Contains(reported, c.told) || !strings.Contains(reported, fifos[0]) {
				t.Errorf("told: %s", reported)
			}
			agenttest.Do(t, os.RemoveAll(fifos[0]))
			w.inSync(logsTo("/run/access/nearside-default.web-"))
			first := w.sent.Load() + 1
			w.requests("b", 100)
			w.await("it is logged again", func() bool {
				numbers, torn := whole(w.lines("web.log"), "b")
				return len(numbers) == 100 && len(torn) == 0 && numbers[first] == 1
			})
		})
	}
}
