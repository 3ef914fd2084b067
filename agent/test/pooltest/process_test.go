package pooltest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// Environment variables of an agent that runs in the test binary.
const (
	settingsEnv = "NEARSIDE_TEST_POOL_AGENT" // its directory and settings, one per line
	syncEnv     = "NEARSIDE_TEST_POOL_SYNC"  // additional duration of each fsync
)

func TestMain(m *testing.M) {
	settings := os.Getenv(settingsEnv)
	if settings == "" {
		os.Exit(m.Run())
	}
	list := strings.Split(settings, "\n")
	if err := runAgent(list[0], list[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runAgent runs an agent until it receives SIGTERM.
func runAgent(dir string, set []string) error {
	cfg, _, faults := config.Load(agenttest.Options(dir, set...))
	if err := faults.Err(); err != nil {
		return err
	}
	deps := agent.Deps{Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Notify: func(string) {},
		GCPercent: 40} // same value as in the nearside program
	if delay, err := time.ParseDuration(os.Getenv(syncEnv)); err == nil {
		deps.Sync = func() error { <-time.After(delay); return nil }
	}
	a, err := agent.New(cfg, deps)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return a.Run(ctx)
}

// member is an agent process with separate directories.
type member struct {
	t       testing.TB
	dir     string
	name    string
	address string // of the gossip protocol
	set     []string
	env     []string
	log     *agenttest.Logs

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process ends; nil before the first start
	api   *client.Client
}

// newPool prepares n agents, each with the addresses of all agents. set applies to all of them.
func newPool(t testing.TB, n int, set ...string) []*member {
	t.Helper()
	var all []*member
	var addresses, join []string
	for range n {
		addresses = append(addresses, agenttest.Loopback())
	}
	// In order: of two nodes with one ID that start in the same second, the greater address yields.
	slices.SortFunc(addresses, func(a, b string) int { return netip.MustParseAddr(a).Compare(netip.MustParseAddr(b)) })
	for i := range n {
		m := &member{t: t, dir: agenttest.ShortDir(t), name: fmt.Sprintf("n%d", i), log: agenttest.NewLogs(),
			address: addresses[i] + ":7946"}
		agenttest.Do(t, os.MkdirAll(filepath.Join(m.dir, "resources"), 0o755))
		agenttest.WriteSecret(t, filepath.Join(m.dir, "keyring"), strings.Repeat("A", 43)+"=\n")
		m.api = client.New(m.socket("nearside.sock"), patience)
		join = append(join, m.address)
		all = append(all, m)
	}
	for _, m := range all {
		m.set = append([]string{"node.name=" + m.name, "gossip.bind=" + m.address, "gossip.join=" + strings.Join(join, ","),
			"gossip.keyringFile=" + filepath.Join(m.dir, "keyring")}, set...)
		t.Cleanup(func() {
			m.kill()
			if t.Failed() {
				t.Logf("the agent %s:\n%s", m.name, m.logged())
			}
		})
	}
	return all
}

func (m *member) socket(name string) string { return filepath.Join(m.dir, "run", name) }

func (m *member) state() string { return filepath.Join(m.dir, "state") }

// logged returns the last lines of the log, without those of writes and of the failure
// detector.
func (m *member) logged() string {
	var lines []string
	for line := range strings.Lines(m.log.String()) {
		if !strings.Contains(line, "membership: Got ping") && !strings.Contains(line, "Failed fallback") &&
			!strings.Contains(line, "msg=\"api: ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-15):], "")
}

// startPool is [newPool], and starts all agents at the same time.
func startPool(t testing.TB, n int, set ...string) []*member {
	t.Helper()
	all := newPool(t, n, set...)
	startAll(all...)
	return all
}

func startAll(all ...*member) {
	for _, m := range all {
		m.begin()
	}
	for _, m := range all {
		m.ready()
	}
}

// begin starts the process without waiting.
func (m *member) begin() {
	m.t.Helper()
	self, err := os.Executable()
	agenttest.Do(m.t, err)
	cmd := exec.Command(self)
	if binary := os.Getenv("POOL_BINARY"); binary != "" {
		cmd = exec.Command(binary, "run")
		for _, set := range append([]string{"paths.run=" + filepath.Join(m.dir, "run"), "paths.state=" + m.state(),
			"paths.logs=" + filepath.Join(m.dir, "logs"), "resources.dir=" + filepath.Join(m.dir, "resources"),
			"dns.listen=", "api.socket.group=", "xds.socket.group="}, m.set...) {
			cmd.Args = append(cmd.Args, "--set", set)
		}
	}
	cmd.Env = append(os.Environ(), append(m.env, settingsEnv+"="+strings.Join(append([]string{m.dir,
		"api.socket.group=", "xds.socket.group="}, m.set...), "\n"))...)
	cmd.Stdout, cmd.Stderr = m.log, m.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan struct{})
	m.cmd, m.ended = cmd, ended
	agenttest.Do(m.t, cmd.Start())
	go func() { _ = cmd.Wait(); close(ended) }()
}

// start starts the process and waits until the agent is ready.
func (m *member) start() {
	m.t.Helper()
	m.begin()
	m.ready()
}

// ready waits until the agent is ready.
func (m *member) ready() {
	m.t.Helper()
	m.await("the agent is ready", func() bool {
		select {
		case <-m.ended:
			m.t.Fatalf("%s has ended:\n%s", m.name, m.log)
		default:
		}
		h, err := m.api.Ready(m.t.Context())
		return err == nil && h.Status == "ok"
	})
}

func (m *member) await(what string, holds func() bool) {
	m.t.Helper()
	await(m.t, m.name+": "+what, holds)
}

// patience is the timeout for events that must happen.
const patience = agenttest.Patience

// await polls a condition until it is true.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// kill kills the process if it runs.
func (m *member) kill() {
	if m.ended == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	<-m.ended
}

// stop ends the process as a service manager does.
func (m *member) stop() {
	m.t.Helper()
	agenttest.Do(m.t, m.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-m.ended:
	case <-time.After(patience):
		m.t.Fatalf("%s does not stop", m.name)
	}
}

func (m *member) apply(text string) {
	m.t.Helper()
	_, err := m.api.Apply(m.t.Context(), []byte(text), false)
	agenttest.Do(m.t, err)
}

func (m *member) delete(kind, mesh, name string) {
	m.t.Helper()
	_, err := m.api.Delete(m.t.Context(), kind, mesh, name, false)
	agenttest.Do(m.t, err)
}

// copyState replaces the directory "to" with a copy of "from".
func copyState(t testing.TB, from, to string) {
	t.Helper()
	agenttest.Do(t, os.RemoveAll(to))
	agenttest.Do(t, os.CopyFS(to, os.DirFS(from)))
	agenttest.Do(t, os.Chmod(to, 0o700))
	agenttest.Do(t, filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Chmod(path, 0o600) // CopyFS adds the permissions of the umask
		}
		return err
	}))
}

// loseState deletes the state, except the identity of the node.
func loseState(t testing.TB, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	agenttest.Do(t, err)
	for _, e := range list {
		if e.Name() != "node-key" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	agenttest.Do(t, err)
}
