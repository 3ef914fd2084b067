package traffictest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// agentSettings are those of an agent that is a process of its own, one a line: a program of the
// test becomes it.
const agentSettings = "NEARSIDE_TEST_AGENT"

func TestMain(m *testing.M) {
	settings := os.Getenv(agentSettings)
	if settings == "" {
		os.Exit(m.Run())
	}
	list := strings.Split(settings, "\n")
	if err := beAgent(list[0], list[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beAgent runs an agent until it is told to end.
func beAgent(dir string, set []string) error {
	cfg, _, faults := config.Load(agenttest.Options(dir, set...))
	if faults != nil {
		return fmt.Errorf("%v", faults)
	}
	a, err := agent.New(cfg, agent.Deps{Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Notify: func(string) {}})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return a.Run(ctx)
}

// machine is a node of a pool: a namespace with an agent, an Envoy and a workload.
type machine struct {
	t    testing.TB
	n    int
	name string
	dir  string
	ns   *netns
	api  *client.Client
	envy *proxy
	load *load

	cmd  *exec.Cmd
	gone chan struct{} // closed when the agent has ended
}

const (
	shopPort = 10000  // of the service that all machines serve, for clients of a machine
	ownPort  = 10000  // + n: of the service that machine n alone serves
	poolPort = "7946" // of gossip
)

func machineName(n int) string { return fmt.Sprintf("node-%d", n) }

// dataplaneOf is the dataplane of a machine.
func dataplaneOf(n int, all []int) string {
	outbounds := fmt.Sprintf("{port: %d, tags: {kuma.io/service: shop}}", shopPort)
	for _, i := range all {
		outbounds += fmt.Sprintf(", {port: %d, tags: {kuma.io/service: only-%d}}", ownPort+i, i)
	}
	return fmt.Sprintf("{type: Dataplane, mesh: default, name: %s, networking: {address: %s, inbound: [{port: 8081, "+
		"servicePort: 8080, serviceAddress: 127.0.0.1, tags: {kuma.io/service: shop, kuma.io/protocol: http}}, "+
		"{port: 8082, servicePort: 8080, serviceAddress: 127.0.0.1, tags: {kuma.io/service: only-%d, "+
		"kuma.io/protocol: http}}], outbound: [%s]}}\n", machineName(n), nodeV4(n), n, outbounds)
}

// startAgent runs the agent of a machine as a process, and waits until it is ready.
func (m *machine) startAgent(join int) {
	m.t.Helper()
	settings := []string{m.dir, "node.name=" + m.name, "gossip.bind=" + nodeV4(m.n) + ":" + poolPort,
		"gossip.keyringFile=" + filepath.Join(m.dir, "keyring"),
		"xds.socket.mode=0666", fmt.Sprintf(`xds.access=[{user: "%d", nodes: ["*"]}]`, envoyUser)}
	if join != m.n {
		settings = append(settings, "gossip.join="+nodeV4(join)+":"+poolPort)
	}
	log, err := os.OpenFile(filepath.Join(m.dir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	agenttest.Do(m.t, err)
	defer log.Close()
	m.cmd = exec.Command("/proc/self/exe")
	m.cmd.Env = append(os.Environ(), agentSettings+"="+strings.Join(settings, "\n"))
	m.cmd.Stderr = log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	m.ns.do(func() { err = m.cmd.Start() })
	agenttest.Do(m.t, err)
	cmd, gone := m.cmd, make(chan struct{})
	m.gone = gone
	go func() { _ = cmd.Wait(); close(gone) }()
	m.api = client.New(filepath.Join(m.dir, "run", "nearside.sock"), agenttest.Patience)
	m.await("the agent is ready", func() bool {
		h, err := m.api.Ready(m.t.Context())
		return err == nil && h.Status == "ok"
	})
}

// await waits for what no event tells of.
func (m *machine) await(what string, cond func() bool) {
	m.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(90 * time.Second)
	defer late.Stop()
	for !cond() {
		select {
		case <-late.C:
			m.t.Fatalf("%s: not in time: %s", m.name, what)
		case <-tick.C:
		}
	}
}

func (m *machine) killAgent() {
	_ = m.cmd.Process.Kill()
	<-m.gone
}

func (m *machine) apply(doc string) {
	m.t.Helper()
	_, err := m.api.Apply(m.t.Context(), []byte(doc), false)
	agenttest.Do(m.t, err)
}

// has waits until the machine has something with a property.
func (m *machine) has(what string, kind, mesh, name string, is func(*client.Item) bool) {
	m.t.Helper()
	m.await(what, func() bool {
		got, err := m.api.Get(m.t.Context(), kind, mesh, name)
		return err == nil && is(got)
	})
}

// ask sends a request from the machine, and returns who has answered.
func (m *machine) ask(port int, patience time.Duration) (string, error) {
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return m.ns.dial(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port)))
		}}}
	resp, err := c.Get("http://shop/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	return string(b), err
}

// load sends requests from a machine, one after the other, and remembers which failed.
type load struct {
	mu     sync.Mutex
	total  int
	failed int
	streak int // of answers, since the last failure
	stop   context.CancelFunc
	done   chan struct{}
}

func (m *machine) startLoad() {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{stop: stop, done: make(chan struct{})}
	m.load = l
	go func() {
		defer close(l.done)
		pace := time.NewTicker(40 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
			}
			_, err := m.ask(shopPort, agenttest.Patience)
			l.mu.Lock()
			l.total++
			l.streak++
			if err != nil {
				l.failed++
				l.streak = 0
				m.t.Logf("%s: %v", m.name, err)
			}
			l.mu.Unlock()
		}
	}()
	m.t.Cleanup(l.end)
}

