package traffictest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// realEnvoy opens the Envoy binary of this machine. It skips the test if there is none.
func realEnvoy(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Open(envoytest.Find(t))
	agenttest.Do(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// proxy is an Envoy in a namespace.
type proxy struct {
	id    string // node ID
	ns    *netns
	probe string // an address at which every connection ends immediately
	admin *http.Client
	done  chan struct{} // closed when the process ends
	kill  func()

	process   *os.Process
	bootstrap string // path
}

// startEnvoy runs an Envoy as a separate user until the test ends. It does not wait until the Envoy
// is live.
func startEnvoy(t testing.TB, binary *os.File, ns *netns, o bootstrap.Options, id, probe string,
	drain time.Duration) *proxy {
	t.Helper()
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Chown(dir, envoyUser, envoyUser))
	// The agent reads the drain time from the socket at the path of nearside bootstrap.
	own := filepath.Join(filepath.Dir(o.XDSSocket), "envoy", strconv.Itoa(envoyUser))
	if _, err := os.Stat(own); err != nil {
		own = dir
	}
	o.AdminSocket = filepath.Join(own, id+".sock")
	boot, err := bootstrap.Render(o)
	agenttest.Do(t, err)
	agenttest.Write(t, dir+"/envoy.yaml", string(boot))
	p := &proxy{id: id, ns: ns, probe: probe, done: make(chan struct{})}
	p.admin = &http.Client{Timeout: agenttest.Patience,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", o.AdminSocket)
		}}}
	cmd := exec.Command("/proc/self/fd/3", "-c", dir+"/envoy.yaml", "--disable-hot-restart", "--concurrency", "1",
		"-l", "warning", "--log-path", dir+"/envoy.log", "--drain-time-s", strconv.Itoa(int(drain/time.Second)),
		"--drain-strategy", "immediate", "--file-flush-interval-msec", "1")
	cmd.ExtraFiles = []*os.File{binary} // the user may have no permission to open the path
	cmd.Env = append(os.Environ(), "NODE_ID="+id)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: envoyUser, Gid: envoyUser},
		Pdeathsig: syscall.SIGKILL}
	ns.do(func() { err = cmd.Start() })
	agenttest.Do(t, err)
	p.process, p.bootstrap = cmd.Process, dir+"/envoy.yaml"
	p.kill = func() { _ = cmd.Process.Kill(); <-p.done }
	go func() {
		_ = cmd.Wait() // the error reports the kill
		close(p.done)
	}()
	t.Cleanup(func() {
		p.admin.CloseIdleConnections()
		p.kill()
		if t.Failed() {
			if text, _ := os.ReadFile(dir + "/envoy.log"); len(text) > 0 {
				t.Logf("the log of the Envoy %s:\n%s", id, text)
			}
		}
	})
	return p
}

