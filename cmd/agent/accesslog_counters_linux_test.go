package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestAccessLogCounters sends lines to a file, a collector, and an unreachable collector, and
// checks the counters of the API and metrics. On each stream, received lines must equal the
// written, spooled, dropped, and pending lines.
func TestAccessLogCounters(t *testing.T) {
	away := agenttest.FreeAddress(t)
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
		`nearside_log_records_total{destination="tcp ` + away + `",kind="fifo",receiver=""} 300`,
		`nearside_log_records_written_total{destination="file ` + w.dir + `/logs/web.log",kind="file",receiver=""} 300`,
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
		{"logs --dataplane web", command.ExitOK, requests,
			"1 stream is not read, because the destination is not a file: tcp " + away},
		{"logs access", command.ExitOK, requests, ""},
		{"logs --dataplane nobody", command.ExitFailed, 0, "has no dataplane \"nobody\""},
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

// TestAccessLogFollow checks that following a proxy's log shows each line once until the command
// ends, while the Envoy writes and the file is rotated.
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
	w.requests("a", 6000) // 1.5 MB; the file is rotated at 1 MB
	var numbers map[int64]int
	var torn []string
	w.await("all lines are shown", func() bool {
		numbers, torn = whole(slices.Collect(strings.Lines(shown.String())), "a")
		return len(numbers) >= 6100
	})
	w.log(w.file("web.log"), w.file("later.log")) // a file that is created while the command runs
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

// metrics returns the metrics of the agent.
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