func (l *load) end() { l.stop(); <-l.done }

func (l *load) counts() (total, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total, l.failed
}

// more waits until n more requests were sent.
func (m *machine) more(n int) {
	m.t.Helper()
	from, _ := m.load.counts()
	m.await("more requests", func() bool { now, _ := m.load.counts(); return now >= from+n })
}

// pool is five machines.
type pool struct {
	t    *testing.T
	net  *network
	all  []*machine
	from time.Time
}

func (p *pool) say(format string, args ...any) {
	p.t.Logf("%6.1f s  %s", time.Since(p.from).Seconds(), fmt.Sprintf(format, args...))
}

// cut puts machines on a link of their own; heal brings them back.
func (p *pool) cut(list ...*machine) {
	batch := "link add br1 type bridge\nlink set br1 up\n"
	for _, m := range list {
		batch += fmt.Sprintf("link set veth%d master br1\n", m.n)
	}
	p.net.router.run(p.t, batch, "ip", "-batch", "-")
}

func (p *pool) heal(list ...*machine) {
	batch := ""
	for _, m := range list {
		batch += fmt.Sprintf("link set veth%d master br0\n", m.n)
	}
	p.net.router.run(p.t, batch+"link del br1\n", "ip", "-batch", "-")
}

// sees waits until the Envoy of a machine counts the endpoints of another one as unhealthy, or not.
func (m *machine) sees(o *machine, unhealthy bool) {
	m.t.Helper()
	m.await(fmt.Sprintf("the Envoy counts %s as unhealthy: %t", o.name, unhealthy), func() bool {
		_, b, err := m.envy.get("/clusters")
		at := "shop::" + nodeV4(o.n) + ":8081::health_flags::"
		i := strings.Index(string(b), at)
		if err != nil || i < 0 {
			return false
		}
		line, _, _ := strings.Cut(string(b)[i+len(at):], "\n")
		return strings.Contains(line, "eds") == unhealthy
	})
}

// config waits until the Envoy of a machine has a text in its config.
func (m *machine) config(text string) {
	m.t.Helper()
	m.await("the Envoy has "+text, func() bool {
		_, b, err := m.envy.get("/config_dump")
		return err == nil && strings.Contains(string(b), text)
	})
}

func timeoutOf(name, value string) string {
	return "{type: MeshTimeout, mesh: default, name: " + name + ", spec: {targetRef: {kind: Mesh}, " +
		"to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: " + value + "}}}]}}\n"
}

