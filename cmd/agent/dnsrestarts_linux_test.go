package main

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/dns"
	"github.com/nearside-mesh/nearside/dns/table"
)

// restartsVariable is the environment variable for the number of restarts in TestDNSOverRestarts.
// See "make dns-restarts".
const restartsVariable = "DNS_RESTARTS"

const (
	realServerAddr = "10.1.2.53"
	realAddr       = "203.0.113.7" // of real.example on the real name server
)

// dnsNode is a network namespace with a real name server and an agent. DNS queries are redirected
// to the agent's resolver.
type dnsNode struct {
	t        *testing.T
	ns, dir  string
	agentsNS string // namespace of the agent; differs from ns if ns belongs to a pod
	nsenter  string
	vip      string // of api.mesh
	agent    *daemon
	held     int // process that the agent started to hold the sockets
	set      []string
}

// newDNSNode creates a node with a running agent and without redirection.
func newDNSNode(t *testing.T, pod bool) *dnsNode {
	t.Helper()
	p := &dnsNode{t: t, ns: netNamespace(t), dir: quickTemp(t)}
	p.agentsNS = p.ns
	if pod {
		p.agentsNS = netNamespace(t)
	}
	for _, tool := range []string{"nsenter", "unshare", "ip", "nft", "getent"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %s is not on PATH (Debian: apt-get install util-linux iproute2 nftables)", tool)
		}
	}
	p.nsenter, _ = exec.LookPath("nsenter")
	pods := p.ns
	for _, p.ns = range map[string]string{p.agentsNS: p.agentsNS, pods: pods} {
		p.must("sh", "-c", "ip link set lo up && ip addr add 10.1.2.3/32 dev lo && ip addr add "+realServerAddr+
			"/32 dev lo && ip route add default dev lo src 10.1.2.3")
		p.realServer()
	}
	p.ns = pods
	agenttest.Do(t, os.Mkdir(filepath.Join(p.dir, "resources"), 0o755))
	agenttest.Write(t, filepath.Join(p.dir, "resources", "mesh.yaml"), "{type: Mesh, name: default}\n---\n"+
		"{type: Dataplane, mesh: default, name: api, networking: {address: 10.0.0.1, inbound: [{port: 80, "+
		"tags: {kuma.io/service: api}}]}}\n")
	p.set = []string{"dns.listen=127.0.0.1:15053", "dns.upstreams=" + realServerAddr}
	p.start()
	p.awaitHolder()
	t.Cleanup(func() { _ = syscall.Kill(p.held, syscall.SIGTERM) })
	_, out, _ := p.agent.nearside("", "dns", "table", "-o", "json")
	if m := regexp.MustCompile(`240\.\d+\.\d+\.\d+`).FindString(out); m != "" {
		p.vip = m
	} else {
		t.Fatalf("no address of api.mesh: %s", out)
	}
	return p
}

// realServer serves real.example on port 53 until the test ends.
func (p *dnsNode) realServer() {
	names, errs := table.New(table.Options{Suffixes: []string{"mesh", "example", "invalid"}, TTL: 1},
		[]table.Host{{Name: "real.example", Addrs: []netip.Addr{netip.MustParseAddr(realAddr)}}})
	agenttest.Do(p.t, errs...)
	s := dns.NewServer(dns.ServerOptions{})
	s.Swap(table.NewAnswers(names, nil))
	var socks dns.Sockets
	p.within(func() error {
		return socks.Complete(p.t.Context(), netip.MustParseAddrPort(realServerAddr+":53"), 1)
	})
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.ServeUDP(ctx, socks.UDP[0]) })
	wg.Go(func() { _ = s.ServeTCP(ctx, socks.TCP[0]) })
	p.t.Cleanup(func() { stop(); wg.Wait() })
}

// within runs f on a thread in the namespace.
func (p *dnsNode) within(f func() error) {
	p.t.Helper()
	n, err := intercept.OpenNamespace(p.ns)
	if err != nil {
		p.t.Fatal(err)
	}
	defer n.Close()
	agenttest.Do(p.t, n.Do(f))
}

