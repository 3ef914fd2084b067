package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestAccessLogAccount publishes a listener whose log file cannot be opened, and fixes the file.
// The requests before are a gap, which status shows until the logger is published. The account of
// the later ones adds up from the Envoy to the file. The Envoy may count a write more than lines.
func TestAccessLogAccount(t *testing.T) {
	w := newLogging(t)
	agenttest.Do(t, os.Mkdir(w.dir+"/logs/web.log", 0o750))
	w.log(w.file("web.log"))
	w.start()
	w.startEnvoy()
	w.inSync(func(dump string) bool { return strings.Contains(dump, "inbound:127.0.0.1") })
	w.requests("a", 50)
	gap := func() (reason string) {
		s, err := w.api().Status(t.Context())
		agenttest.Do(t, err)
		for _, p := range s.Problems {
			if p.Check == api.ClassLogGap {
				return p.Reason
			}
		}
		return ""
	}
	w.await("the requests without a log are counted", func() bool {
		return strings.Contains(gap(), "50 requests since then are in no log")
	})
	if code, out := w.run("inspect", "dataplane", "web", "--type=status"); code != 0 ||
		!strings.Contains(out, "no access log: inbound:127.0.0.1:") {
		t.Errorf("inspect: %d %s", code, out)
	}
	agenttest.Do(t, os.Remove(w.dir+"/logs/web.log"))
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	w.await("the gap has ended", func() bool { return gap() == "" })
	if text := w.metrics(); !strings.Contains(text, "nearside_log_unlogged_requests_total 50\n") ||
		!strings.Contains(text, "nearside_log_listeners_without_log 0\n") {
		t.Error("the metrics do not have the requests without a log")
	}
	w.requests("b", 200)
	var got *api.AccessLogs
	defer func() {
		if t.Failed() && got != nil {
			t.Logf("the account: %+v", got.Proxies)
			for _, p := range got.Proxies {
				if p.Traffic != nil && p.Logged != nil {
					t.Logf("%+v, %d lines", *p.Traffic, *p.Logged)
				}
			}
		}
	}()
	w.await("the account adds up", func() bool {
		agenttest.Do(t, w.api().FlushLogs(t.Context(), "default", "web"))
		var err error
		got, err = w.api().AccessLogs(t.Context())
		agenttest.Do(t, err)
		if len(got.Proxies) != 1 || got.Proxies[0].Traffic == nil {
			return false
		}
		p := got.Proxies[0]
		return p.Listeners == 1 && p.Traffic.Requests == 250 && *p.Logged >= 200 && p.In == 200 && p.Written == 200
	})
	for _, s := range got.Items {
		if s.Kind == api.LogFile && (s.In != 200 || s.Written != 200) {
			t.Errorf("the file: %+v", s)
		}
	}
	if code, out := w.run("inspect", "dataplane", "web", "--type=status"); code != 0 ||
		!strings.Contains(out, "250 requests, and 20") ||
		!strings.Contains(out, "agent: 200 read, 200 passed on, 0 in flight") {
		t.Errorf("inspect: %d %s", code, out)
	}
	if code, out := w.run("status"); !strings.Contains(out, "in no log, because a destination was not ready: ") {
		t.Errorf("status: %d %s", code, out)
	}
}

// run runs a command of the CLI.
func (w *logging) run(args ...string) (int, string) {
	var out strings.Builder
	code := Main(args, nil, &out, &out, []string{fmt.Sprintf("NEARSIDE_SOCKET=%s/run/nearside.sock", w.dir)})
	return code, out.String()
}