func marked(mark string) func(*client.Item) bool {
	return func(i *client.Item) bool { return itemLabel(i, resource.LabelLiveness) == mark }
}

func itemLabel(i *client.Item, label string) string {
	var doc struct {
		Labels map[string]string `json:"labels"`
	}
	if json.Unmarshal(i.Resource, &doc) != nil {
		return ""
	}
	return doc.Labels[label]
}

// startPool makes five machines on one link, in a mesh with a builtin CA.
func startPool(t *testing.T) *pool {
	binary := realEnvoy(t)
	p := &pool{t: t, net: newNetwork(t, nil), from: time.Now()}
	numbers := []int{2, 3, 4, 5, 6}
	key := strings.Repeat("A", 43) + "=\n"
	for _, n := range numbers {
		m := &machine{t: t, n: n, name: machineName(n), dir: agenttest.ShortDir(t), ns: p.net.node(n, false)}
		agenttest.Do(t, os.Chmod(m.dir, 0o755), os.Mkdir(filepath.Join(m.dir, "resources"), 0o755))
		agenttest.WriteSecret(t, filepath.Join(m.dir, "keyring"), key)
		l, err := m.ns.listen("127.0.0.1:8080")
		agenttest.Do(t, err)
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, m.name)
		})}
		go srv.Serve(l)
		t.Cleanup(func() { srv.Close() })
		p.all = append(p.all, m)
		t.Cleanup(func() {
			m.killAgent()
			if t.Failed() {
				text, _ := os.ReadFile(filepath.Join(m.dir, "agent.log"))
				t.Logf("the agent %s:\n%s", m.name, text[max(0, len(text)-4000):])
			}
		})
		m.startAgent(2)
		if n == 2 {
			m.apply("{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, " +
				"mode: STRICT}]}}\n---\n" +
				"{type: MeshTrafficPermission, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, " +
				"from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}\n")
		} else {
			m.has("the mesh", "meshes", "", "default", func(*client.Item) bool { return true })
		}
		m.apply(dataplaneOf(n, numbers))
	}
	for _, m := range p.all {
		m.envy = startEnvoy(t, binary, m.ns, generate.BootstrapOptions{Type: node.ProxyDataplane, Mesh: "default",
			Name: m.name, XDSSocket: filepath.Join(m.dir, "run", "xds.sock")}, "default."+m.name, nowhere, time.Second)
	}
	for _, m := range p.all {
		m.envy.live(t)
	}
	return p
}

// TestTrafficInPool: five machines with builtin CAs of their own serve each other under strict
// mutual TLS, have what is applied on one of them, and go on without two of their agents. With
// POOL=whole (make pool) they also come together after a cut, and leave out two that die.
func TestTrafficInPool(t *testing.T) {
	t.Parallel()
	p := startPool(t)
	first := p.all[0]
	for _, m := range p.all {
		for _, o := range p.all {
			m.await("an answer of "+o.name, func() bool {
				who, err := m.ask(ownPort+o.n, time.Second)
				return err == nil && who == o.name
			})
		}
	}
	p.say("each of five Envoys reaches each, with a CA on each node")
	first.ns.do(func() {
		c, err := net.DialTimeout("tcp", nodeV4(3)+":8081", time.Second)
		if err == nil {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
			if b, _ := io.ReadAll(c); len(b) > 0 {
				t.Errorf("without TLS: %.80q", b)
			}
		}
	})
	for _, m := range p.all {
		m.startLoad()
	}

	began := time.Now()
	first.apply(timeoutOf("all", "7.777s"))
	for _, m := range p.all {
		m.config("7.777s")
	}
	p.say("a policy of one agent is in all five Envoys after %d ms", time.Since(began).Milliseconds())

	left, right := p.all[:2], p.all[2:]
	whole := os.Getenv("POOL") == "whole"
	if whole {
		p.cutAndHeal(left, right)
	}
	before := failures(p.all)
	for _, m := range left {
		m.killAgent()
	}
	for _, m := range right {
		for _, o := range left {
			m.has(o.name+" without its agent", "dataplanes", "default", o.name, marked(resource.LivenessNoAgent))
			m.sees(o, false)
		}
	}
	for _, m := range p.all {
		m.more(50)
	}
	if now := failures(p.all); now != before {
		t.Errorf("%d requests failed while two agents were dead", now-before)
	}
	p.say("two agents killed, and their machines are served: no request failed")
	for _, m := range left {
		m.startAgent(4)
	}
	for _, m := range right {
		for _, o := range left {
			m.has(o.name+" with its agent", "dataplanes", "default", o.name, marked(""))
		}
	}
	p.say("their agents are back")

	if whole {
		p.lose(p.all[:3], p.all[3:])
	}
}

