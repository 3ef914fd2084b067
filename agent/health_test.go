package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestLoopThatHangs checks that the agent reports itself as not alive, with the reason, while a
// generation hangs.
func TestLoopThatHangs(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	agenttest.Write(t, filepath.Join(dir, "resources", "web.yaml"), agenttest.WebFile("a"))
	clock := &hand{now: time.Now()} // so that the duration is exact
	entered, release := make(chan struct{}), make(chan struct{})
	var once, freed sync.Once
	free := func() { freed.Do(func() { close(release) }) }
	t.Cleanup(free)
	r := agenttest.Up(t, dir, agent.Deps{
		Now: clock.Now,
		Generate: func(in generate.Input, prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error) {
			once.Do(func() { close(entered) })
			<-release
			return generate.Generate(in, prev, memo)
		},
	})
	t.Cleanup(free) // before the agent stops, which waits for the generation
	alive := func(want int, words ...string) {
		t.Helper()
		status, body := r.Request("GET", "http://nearside/livez", "")
		if status != want {
			t.Errorf("/livez: status %d, want %d: %s", status, want, body)
		}
		for _, w := range words {
			if !strings.Contains(body, w) {
				t.Errorf("/livez: %q is not in %s", w, body)
			}
		}
	}
	alive(200)
	s := r.Ask(&core.Node{Id: "default.web"}, nil)
	select {
	case <-entered:
	case <-time.After(agenttest.Patience):
		t.Fatal("no config was asked for")
	}
	alive(200) // a running pass is not a hanging one
	clock.add(31 * time.Second)
	alive(503, `"name":"reconcile"`, "one reconciliation takes 31s already", "restart the agent")
	free()
	if got := agenttest.Next(t, s, map[string]string{}); got != "a localhost:80" {
		t.Errorf("clusters: %q", got)
	}
	// The config is published before its pass ends.
	agenttest.Eventually(t, "/livez answers 200 again", func() bool {
		status, _ := r.Request("GET", "http://nearside/livez", "")
		return status == 200
	})
}

// TestReadinessCounts checks readiness messages for one and for two of each kind of file problem.
func TestReadinessCounts(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	path := func(n string) string { return filepath.Join(dir, "resources", n) }
	agenttest.Write(t, path("a.yaml"), agenttest.Meshes("x", "y"))
	r := agenttest.Up(t, dir, agent.Deps{})
	ready := func(want string) {
		t.Helper()
		var body string
		agenttest.Await(t, "readiness says "+want, time.Tick(5*time.Millisecond), func() bool {
			var status int
			if status, body = r.Request("GET", "http://nearside/readyz?verbose", ""); status != 200 {
				t.Fatalf("/readyz: %d %s", status, body)
			}
			return strings.Contains(body, want)
		})
	}
	ready("all files are in force")
	agenttest.Write(t, path("b.yaml"), "type: [")
	ready(`"1 file has faults; see nearside status`)
	agenttest.Write(t, path("c.yaml"), agenttest.Meshes("x"))
	ready(`"1 file has faults, 1 resource is in conflict;`)
	agenttest.Write(t, path("d.yaml"), agenttest.Meshes("y")+"---\n")
	ready(`"1 file has faults, 2 resources are in conflict;`)
	agenttest.Write(t, path("c.yaml"), "type: {")
	ready(`"2 files have faults, 2 resources are in conflict;`)
	agenttest.Do(t, os.Remove(path("a.yaml")))
	ready(`"2 files have faults; see nearside status`)
}

// TestWritesOverTCP checks that the token of the token file allows all writes over TCP, and that
// without a token every request is refused.
func TestWritesOverTCP(t *testing.T) {
	dir := agenttest.ShortDir(t)
	const token = "0123456789abcdef"
	agenttest.WriteSecret(t, filepath.Join(dir, "token"), token+"\n")
	open := agenttest.Up(t, dir, agent.Deps{}, "api.tcp=127.0.0.1:0", "api.tokenFile="+filepath.Join(dir, "token"))
	closed := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{}, "api.tcp=127.0.0.1:0")
	const doc = `{"type": "Mesh", "name": "m"}`
	for _, c := range []struct {
		r             *agenttest.Running
		method, token string
		want          int
	}{
		{open, "GET", "", 401},
		{open, "GET", token, 404},
		{open, "PUT", "", 401},
		{open, "PUT", token[1:], 401},
		{open, "PUT", token + "0", 401},
		{open, "PUT", token, 201},
		{open, "GET", token, 200},
		{open, "DELETE", "", 401},
		{open, "DELETE", token, 200},
		{closed, "GET", "", 401},
		{closed, "PUT", token, 401},
		{closed, "PUT", "", 401},
	} {
		var headers []string
		if c.token != "" {
			headers = []string{"Authorization: Bearer " + c.token}
		}
		status, body := c.r.Request(c.method, fmt.Sprintf("http://%s/meshes/m", c.r.Addrs().APITCP), doc, headers...)
		if status != c.want {
			t.Errorf("%s with the token %q: status %d, want %d: %s", c.method, c.token, status, c.want, body)
		}
	}
	if got := open.Store().History(agenttest.MeshKey("m")); len(got) != 2 || got[0].Author == "" {
		t.Errorf("history: %+v", got)
	}
	if _, ok := closed.Store().Snapshot().Get(agenttest.MeshKey("m")); ok {
		t.Error("an API without a token was written to")
	}
}

// TestMetricsOverTCP checks that metrics.listen serves only metrics, and only to clients with the
// token.
func TestMetricsOverTCP(t *testing.T) {
	dir := agenttest.ShortDir(t)
	const token = "0123456789abcdef"
	agenttest.WriteSecret(t, filepath.Join(dir, "token"), token+"\n")
	set := []string{"metrics.listen=127.0.0.1:0", "metrics.tokenFile=" + filepath.Join(dir, "token")}
	r := agenttest.Up(t, dir, agent.Deps{}, set...)
	for _, c := range []struct {
		method, path, token string
		want                int
		says                string
	}{
		{"GET", "/metrics", token, 200, "nearside_"},
		{"HEAD", "/metrics", token, 200, ""},
		{"GET", "/metrics", "", 401, "metrics.tokenFile"},
		{"GET", "/metrics", token[1:], 401, "metrics.tokenFile"},
		{"GET", "/metrics", token + "0", 401, "metrics.tokenFile"},
		{"POST", "/metrics", token, 405, "GET"},
		{"GET", "/meshes", token, 404, "only /metrics is served"},
		{"GET", "/v1/status", token, 404, "only /metrics is served"},
		{"GET", "/v1/status", "", 401, "metrics.tokenFile"},
	} {
		status, body := r.Request(c.method, fmt.Sprintf("http://%s%s", r.Addrs().Metrics, c.path), "",
			"Authorization: Bearer "+c.token)
		if status != c.want || !strings.Contains(body, c.says) {
			t.Errorf("%s %s with the token %q: status %d, want %d: %.200s", c.method, c.path, c.token, status, c.want, body)
		}
	}
}
