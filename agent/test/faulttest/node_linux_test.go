package faulttest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/cli"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// node is an agent, run as the program, with separate directories.
type node struct {
	t   testing.TB
	dir string
	ip  string // of the loopback network; no other node has it
	set []string
	env []string
	log *agenttest.Logs

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process ends; nil before the first start
}

// newNode prepares an agent with the given settings.
func newNode(t testing.TB, set ...string) *node {
	t.Helper()
	n := &node{t: t, dir: agenttest.ShortDir(t), log: agenttest.NewLogs(), ip: agenttest.Loopback()}
	n.set = append([]string{"node.name=n1", "paths.run=" + n.path("run"), "paths.state=" + n.path("state"),
		"paths.logs=" + n.path("logs"), "resources.dir=" + n.path("resources"), "api.socket.group=",
		"xds.socket.group=", "dns.listen="}, set...)
	agenttest.Do(t, os.Chmod(n.dir, 0o755), os.Mkdir(n.path("resources"), 0o755))
	t.Cleanup(func() {
		n.kill(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("the agent in %s:\n%s", n.dir, n.log)
		}
	})
	return n
}

func (n *node) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

// program returns a nearside command.
func (n *node) program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Getenv(binaryEnv), args...)
	if cmd.Path == "" {
		self, err := os.Executable()
		agenttest.Do(n.t, err)
		cmd = exec.Command(self, args...)
	}
	cmd.Env = append(os.Environ(), append([]string{programEnv + "=1", "ENVOY_BIN=",
		"NEARSIDE_SOCKET=" + n.path("run", "nearside.sock")}, n.env...)...)
	cmd.Dir = n.dir
	return cmd
}

// start starts the agent and waits until it is ready.
func (n *node) start() *node {
	n.t.Helper()
	n.begin()
	n.until("the agent is ready", func() bool {
		select {
		case <-n.ended:
			n.t.Fatalf("the agent has ended:\n%s", n.log)
		default:
		}
		return n.run("", "healthcheck").code == 0
	})
	return n
}

// begin starts the agent and does not wait.
func (n *node) begin() {
	n.t.Helper()
	args := []string{"run"}
	for _, s := range n.set {
		args = append(args, "--set", s)
	}
	cmd, ended := n.program(args...), make(chan struct{})
	cmd.Stdout, cmd.Stderr = n.log, n.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	agenttest.Do(n.t, cmd.Start())
	n.cmd, n.ended = cmd, ended
	go func() { _ = cmd.Wait(); close(ended) }()
}

// kill sends a signal to the agent, and waits until it has ended.
func (n *node) kill(s syscall.Signal) {
	if n.ended != nil {
		_ = n.cmd.Process.Signal(s)
		<-n.ended
	}
}

// until polls a condition until it is true.
func (n *node) until(what string, holds func() bool) {
	n.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	agenttest.Await(n.t, what, tick.C, holds)
}

// screen is what a command has printed.
type screen struct {
	line string
	code int
	text string // standard output, then standard error
	out  string // standard output
}

func (s screen) String() string {
	return fmt.Sprintf("$ %s\n%s[exit code %d]\n", s.line, s.text, s.code)
}

// run runs a command with a standard input: in this process, unless binaryEnv names another
// program. The start of a process for each of the hundreds of commands takes most of the time.
func (n *node) run(stdin string, args ...string) screen {
	n.t.Helper()
	cmd := n.program(args...)
	var out, errs bytes.Buffer
	var code int
	if os.Getenv(binaryEnv) == "" {
		code = cli.Main(program, args, strings.NewReader(stdin), &out, &errs, cmd.Env)
	} else {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			n.t.Fatal(err)
		}
		code = cmd.ProcessState.ExitCode()
	}
	return screen{line: "nearside " + strings.Join(args, " "), code: code, text: out.String() + errs.String(),
		out: out.String()}
}

// command runs a command line. In the line, $DIR is the directory of the node and $IP its address.
func (n *node) command(line string) screen {
	n.t.Helper()
	words := strings.Fields(n.local(line))
	if words[0] != "nearside" {
		n.t.Fatalf("%q is no command of nearside", line)
	}
	return n.run("", words[1:]...)
}

// local replaces $IP and $DIR in a text.
func (n *node) local(text string) string {
	return strings.NewReplacer("$IP", n.ip, "$DIR", n.dir).Replace(text)
}

// file writes a file of the resource directory.
func (n *node) file(name, text string) {
	n.t.Helper()
	n.write(n.path("resources", name), text)
}

// write writes a file.
func (n *node) write(path, text string) {
	n.t.Helper()
	agenttest.Write(n.t, path, n.local(text))
}

// apply stores resources with "nearside apply".
func (n *node) apply(text string) screen {
	n.t.Helper()
	s := n.run(n.local(text), "apply", "-f", "-")
	if s.code != 0 {
		n.t.Fatalf("%s", s)
	}
	return s
}

// synced waits until a dataplane has acknowledged its config.
func (n *node) synced(mesh, name string) {
	n.t.Helper()
	n.until(mesh+"/"+name+" is synced", func() bool {
		return strings.HasPrefix(n.run("", "inspect", "dataplane", name, "-m", mesh, "--type=status").out,
			mesh+"/"+name+": synced")
	})
}