// cutAndHeal: what both sides of a cut have written is on both after it.
func (p *pool) cutAndHeal(left, right []*machine) {
	t := p.t
	p.cut(left...)
	for _, m := range left {
		for _, o := range right {
			m.sees(o, true)
			o.sees(m, true)
		}
	}
	p.say("cut in 2 and 3: both sides count the other as unhealthy")
	left[0].apply(timeoutOf("left", "1.111s") + "---\n" + timeoutOf("both", "2.222s"))
	right[0].apply(timeoutOf("right", "3.333s") + "---\n" + timeoutOf("both", "4.444s"))
	// The two see three of five as unhealthy, and then Envoy takes all of them (its panic threshold of
	// 50 %).
	before := failures(right)
	for _, m := range right {
		m.more(50)
	}
	if now := failures(right); now != before {
		t.Errorf("%d requests failed on the larger side of the cut", now-before)
	}
	began := time.Now()
	p.heal(left...)
	for _, m := range p.all {
		for name, value := range map[string]string{"left": "1.111s", "right": "3.333s", "both": "4.444s"} {
			m.has(name+" after the cut", "meshtimeouts", "default", name, func(i *client.Item) bool {
				return strings.Contains(string(i.Resource), value)
			})
		}
	}
	p.say("healed: all have what both sides wrote after %.1f s", time.Since(began).Seconds())
	for _, m := range p.all {
		for _, o := range p.all {
			if m != o {
				m.sees(o, false)
			}
		}
	}
	p.quiet(p.all)
	p.say("and serve each other again")

}

// lose: machines that die are left out, and nothing is lost.
func (p *pool) lose(rest, dead []*machine) {
	t := p.t
	before := failures(rest)
	began := time.Now()
	for _, m := range dead {
		m.load.end()
		p.net.router.run(t, fmt.Sprintf("link set veth%d down\n", m.n), "ip", "-batch", "-")
		m.killAgent()
		m.envy.kill()
	}
	for _, m := range rest {
		for _, o := range dead {
			m.sees(o, true)
		}
	}
	unhealthy := time.Since(began)
	p.quiet(rest) // what was under way before may still fail
	after := failures(rest)
	for _, m := range rest {
		m.more(50)
	}
	if now := failures(rest); now != after {
		t.Errorf("%d requests failed after the dead machines were left out", now-after)
	}
	p.say("two machines killed: unhealthy in each Envoy after %.1f s, %d requests failed until then, none later",
		unhealthy.Seconds(), after-before)
	for _, m := range rest {
		for _, name := range []string{"all", "left", "right", "both"} {
			m.has("nothing is lost", "meshtimeouts", "default", name, func(*client.Item) bool { return true })
		}
	}
}

// quiet waits until machines have had an answer to each of some requests: what was under way on a
// link that broke may fail long after.
func (p *pool) quiet(list []*machine) {
	p.t.Helper()
	for _, m := range list {
		m.load.mu.Lock()
		m.load.streak = 0
		m.load.mu.Unlock()
	}
	for _, m := range list {
		m.await("all is answered", func() bool {
			m.load.mu.Lock()
			defer m.load.mu.Unlock()
			return m.load.streak >= 30
		})
	}
}

// failures counts the requests of machines that have failed.
func failures(list []*machine) (n int) {
	for _, m := range list {
		_, failed := m.load.counts()
		n += failed
	}
	return n
}
