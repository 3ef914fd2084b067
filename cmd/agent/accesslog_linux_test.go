package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// times is how often something is done: by default a few times, as often as it takes with the
// environment variable.
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

// loggingToFile is an agent with an Envoy whose requests are in the rotated file web.log.
func loggingToFile(t *testing.T) *logging {
	w := newLogging(t)
	w.log(w.file("web.log"))
	w.start()
	w.startEnvoy()
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	return w
}

// TestAccessLogSurvivesTheAgent restarts and kills the agent under load: each line is in the
// rotated files exactly once. NEARSIDE_LOG_RESTARTS, NEARSIDE_LOG_KILLS and NEARSIDE_LOG_AWAY
// (requests while the agent is away) make it longer.
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

// TestAccessLogRemovedUnderLoad removes the FIFO that an Envoy writes into, and puts a file in the
// place of the next one: both times the FIFO is there again, the Envoy opens it, and each line is
// in the log once.
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

// TestAccessLogAfterAFullPipe kills the Envoy while it is in the middle of a line, since nobody
// reads: all lines of the next Envoy are whole.
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
	var own []string // and the end of the one line that the kill has cut, if it has
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

// TestAccessLogDeadBackend has a collector that takes connections and never reads beside a good
// file: the file gets its lines, and the Envoy keeps none.
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
	w.log(long(w.file("web.log")), long(w.tcp(l.Addr().String())), long(w.tcp("127.0.0.1:"+strconv.Itoa(freePort(t)))))
	w.start()
	w.startEnvoy()
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	w.noProblems()
	var most int64
	for i := range 10 {
		w.requests("a", 200) // 5 MB in all
		most = max(most, w.gauge("filesystem.write_total_buffered"))
		w.exactlyOnce("web.log", "a", 1, int64(i+1)*200)
	}
	if most > 4<<20 {
		t.Errorf("Envoy kept %d bytes", most)
	}
}

// TestAccessLogWhenEnvoyStops: the requests and connections that are open when Envoy ends are in
// the file.
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

