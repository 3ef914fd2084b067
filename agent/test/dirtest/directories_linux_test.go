package dirtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// change is a change of all directories. keeps means that the lines before it stay.
type change struct {
	name  string
	keeps bool
	make  func(dir string) error
}

// changes are made one after the other. The mount is the last one, because its end hides files.
var changes = []change{
	{"mode", true, func(dir string) error { return os.Chmod(dir, 0o777) }},
	{"moved", true, func(dir string) error { return os.Rename(dir, dir+".1") }},
	{"replaced", true, func(dir string) error {
		if err := errors.Join(os.Rename(dir, dir+".2"), os.Mkdir(dir, 0o755)); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil // the agent was faster
	}},
	{"removed", false, removeAll},
	{"recreated", false, func(dir string) error {
		if err := os.Rename(dir, dir+".gone"); err != nil { // the agent may create it at any time
			return err
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return removeAll(dir + ".gone")
	}},
	{"ancestor", false, func(dir string) error {
		switch filepath.Base(dir) {
		case "access": // the sockets of the agent are in the parent of the FIFOs
			if filepath.Base(filepath.Dir(dir)) == "run" {
				return removeAll(dir)
			}
		case "receiver", "audit", "dns":
			return nil // removed with access
		}
		return removeAll(filepath.Dir(dir))
	}},
	{"mounted", true, func(dir string) error { return syscall.Mount("dirtest", dir, "tmpfs", 0, "mode=755") }},
}

// removeAll removes a directory into which the agent may write.
func removeAll(dir string) error {
	for {
		if err := os.RemoveAll(dir); !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
}

// each is the number of lines of each kind in a batch.
const each = 5

// TestDirectoriesRecover changes the directories of the access log of a real Envoy, of its FIFO, of
// a receiver, of the audit log, of the query log, and of a spool. Every line is in one file once,
// except those that the change removes, and the collector gets every line of the spool.
func TestDirectoriesRecover(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	envoytest.Find(t)
	n := newNode(t)
	for _, c := range changes {
		n.send(t, c.name+"-before")
		n.await(t, c.name+"-before", allKinds...)
		if n.mounted = c.name == "mounted"; n.mounted {
			agenttest.Do(t, syscall.Mount(filepath.Join(n.dir, "logs"), n.below, "", syscall.MS_BIND, ""))
		}
		for _, dir := range n.directories() {
			agenttest.Do(t, c.make(dir))
		}
		n.send(t, c.name+"-early")
		n.recovered(t, c)
		n.send(t, c.name+"-late")
		n.await(t, c.name+"-late", allKinds...)
		n.await(t, c.name+"-early", allKinds...)
		if c.keeps {
			n.await(t, c.name+"-before", allKinds...)
		}
		agenttest.Eventually(t, "the logs are healthy after "+c.name, func() bool {
			_, body := n.r.Request("GET", "http://nearside/readyz?verbose", "")
			return !strings.Contains(body, "cannot be opened again") && !strings.Contains(body, "cannot use")
		})
	}
	list, err := n.r.Api().AccessLogs(t.Context())
	agenttest.Do(t, err)
	for _, s := range list.Items {
		if len(s.Dropped) > 0 || s.Spooled == 0 && s.Kind == api.LogForwarder {
			t.Errorf("%+v", s)
		}
	}
	n.envoy.Stop()
	agenttest.Do(t, n.r.Stop())
	n.collect(t)
}

// kinds of lines, and how often the name of a line is in a file.
const (
	access   = "access"
	receiver = "receiver"
	audit    = "audit"
	dns      = "dns"
)

var allKinds = []string{access, receiver, audit, dns}

// node is an agent with an Envoy.
type node struct {
	r      *agenttest.Running
	envoy  *envoytest.Process
	dir    string
	set    []string
	ip     string // of the Envoy and the collector
	sender net.Conn
	sent   []string // requests to the Envoy
	spool  string   // address of the collector
	// mounted means that there are mounts over the directories, and that the directories themselves
	// are in below.
	mounted bool
	below   string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{dir: agenttest.Home(t), ip: agenttest.Loopback(), below: t.TempDir()}
	n.spool = n.ip + ":9000"
	n.set = []string{"dns.listen=127.0.0.1:0", "dns.upstreams=127.0.0.1:1", "dns.queryLog.sample=1",
		`accessLog.receivers=[{name: one, address: "127.0.0.1:0", file: receiver/one.log}]`}
	n.r = agenttest.Up(t, n.dir, agent.Deps{}, n.set...)
	t.Cleanup(func() {
		for _, dir := range append(n.directories(), n.below) {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	agenttest.Do(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	format := "format: {type: Plain, plain: 'access %REQ(:PATH)%'}"
	agenttest.Apply(t, n.r.Agent, fmt.Sprintf(`type: Mesh
name: default
---
{type: Dataplane, mesh: default, name: web, networking: {address: %s, inbound: [{port: 10080, servicePort: %d, serviceAddress: 127.0.0.1, tags: {kuma.io/service: web, kuma.io/protocol: http}}]}}
---
{type: MeshAccessLog, mesh: default, name: log, spec: {targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {backends: [
{type: File, file: {path: %s/logs/access/web.log, rotation: {}, %s}}, {type: Tcp, tcp: {address: '%s', %s}}]}}]}}
`, n.ip, l.Addr().(*net.TCPAddr).Port, n.dir, format, n.spool, format))
	admin := filepath.Join(filepath.Dir(n.r.Addrs().XDS), "envoy", strconv.Itoa(os.Geteuid()), "default.web.sock")
	n.envoy = envoytest.Start(t, envoytest.Find(t), admin, func(admin string) ([]byte, error) {
		return bootstrap.Render(bootstrap.Options{Mesh: "default", Name: "web", XDSSocket: n.r.Addrs().XDS,
			AdminSocket: admin})
	})
	agenttest.InSync(t, n.r.Agent, "default.web")
	n.sender, err = net.Dial("tcp", n.r.Receivers()[0].Address)
	agenttest.Do(t, err)
	t.Cleanup(func() { n.sender.Close() })
	return n
}

// directories returns the directories of all logs.
func (n *node) directories() []string {
	var out []string
	for _, name := range []string{"logs/access", "logs/receiver", "logs/audit", "logs/dns", "run/access"} {
		out = append(out, filepath.Join(n.dir, name))
	}
	return append(out, n.spoolDir())
}

func (n *node) spoolDir() string {
	return filepath.Join(n.dir, "state", "spool", "tcp-"+strings.ReplaceAll(n.spool, ":", "%3A"))
}

// send sends a batch of lines of each kind.
func (n *node) send(t *testing.T, batch string) {
	t.Helper()
	for i := range each {
		name := fmt.Sprintf("%s-%d", batch, i)
		resp, err := http.Get(fmt.Sprintf("http://%s:10080/%s", n.ip, name))
		agenttest.Do(t, err)
		resp.Body.Close()
		n.sent = append(n.sent, "access /"+name)
		_, err = fmt.Fprintf(n.sender, "receiver /%s\n", name)
		agenttest.Do(t, err)
		n.r.Request("GET", "http://nearside/meshes/"+name, "")
		_, _ = (&net.Resolver{PreferGo: true, Dial: n.dialDNS}).LookupHost(t.Context(), name+".mesh.")
	}
	http.DefaultClient.CloseIdleConnections()
}

// lines returns how often each line is in a file of the node. A name is counted once for each of
// its DNS queries.
var lineNames = regexp.MustCompile(`(access|receiver) /([a-z]+-[a-z]+-\d)|"requestURI":"/meshes/([a-z]+-[a-z]+-\d)"|` +
	`"name":"([a-z]+-[a-z]+-\d)\.mesh`)

func (n *node) lines(t *testing.T) map[string]int {
	out := map[string]int{}
	visit := func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != 0 || !strings.HasSuffix(path, ".log") {
			return nil // the directories change
		}
		b, _ := os.ReadFile(path)
		for _, m := range lineNames.FindAllStringSubmatch(string(b), -1) {
			switch {
			case m[1] != "":
				out[m[1]+" "+m[2]]++
			case m[3] != "":
				out[audit+" "+m[3]]++
			default:
				out[dns+" "+m[4]]++
			}
		}
		return nil
	}
	agenttest.Do(t, filepath.WalkDir(n.dir, visit))
	if n.mounted {
		agenttest.Do(t, filepath.WalkDir(n.below, visit))
	}
	return out
}

// await waits until all lines of a batch are in files, each once. DNS clients repeat queries.
func (n *node) await(t *testing.T, batch string, kinds ...string) {
	t.Helper()
	wrong := func() (out []string) {
		have := n.lines(t)
		for i := range each {
			for _, kind := range kinds {
				name := fmt.Sprintf("%s %s-%d", kind, batch, i)
				if got := have[name]; got == 0 || got > 1 && kind != dns {
					out = append(out, fmt.Sprintf("%s: %d", name, got))
				}
			}
		}
		return out
	}
	tick, late := time.NewTicker(50*time.Millisecond), time.After(agenttest.Patience)
	defer tick.Stop()
	for len(wrong()) > 0 {
		n.envoy.Post("/reopen_logs") // flushes
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("lines in other numbers than 1: %q; log:\n%s", wrong(), n.r.Logs)
		}
	}
}

// recovered waits until the directories are in use again.
func (n *node) recovered(t *testing.T, c change) {
	t.Helper()
	for _, dir := range n.directories() {
		agenttest.Eventually(t, dir+" is in use again after "+c.name, func() bool {
			st, err := os.Stat(dir)
			if err != nil || st.Mode().Perm()&0o022 != 0 {
				return false
			}
			names, err := os.ReadDir(dir)
			return err == nil && slices.ContainsFunc(names, func(e fs.DirEntry) bool {
				return strings.HasSuffix(e.Name(), ".log") || strings.HasSuffix(e.Name(), ".fifo") || e.Name() == "lock"
			})
		})
	}
}

// dialDNS connects to the resolver of the agent.
func (n *node) dialDNS(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, n.r.Addrs().DNS[0])
}

// collect starts the agent and a collector, which gets all lines of the spool.
func (n *node) collect(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", n.spool)
	agenttest.Do(t, err)
	var mu sync.Mutex
	got := map[string]int{}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reading.Go(func() {
				defer c.Close()
				for s := bufio.NewScanner(c); s.Scan(); {
					mu.Lock()
					got[s.Text()]++
					mu.Unlock()
				}
			})
		}
	})
	r := agenttest.Up(t, n.dir, agent.Deps{}, n.set...)
	missing := func() (out []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, line := range n.sent {
			if got[line] == 0 {
				out = append(out, line)
			}
		}
		return out
	}
	agenttest.Eventually(t, "the collector has all lines", func() bool { return len(missing()) == 0 })
	agenttest.Do(t, r.Stop(), l.Close())
	reading.Wait()
}
