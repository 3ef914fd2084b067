package agent_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// log makes both Envoys log all requests to a file.
func (p *pair) log(t *testing.T, path string) {
	t.Helper()
	backends := "[{type: File, file: {path: " + path + ", format: {type: Plain, plain: line}}}]"
	agenttest.Apply(t, p.a, "{type: MeshAccessLog, mesh: default, name: log, spec: {targetRef: {kind: Mesh}, "+
		"from: [{targetRef: {kind: Mesh}, default: {backends: "+backends+"}}], "+
		"to: [{targetRef: {kind: Mesh}, default: {backends: "+backends+"}}]}}")
}

// first makes both Envoys log to a file, and waits until the agent knows how they drain. It asks
// them then, and again a minute later if the machine is busy.
func (p *pair) first(t *testing.T, path string) {
	t.Helper()
	p.log(t, path)
	agenttest.Eventually(t, "the agent knows how the Envoys drain", func() bool {
		x := p.applied(t, "MeshAccessLog", "log")
		return !slices.ContainsFunc(x.Old, func(o api.OldProxy) bool { return o.DrainUnknown != "" })
	})
}

// lines returns the number of lines of a log that the Envoys have written so far.
func (p *pair) lines(t *testing.T, path string) int {
	t.Helper()
	for _, e := range []*envoytest.Process{p.web, p.backend} {
		if status, body := e.Post("/reopen_logs"); status != http.StatusOK {
			t.Fatalf("reopen_logs: %d %s", status, body)
		}
		before := flushes(t, e)
		agenttest.Eventually(t, "Envoy has written its logs", func() bool { return flushes(t, e) >= before+10 })
	}
	count, steady := -1, 0
	agenttest.Eventually(t, "the log does not grow", func() bool { // Envoy writes asynchronously
		b, _ := os.ReadFile(path)
		if n := strings.Count(string(b), "\n"); n != count {
			count, steady = n, 0
		}
		steady++
		return steady > 20
	})
	return count
}

// flushes returns how often an Envoy has begun to write the buffer of a log.
func flushes(t *testing.T, e *envoytest.Process) int {
	t.Helper()
	_, body := e.Admin("/stats?filter=^filesystem.flushed_by_timer$")
	_, n, _ := strings.Cut(strings.TrimSpace(body), ": ")
	return atoi(t, n)
}

