package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// TestLoopThatHangs has a generation that does not come back: the agent says that it is not alive, and why, until it does.
func TestLoopThatHangs(t *testing.T) {
	dir := shortDir(t)
	do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	write(t, filepath.Join(dir, "resources", "web.yaml"), webFile("a"))
	var ahead atomic.Int64
	entered, release := make(chan struct{}), make(chan struct{})
	var once, freed sync.Once
	free := func() { freed.Do(func() { close(release) }) }
	t.Cleanup(free)
	r := up(t, dir, agent.Deps{
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		Generate: func(in xds.Input, prev *xds.Proxy, memo *xds.Memo) (*xds.Proxy, error) {
			once.Do(func() { close(entered) })
			<-release
			return xds.Generate(in, prev, memo)
		},
	})
	t.Cleanup(free) // before the agent is stopped, which waits for it
	alive := func(want int, words ...string) {
		t.Helper()
		status, body := r.request("GET", "http://nearside/livez", "")
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
	s := r.ask(&core.Node{Id: "default.web"}, nil)
	select {
	case <-entered:
	case <-time.After(patience):
		t.Fatal("no config was asked for")
	}
	alive(200) // a pass under way is none that hangs
	ahead.Store(int64(31 * time.Second))
	alive(503, `"name":"reconcile"`, "one reconciliation takes 31s already", "restart the agent")
	free()
	if got := next(t, s, map[string]string{}); got != "a localhost:80" {
		t.Errorf("clusters: %q", got)
	}
	// The config is out before the pass that made it has ended.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	await(t, "/livez answers 200 again", tick.C, func() bool {
		status, _ := r.request("GET", "http://nearside/livez", "")
		return status == 200
	})
}

// TestReadinessCounts has one and two of everything that can be wrong with files.
func TestReadinessCounts(t *testing.T) {
	dir := shortDir(t)
	do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	path := func(n string) string { return filepath.Join(dir, "resources", n) }
	write(t, path("a.yaml"), meshes("x", "y"))
	r := up(t, dir, agent.Deps{})
	ready := func(want string) {
		t.Helper()
		var body string
		await(t, "readiness says "+want, time.Tick(5*time.Millisecond), func() bool {
			var status int
			if status, body = r.request("GET", "http://nearside/readyz?verbose", ""); status != 200 {
				t.Fatalf("/readyz: %d %s", status, body)
			}
			return strings.Contains(body, want)
		})
	}
	ready("all files are in force")
	write(t, path("b.yaml"), "type: [")
	ready(`"1 file has faults; nearside status`)
	write(t, path("c.yaml"), meshes("x"))
	ready(`"1 file has faults, 1 resource is in conflict;`)
	write(t, path("d.yaml"), meshes("y")+"---\n")
	ready(`"1 file has faults, 2 resources are in conflict;`)
	write(t, path("c.yaml"), "type: {")
	ready(`"2 files have faults, 2 resources are in conflict;`)
	do(t, os.Remove(path("a.yaml")))
	ready(`"2 files have faults; nearside status`)
}

// TestWritesOverTCP has a token file, whose token allows writes and nothing else does.
func TestWritesOverTCP(t *testing.T) {
	dir := shortDir(t)
	const token = "0123456789abcdef"
	write(t, filepath.Join(dir, "token"), token+"\n")
	open := up(t, dir, agent.Deps{}, "api.tcp=127.0.0.1:0", "api.tokenFile="+filepath.Join(dir, "token"))
	reading := up(t, shortDir(t), agent.Deps{}, "api.tcp=127.0.0.1:0")
	const doc = `{"type": "Mesh", "name": "m"}`
	for _, c := range []struct {
		r             *running
		method, token string
		want          int
	}{
		{open, "GET", "", 404},
		{open, "PUT", "", 403},
		{open, "PUT", token[1:], 403},
		{open, "PUT", token + "0", 403},
		{open, "PUT", token, 201},
		{open, "GET", "", 200},
		{open, "DELETE", "", 403},
		{open, "DELETE", token, 200},
		{reading, "GET", "", 404},
		{reading, "PUT", token, 403},
		{reading, "PUT", "", 403},
	} {
		var headers []string
		if c.token != "" {
			headers = []string{"Authorization: Bearer " + c.token}
		}
		status, body := c.r.request(c.method, fmt.Sprintf("http://%s/meshes/m", c.r.Addrs().APITCP), doc, headers...)
		if status != c.want {
			t.Errorf("%s with the token %q: status %d, want %d: %s", c.method, c.token, status, c.want, body)
		}
	}
	if got := open.Store().History(meshKey("m")); len(got) != 2 || got[0].Author == "" {
		t.Errorf("history: %+v", got)
	}
	if _, ok := reading.Store().Snapshot().Get(meshKey("m")); ok {
		t.Error("an API that is read-only was written to")
	}
}
