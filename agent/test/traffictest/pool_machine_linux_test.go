package traffictest_test

import (
	"context"
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
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// agentSettings is the environment variable with the settings of an agent, one per line. If it is
// set, the test binary runs as that agent.
const agentSettings = "NEARSIDE_TEST_AGENT"

// commandLine is the environment variable with the arguments of a command, one per line. If it is
// set, the test binary runs as nearside with this command line.
const commandLine = "NEARSIDE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if line := os.Getenv(commandLine); line != "" {
		os.Exit(cli.Main(command.Program{}, strings.Split(line, "\n"), os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	}
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

// beAgent runs an agent until it receives a stop signal.
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

// machine is a node of a pool: a namespace with an agent, an Envoy, and a workload.
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
	gone chan struct{} // closed when the agent process ends
}

const (
	shopPort = 10000  // of the service on all machines, as clients see it
	ownPort  = 10000  // + n: of the service that only machine n serves
	poolPort = "7946" // of the gossip protocol
)

func machineName(n int) string { return fmt.Sprintf("node-%d", n) }

// dataplaneOf returns the dataplane of a machine.
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

// startAgent starts the agent of a machine as a process and waits until it is ready.
func (m *machine) startAgent(join int) {
	m.t.Helper()
	settings := []string{m.dir, "node.name=" + m.name, "gossip.bind=" + nodeV4(m.n) + ":" + poolPort,
		"gossip.keyringFile=" + filepath.Join(m.dir, "keyring"),
		fmt.Sprintf("resources.dir=[{path: %s/resources, role: kubernetes}]", m.dir),
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

// await polls cond until it is true.
func (m *machine) await(what string, cond func() bool) {
	m.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	agenttest.Await(m.t, m.name+": "+what, tick.C, cond)
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

// has waits until the machine's agent has a resource that satisfies is.
func (m *machine) has(what string, kind, mesh, name string, is func(*api.Item) bool) {
	m.t.Helper()
	m.await(what, func() bool {
		got, err := m.api.Get(m.t.Context(), kind, mesh, name)
		return err == nil && is(got)
	})
}

// ask sends a request from the machine and returns the name of the responder.
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

// load sends requests from a machine one after the other and records the failures.
type load struct {
	mu     sync.Mutex
	total  int
	failed int
	streak int // successful responses since the last failure
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

// more waits until n more requests are sent.
func (m *machine) more(n int) {
	m.t.Helper()
	from, _ := m.load.counts()
	m.await("more requests", func() bool { now, _ := m.load.counts(); return now >= from+n })
}