// effective waits until old connections have ended, and returns the last answer.
func (p *pair) effective(t *testing.T, name, timeout string) *api.Applied {
	t.Helper()
	x, err := client.New(p.a.Addrs().API, agenttest.Patience).Wait(t.Context(),
		api.Wait{Type: "MeshAccessLog", Mesh: "default", Name: name, Effective: true, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestEffective changes an access log while clients use pooled connections all the time. After a
// wait for the change to be effective, no request uses the old log. The Envoys have the printed
// drain strategy, and a shorter time.
func TestEffective(t *testing.T) {
	t.Parallel()
	p := startPair(t, false, "--drain-time-s", "5", "--drain-strategy", "immediate", "--file-flush-interval-msec", "50")
	dir := t.TempDir()
	old, next := filepath.Join(dir, "old.log"), filepath.Join(dir, "new.log")
	p.first(t, old)
	l := startFlow(t, p.port, 4)
	l.more(t, 200)
	began := time.Now()
	p.log(t, next)
	p.drains(t, began, 5*time.Second, "immediate")
	x := p.effective(t, "log", "25s")
	if x.State != api.StateApplied || x.OldTotal != 0 || !x.OldUntil.IsZero() {
		t.Fatalf("after %s: %+v", time.Since(began), x)
	}
	before := p.lines(t, old)
	l.more(t, 200)
	l.stop(t)
	if after := p.lines(t, old); after != before {
		t.Errorf("%d of 200 requests use the old log", after-before)
	}
	if n := p.lines(t, next); n < 400 {
		t.Errorf("the new log has %d lines", n)
	}
	t.Logf("%d connections", l.connections.Load())
}

// drains checks the drain settings of both Envoys and the reported end of older connections, after
// a change of the access log.
func (p *pair) drains(t *testing.T, began time.Time, drainTime time.Duration, strategy string) {
	t.Helper()
	x := p.applied(t, "MeshAccessLog", "log")
	if len(x.Old) != 2 || x.OldTotal != 2 || x.OldUntil.Before(began.Add(drainTime)) ||
		x.OldUntil.After(time.Now().Add(drainTime+rollout.DrainSlack)) {
		t.Errorf("old connections: %+v until %s", x.Old, x.OldUntil)
	}
	for _, o := range x.Old {
		if o.DrainTime != drainTime.String() || o.Strategy != strategy || o.DrainUnknown != "" || o.Connections != nil ||
			o.Until.After(x.OldUntil) {
			t.Errorf("old connections: %+v", o)
		}
	}
}

// TestEffectiveByDefault does the same with Envoys that drain by default, gradually for ten
// minutes. The clients' connections are pooled, and used when they are counted. Then the change is
// effective long before the drain time is over.
func TestEffectiveByDefault(t *testing.T) {
	t.Parallel()
	p := startPair(t, false, "--file-flush-interval-msec", "50")
	dir := t.TempDir()
	old := filepath.Join(dir, "old.log")
	p.first(t, old)
	var clients [4]http.Client
	get := func(n int) {
		t.Helper()
		for i := range n {
			c := &clients[i%len(clients)]
			if c.Transport == nil {
				c.Transport = &http.Transport{}
			}
			resp, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d/", p.port))
			agenttest.Do(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	get(40)
	before := p.lines(t, old)
	began := time.Now()
	p.log(t, filepath.Join(dir, "new.log"))
	p.drains(t, began, 600*time.Second, "gradual")
	agenttest.Eventually(t, "the old connections are counted", func() bool {
		x := p.effective(t, "log", "0s")
		return x.State == api.StateDraining && len(x.Old) == 2 && x.Old[1].Name == "web" && x.Old[1].Connections != nil &&
			*x.Old[1].Connections == len(clients) && x.Old[0].Connections != nil && *x.Old[0].Connections == 1
	})
	agenttest.Eventually(t, "the change is effective", func() bool {
		get(len(clients))
		return p.effective(t, "log", "200ms").State == api.StateApplied
	})
	duration := time.Since(began)
	effective := p.lines(t, old)
	if get(200); p.lines(t, old) != effective {
		t.Errorf("%d of 200 requests use the old log", p.lines(t, old)-effective)
	}
	if effective == before {
		t.Error("no request has used the old log after the change: the test does not show anything")
	}
	t.Logf("effective after %s, with %d lines in the old log after the change",
		duration.Round(time.Millisecond), effective-before)
}

// TestNotEffective keeps an idle connection open. The change is not effective as long as it lives.
func TestNotEffective(t *testing.T) {
	t.Parallel()
	p := startPair(t, false)
	dir := t.TempDir()
	p.log(t, filepath.Join(dir, "old.log"))
	p.applied(t, "MeshAccessLog", "log")
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.port))
	agenttest.Do(t, err)
	defer c.Close()
	agenttest.Eventually(t, "Envoy has accepted the connection", func() bool {
		_, body := p.web.Admin(fmt.Sprintf("/stats?filter=^listener.127.0.0.1_%d.downstream_cx_active$", p.port))
		return strings.HasSuffix(body, ": 1\n")
	})
	p.log(t, filepath.Join(dir, "new.log"))
	p.applied(t, "MeshAccessLog", "log")
	agenttest.Eventually(t, "the connection is counted", func() bool {
		x := p.effective(t, "log", "1s")
		if x.State != api.StateDraining || !x.OldUntil.After(time.Now().Add(9*time.Minute)) {
			t.Fatalf("a connection is open: %+v", x)
		}
		return x.OldTotal == 1 && x.Old[0].Name == "web" && x.Old[0].Connections != nil && *x.Old[0].Connections == 1
	})
	ended := time.AfterFunc(100*time.Millisecond, func() { c.Close() })
	defer ended.Stop()
	if x := p.effective(t, "log", "25s"); x.State != api.StateApplied || x.OldTotal != 0 {
		t.Errorf("the connection has ended: %+v", x)
	}
}