func (p *dnsNode) must(args ...string) string {
	p.t.Helper()
	out, err := exec.Command(p.nsenter, append([]string{"--net=" + p.ns}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// command returns a program that runs in the namespace with a separate resolv.conf.
func (p *dnsNode) command(options string, args ...string) *exec.Cmd {
	p.t.Helper()
	conf := filepath.Join(p.t.TempDir(), "resolv.conf")
	agenttest.Write(p.t, conf, "nameserver "+realServerAddr+"\n"+options)
	return exec.Command(p.nsenter, append([]string{"--net=" + p.ns,
		"unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, conf}, args...)...)
}

func (p *dnsNode) output(options string, args ...string) string {
	p.t.Helper()
	out, err := p.command(options, args...).CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out)
}

func (p *dnsNode) start() {
	p.t.Helper()
	p.agent = launch(p.t, p.dir, func(c *exec.Cmd) {
		c.Args = append([]string{p.nsenter, "--net=" + p.agentsNS}, c.Args...)
		c.Path = p.nsenter
	}, p.set...)
	p.agent.says("the agent is ready")
}

func (p *dnsNode) intercepted(want int, args ...string) string {
	p.t.Helper()
	code, out, errs := runMain(append(append([]string{"intercept"}, args...), "--netns", p.ns,
		"--socket", p.agent.socket())...)
	if code != want {
		p.t.Errorf("intercept %v: exit code %d, want %d: %s%s", args, code, want, out, errs)
	}
	return out
}

var holderPID = regexp.MustCompile(`nearside hold \(pid (\d+)\)`)

// holder returns the PID of the process that holds the sockets, or 0 if there is none.
func (p *dnsNode) holder() int {
	_, out, _ := p.agent.nearside("", "status")
	m := holderPID.FindStringSubmatch(out)
	if m == nil {
		return 0
	}
	pid, _ := strconv.Atoi(m[1])
	return pid
}

// awaitHolder waits until a process holds the sockets.
func (p *dnsNode) awaitHolder() {
	p.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(patience); ; <-tick.C {
		if pid := p.holder(); pid > 0 {
			p.held = pid
			return
		}
		if time.Now().After(late) {
			_, out, _ := p.agent.nearside("", "status")
			p.t.Fatalf("no process holds the sockets: %s", out)
		}
	}
}

// TestDNSOverRestarts checks that no lookup of unmodified programs fails while the agent is
// restarted and killed, at 200 lookups per second, in the agent's network namespace and in that of
// a pod. The exception are lookups over TCP that are in progress when the agent is killed: the
// kernel resets connections that the agent has accepted, and glibc does not repeat such lookups.
func TestDNSOverRestarts(t *testing.T) {
	restarts := 5
	if n, err := strconv.Atoi(os.Getenv(restartsVariable)); err == nil {
		restarts = n
	}
	t.Run("own", func(t *testing.T) { testRestarts(t, false, restarts) })
	t.Run("pod", func(t *testing.T) { testRestarts(t, true, restarts) })
}

func testRestarts(t *testing.T, pod bool, restarts int) {
	p := newDNSNode(t, pod)
	rules := p.must("nft", "list", "ruleset")
	p.intercepted(command.ExitOK, "install", "--wait", "1m")
	held := p.held
	if out := p.output("", "nearside", "check", "--socket", p.agent.socket()); !pod &&
		!strings.Contains(out, "ok   dns-sockets: nearside hold (pid ") {
		t.Errorf("check: %s", out)
	}
	names := []string{"api.mesh=" + p.vip, "real.example=" + realAddr}
	pauses := watchPauses()
	clients := map[string][]*lookups{"udp": {p.look("", 60, names...), p.look("", 60, names...),
		p.look("options single-request\n", 50, names...)},
		"tcp": {p.look("options use-vc\n", 30, names...)}}
	began, away := time.Now(), time.Duration(0)
	var kills []span
	for i := range restarts {
		sig := syscall.SIGTERM
		if i%5 == 4 {
			sig = syscall.SIGKILL
		}
		stopped := time.Now()
		if code := p.agent.end(sig); sig == syscall.SIGTERM && code != 0 {
			t.Errorf("restart %d: exit code %d", i, code)
		}
		if sig == syscall.SIGKILL {
			kills = append(kills, span{began: stopped, ended: time.Now()})
		}
		p.start()
		away = max(away, time.Since(stopped))
		p.agent.says("state=active")
		if out := p.output("", "getent", "ahostsv4", "api.mesh"); !strings.HasPrefix(out, p.vip) {
			t.Errorf("restart %d: getent: %s", i, out)
		}
		clients["udp"][0].goOn()
	}
	elapsed := time.Since(began)
	total := 0
	var lapses []span
	results := map[string][]lookedUp{}
	for network, list := range clients {
		for _, l := range list {
			results[network] = append(results[network], l.end())
		}
	}
	for _, p := range pauses() { // without an agent for 3 s, queries go to the real servers until it runs again
		t.Logf("this machine stood still from %v to %v", p.began, p.ended)
		lapses = append(lapses, span{began: p.began, ended: p.ended.Add(5 * time.Second)})
	}
	for network, list := range results {
		for _, got := range list {
			total += got.Asked
			t.Logf("%s: %+v", network, got)
			excused := lapses
			if network == "tcp" {
				excused = slices.Concat(lapses, kills)
			}
			if got.during(excused) {
				got.Failed = 0
			}
			if got.Failed > 0 || got.Asked == 0 {
				t.Errorf("%s: %d of %d look-ups failed: %s", network, got.Failed, got.Asked, strings.Join(got.Faults, "; "))
			}
		}
	}
	t.Logf("%d restarts in %v, the longest absence %v, %d look-ups, %.0f a second",
		restarts, elapsed.Round(time.Millisecond), away.Round(time.Millisecond), total, float64(total)/elapsed.Seconds())
	if p.awaitHolder(); p.held != held {
		t.Errorf("held by pid %d, and by %d in the beginning", p.held, held)
	}
	p.intercepted(command.ExitOK, "uninstall")
	p.agent.says("interception was uninstalled")
	if got := p.must("nft", "list", "ruleset"); got != rules {
		t.Errorf("uninstall left behind: %s", got)
	}
	if out := p.output("", "getent", "ahostsv4", "api.mesh"); strings.Contains(out, p.vip) {
		t.Errorf("after uninstall: %s", out)
	}
	if out := p.output("", "getent", "ahostsv4", "real.example"); !strings.HasPrefix(out, realAddr) {
		t.Errorf("after uninstall: %s", out)
	}
}

// TestDNSWithoutAHolder checks the case that no process holds the sockets. A planned stop must
// redirect queries to the real servers before the sockets are closed. After a kill, the real
// servers must be used within 3 s.
func TestDNSWithoutAHolder(t *testing.T) {
	p := newDNSNode(t, false)
	// This test holds the lock of the holder, so no new holder starts.
	agenttest.Do(t, syscall.Kill(p.held, syscall.SIGKILL))
	lock, err := os.OpenFile(filepath.Join(p.dir, "run", "hold.lock"), os.O_RDWR, 0)
	agenttest.Do(t, err)
	defer lock.Close()
	agenttest.Do(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)) // after the previous holder has ended
	p.agent.end(syscall.SIGTERM)
	p.start()
	p.intercepted(command.ExitOK, "install", "--wait", "1m")
	if _, out, _ := p.agent.nearside("", "status"); !strings.Contains(out,
		"sockets held by nothing while the agent is down") {
		t.Errorf("status: %s", out)
	}
	if out := p.output("", "nearside", "check", "--socket", p.agent.socket()); !strings.Contains(out,
		"WARN dns-sockets: nothing holds") {
		t.Errorf("check: %s", out)
	}
	if out := p.output("", "getent", "ahostsv4", "api.mesh"); !strings.HasPrefix(out, p.vip) {
		t.Fatalf("getent: %s", out)
	}
	l := p.look("", 100, "real.example="+realAddr)
	for range 2 {
		p.agent.end(syscall.SIGTERM)
		if out := p.must("nft", "list", "set", "inet", "nearside", "live"); strings.Contains(out, "elements") {
			t.Errorf("the redirection outlives an agent that was stopped: %s", out)
		}
		l.goOn()
		p.start()
		p.agent.says("state=active")
		l.goOn()
	}
	if got := l.end(); got.Failed > 0 || got.OverASecond > 0 {
		t.Errorf("planned stops: %+v", got)
	}
	killed := time.Now()
	p.agent.end(syscall.SIGKILL)
	for asked := false; !asked; {
		wait, last := 100*time.Millisecond, time.Since(killed) > 3*time.Second
		if last { // a query that is sent now reaches the real server, however slow this machine is
			wait = patience
		}
		p.within(func() error {
			m, _, err := (&mdns.Client{Timeout: wait}).Exchange(new(mdns.Msg).SetQuestion("real.example.", mdns.TypeA),
				realServerAddr+":53")
			if asked = err == nil && len(m.Answer) == 1; last && !asked {
				t.Errorf("the real server is not asked again: %v %v", m, err)
				asked = true
			}
			return nil
		})
	}
	t.Logf("the real server answered %v after the kill", time.Since(killed).Round(time.Millisecond))
}