// TestAccessLogPolicyRemoved removes the policy under load: what was answered before is in the
// file, no line is torn, and no request fails.
func TestAccessLogPolicyRemoved(t *testing.T) {
	w := loggingToFile(t)
	stop := w.load("a", 500)
	w.more(300)
	before := w.sent.Load() - 8 // those of the clients that are under way are not answered yet
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

// activeOf are the active states of a dump of listeners.
func activeOf(dump string) string {
	active, _, _ := strings.Cut(dump, `"draining_state"`)
	return active
}

// TestAccessLogInTheWay puts what does not belong there in the place of the FIFO: it is repaired or
// told, the Envoy never hangs, and it never rejects anything.
func TestAccessLogInTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(t *testing.T, path string)
		told    string // "": it is repaired
		arrives string // lines that were there
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
			w.uid = 65533 // so that permissions count
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
			w.startEnvoy() // and is live
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
			told := ""
			for _, p := range s.Problems {
				told += p.Resource + ": " + p.Reason + "\n"
			}
			if !strings.Contains(told, "Dataplane/default/web: the access log of MeshAccessLog/default/all to file") ||
				!strings.Contains(told, c.told) || !strings.Contains(told, fifos[0]) {
				t.Errorf("told: %s", told)
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

// TestAccessLogCounters has lines go to a file, to a collector and to one that is away, and looks
// at what the API and the metrics count: on each stream what came in is what was written, spooled,
// dropped or is under way, and nothing is missing.
func TestAccessLogCounters(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	agenttest.Do(t, err)
	away := l.Addr().String()
	agenttest.Do(t, l.Close())
	w := newLogging(t)
	w.log(w.file("web.log"), w.tcp(away))
	w.start()
	w.startEnvoy()
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	const requests = 300
	w.requests("a", requests)
	agenttest.Do(t, w.api().FlushLogs(t.Context(), "default", "web"))
	byKind := map[string]*api.LogStream{}
	w.await("all lines are where they go", func() bool {
		got, err := w.api().AccessLogs(t.Context())
		agenttest.Do(t, err)
		fifos := 0
		clear(byKind)
		for i := range got.Items {
			s := &got.Items[i]
			if s.Kind == api.LogFIFO {
				if s.Mesh != "default" || s.Dataplane != "web" || !s.Open {
					t.Fatalf("not the FIFO of the Envoy: %+v", s)
				}
				fifos++
			}
			if s.In < requests || s.InFlight > 0 && s.Kind != "forwarder" {
				return false
			}
			byKind[s.Kind] = s
		}
		return fifos == 2 && len(byKind) == 3
	})
	for kind, s := range byKind {
		dropped := uint64(0)
		for _, n := range s.Dropped {
			dropped += n
		}
		if s.In != requests || s.In != s.Written+s.Spooled+s.InFlight+dropped || dropped != 0 {
			t.Errorf("%s: %+v", kind, s)
		}
	}
	if f := byKind["file"]; f.Written != requests || f.Destination != "file "+w.dir+"/logs/web.log" {
		t.Errorf("the file: %+v", f)
	}
	if f := byKind["forwarder"]; f.Written != 0 || f.Spooled+f.InFlight != requests {
		t.Errorf("the collector that is away: %+v", f)
	}
	text := w.metrics()
	for _, want := range []string{
		`nearside_log_records_total{kind="fifo",receiver=""} 600`,
		`nearside_log_records_written_total{kind="file",receiver=""} 300`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
	for _, c := range []struct {
		line  string
		code  int
		lines int
		said  string
	}{
		{"logs --dataplane web", command.ExitOK, requests, "1 stream goes elsewhere and is not read: tcp " + away},
		{"logs access", command.ExitOK, requests, ""},
		{"logs --dataplane nobody", command.ExitFailed, 0, "no access logs of dataplane nobody"},
		{"logs --dataplane web --status 2xx", command.ExitOK, requests, ""},
		{"logs --dataplane web --status 5xx", command.ExitOK, 0, ""},
		{"logs audit -m default", command.ExitOK, -1, ""},
		{"logs -m other", command.ExitFailed, 0, "no access logs of mesh other"},
	} {
		var out, errs bytes.Buffer
		code := Main(strings.Fields(c.line), nil, &out, &errs, []string{"NEARSIDE_SOCKET=" + w.dir + "/run/nearside.sock"})
		if n := strings.Count(out.String(), filler+" $\n"); code != c.code || c.lines >= 0 && n != c.lines ||
			!strings.Contains(errs.String(), c.said) {
			t.Errorf("%s: exit code %d, %d lines, %s", c.line, code, n, errs.String())
		}
	}
}

// TestAccessLogFollow follows the log of a proxy while its Envoy writes and the file is rotated:
// each line is shown once, until the command is ended.
func TestAccessLogFollow(t *testing.T) {
	w := loggingToFile(t)
	w.requests("a", 100)
	path, err := exec.LookPath("nearside")
	agenttest.Do(t, err)
	cmd := exec.CommandContext(t.Context(), path,
		"logs", "-f", "--dataplane", "web", "--socket", w.dir+"/run/nearside.sock")
	shown := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = shown, w.said
	agenttest.Do(t, cmd.Start())
	w.requests("a", 6000) // 1.5 MB, and the file has 1
	var numbers map[int64]int
	var torn []string
	w.await("all lines are shown", func() bool {
		numbers, torn = whole(slices.Collect(strings.Lines(shown.String())), "a")
		return len(numbers) >= 6100
	})
	w.log(w.file("web.log"), w.file("later.log")) // a file that comes while the command runs
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	w.await("lines of the new file are shown", func() bool {
		w.requests("b", 1)
		_, said, _ := strings.Cut(w.said.String(), "==> "+w.dir+"/logs/later.log <==")
		return said != "" && strings.Contains(shown.String(), "\nb")
	})
	agenttest.Do(t, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	for n, times := range numbers {
		if times != 1 {
			t.Errorf("line %d is shown %d times", n, times)
		}
	}
	if rotated, _ := filepath.Glob(w.dir + "/logs/web-*.log"); len(torn) > 0 || len(rotated) == 0 {
		t.Errorf("torn %.300q, rotated %v", torn, rotated)
	}
}

// metrics are those of the agent.
func (w *logging) metrics() string {
	w.t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context,
		_, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", w.dir+"/run/nearside.sock")
	}}}
	req, err := http.NewRequestWithContext(w.t.Context(), "GET", "http://nearside/metrics", nil)
	agenttest.Do(w.t, err)
	resp, err := c.Do(req)
	agenttest.Do(w.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	agenttest.Do(w.t, err)
	return string(b)
}