func (p *proxy) get(path string) (int, []byte, error) {
	resp, err := p.admin.Get("http://envoy" + path)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// live waits until the Envoy is live.
func (p *proxy) live(t testing.TB) {
	t.Helper()
	agenttest.Eventually(t, "the Envoy "+p.id+" is live", func() bool {
		select {
		case <-p.done:
			t.Fatalf("the Envoy %s has ended", p.id)
		default:
		}
		code, _, err := p.get("/ready")
		return err == nil && code == http.StatusOK
	})
}

var statLine = regexp.MustCompile(`(?m)^(.+): (\d+)$`)

// stats returns the statistics whose names match filter.
func (p *proxy) stats(t testing.TB, filter string) map[string]uint64 {
	t.Helper()
	_, b, err := p.get("/stats?filter=" + filter)
	agenttest.Do(t, err)
	out := map[string]uint64{}
	for _, m := range statLine.FindAllSubmatch(b, -1) {
		out[string(m[1])], _ = strconv.ParseUint(string(m[2]), 10, 64)
	}
	return out
}

// unchained counts, by listener, the connections that matched no filter chain and those whose
// listener filters timed out. Some of the latter continue.
func (p *proxy) unchained(t testing.TB) map[string]uint64 {
	return p.stats(t, `no_filter_chain_match$|downstream_pre_cx_timeout$`)
}

// grown reports whether a counter has increased. Counters of removed listeners are ignored.
func grown(before, now map[string]uint64) bool {
	for name, n := range now {
		if n > before[name] {
			return true
		}
	}
	return false
}

// uses reports whether the Envoy has a healthy endpoint of the service shop at an address.
func (p *proxy) uses(t testing.TB, endpoint string) bool {
	t.Helper()
	_, b, err := p.get("/clusters")
	agenttest.Do(t, err)
	return strings.Contains(string(b), "shop::"+endpoint+"::health_flags::healthy")
}

// awaitIdle waits until no config change is in progress: all clusters and listeners are warmed,
// replaced ones have drained, and the worker has processed all earlier updates.
func (p *proxy) awaitIdle(t testing.TB) {
	t.Helper()
	agenttest.Eventually(t, "the Envoy "+p.id+" has warmed up and drained", func() bool {
		return !grown(nil, p.stats(t, `warming_clusters$|total_listeners_warming$|draining$`))
	})
	p.pass(t)
}

// pass opens a connection that ends immediately. The worker accepts it only after it has processed
// earlier events.
func (p *proxy) pass(t testing.TB) {
	t.Helper()
	c, err := p.ns.dial(mustAddrPort(p.probe))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return // it has no listeners
	}
	agenttest.Do(t, err)
	defer c.Close()
	agenttest.Do(t, c.SetDeadline(time.Now().Add(agenttest.Patience)))
	_, _ = io.WriteString(c, "nobody is there\n")
	if _, err := io.Copy(io.Discard, c); err != nil && isTimeout(err) {
		t.Fatalf("the Envoy %s keeps a connection to nobody open", p.id)
	}
}

// record is a line of an access log.
type record struct {
	Node    string `json:"node"`
	Peer    string `json:"peer"` // of the connection
	Cluster string `json:"cluster"`
	Host    string `json:"host"` // selected by the proxy
	Chain   string `json:"chain"`
	Flags   string `json:"flags"`
	Details string `json:"details"`
}

// recordFields maps the fields of a log line to Envoy's command operators.
var recordFields = [][2]string{{"node", "%ENVIRONMENT(NODE_ID)%"}, {"peer", "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS%"},
	{"cluster", "%UPSTREAM_CLUSTER_RAW%"}, {"host", "%UPSTREAM_HOST%"}, {"chain", "%FILTER_CHAIN_NAME%"},
	{"flags", "%RESPONSE_FLAGS%"}, {"details", "%RESPONSE_CODE_DETAILS%"}}

// recordFormat returns the format of a log line for a MeshAccessLog as JSON and as text.
func recordFormat() (json, text string) {
	var fields, texts []string
	for _, f := range recordFields {
		fields = append(fields, "{key: "+f[0]+", value: \""+f[1]+"\"}")
		texts = append(texts, `"`+f[0]+`": "`+f[1]+`"`)
	}
	return "{type: Json, json: [" + strings.Join(fields, ", ") + "]}", "{" + strings.Join(texts, ", ") + "}"
}

// records reads the access log that all Envoys write.
type records struct {
	path string
	file *os.File

	mu   sync.Mutex
	rest []byte
	by   map[string]record // last record, by node and peer
}

func newRecords(t testing.TB) *records {
	t.Helper()
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Chown(dir, envoyUser, envoyUser))
	r := &records{path: filepath.Join(dir, "access.log"), by: map[string]record{}}
	agenttest.Write(t, r.path, "")
	agenttest.Do(t, os.Chown(r.path, envoyUser, envoyUser))
	var err error
	r.file, err = os.Open(r.path)
	agenttest.Do(t, err)
	t.Cleanup(func() { r.file.Close() })
	return r
}

// find returns the record of a connection or request, if it is already in the log.
func (r *records) find(node, peer string) (record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, _ := io.ReadAll(r.file)
	r.rest = append(r.rest, b...)
	for {
		line, rest, ok := bytes.Cut(r.rest, []byte("\n"))
		if !ok {
			break
		}
		r.rest = rest
		var rec record
		if json.Unmarshal(line, &rec) == nil {
			r.by[rec.Node+" "+rec.Peer] = rec
		}
	}
	rec, ok := r.by[node+" "+peer]
	return rec, ok
}

func (r record) String() string {
	return fmt.Sprintf("cluster %q, host %s, chain %q, flags %q, %s", r.Cluster, r.Host, r.Chain, r.Flags, r.Details)
}
