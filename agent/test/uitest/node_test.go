package uitest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/mesh"
)

const quickstart = "../../../examples/quickstart/resources"

// node is an agent that runs as a process, with directories of its own.
type node struct {
	t   testing.TB
	dir string
	set []string
	cmd *exec.Cmd
}

// newNode starts an agent with the resources that fill writes into its resource directory.
func newNode(t testing.TB, fill func(dir string) error, set ...string) *node {
	t.Helper()
	n := &node{t: t, dir: agenttest.Home(t), set: set}
	agenttest.Do(t, fill(n.path("resources")))
	n.start()
	t.Cleanup(n.stop)
	return n
}

// fromQuickstart copies the resources of the quickstart.
func fromQuickstart(dir string) error {
	agents, err := filepath.Glob(quickstart + "/*.yaml")
	for _, f := range agents {
		text, e := os.ReadFile(f)
		if e == nil {
			e = os.WriteFile(filepath.Join(dir, filepath.Base(f)), text, 0o600)
		}
		if e != nil {
			err = e
		}
	}
	return err
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }
func (n *node) socket() string          { return n.path("run/nearside.sock") }

// start starts the agent and waits until it answers.
func (n *node) start() {
	n.t.Helper()
	args := []string{"run", "--set", "node.name=node-1", "--set", "dns.listen=", "--set", "api.socket.group=",
		"--set", "api.socket.mode=0600", "--set", "xds.socket.group=", "--set", "resources.dir=" + n.path("resources")}
	for _, p := range []string{"run", "state", "logs"} {
		args = append(args, "--set", "paths."+p+"="+n.path(p))
	}
	for _, s := range n.set {
		args = append(args, "--set", s)
	}
	n.cmd = n.command(n.t.Context(), args...)
	n.cmd.Cancel = nil
	log, err := os.OpenFile(n.path("agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	agenttest.Do(n.t, err)
	defer log.Close()
	n.cmd.Stderr, n.cmd.Stdout = log, log
	agenttest.Do(n.t, n.cmd.Start())
	agenttest.Eventually(n.t, "the agent answers", func() bool {
		_, err := client.New(n.socket(), agenttest.Patience).Status(n.t.Context())
		return err == nil
	})
}

// command returns a process of this test binary that runs as nearside.
func (n *node) command(ctx context.Context, args ...string) *exec.Cmd {
	self, err := os.Executable()
	agenttest.Do(n.t, err)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), programEnv+"=1", "NEARSIDE_SOCKET="+n.socket())
	return cmd
}

// stop stops the agent.
func (n *node) stop() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	_ = n.cmd.Wait()
	n.cmd = nil
}

// connect connects the proxies of a large mesh until the test ends, and waits until all are served.
func (n *node) connect(o mesh.Options) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 2*o.Proxies)
	var clients sync.WaitGroup
	clients.Go(func() { mesh.Connect(ctx, n.path("run/xds.sock"), o, func(err error) { served <- err }) })
	n.t.Cleanup(func() { cancel(); clients.Wait() })
	late := time.After(agenttest.Patience)
	for range o.Proxies {
		select {
		case err := <-served:
			agenttest.Do(n.t, err)
		case <-late:
			n.t.Fatal("the proxies are not served")
		}
	}
}

// cpu returns the processor time that the agent has used.
func (n *node) cpu() time.Duration {
	n.t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(n.cmd.Process.Pid) + "/stat")
	agenttest.Do(n.t, err)
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	user, err := strconv.Atoi(f[11])
	agenttest.Do(n.t, err)
	system, err := strconv.Atoi(f[12])
	agenttest.Do(n.t, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}
