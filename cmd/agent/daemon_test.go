package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

// patience is the timeout of every wait in these tests.
const patience = 2 * time.Minute

// daemon is "nearside run" as a process, with all its files below one directory.
type daemon struct {
	t     *testing.T
	dir   string
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended and its log is read
	err   error         // result of the process; valid after ended is closed

	mu    sync.Mutex
	log   strings.Builder // guarded by mu
	grown chan struct{}   // guarded by mu; closed when log grows
}

// quickTemp returns a directory with a path short enough for sockets.
func quickTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// runArgs returns the command line of an agent below dir. set comes last and takes precedence.
func runArgs(dir string, set ...string) []string {
	args := []string{"run"}
	for _, kv := range append([]string{"node.name=n1", "paths.run=" + dir + "/run", "paths.state=" + dir + "/state",
		"paths.logs=" + dir + "/logs",
		"resources.dir=" + dir + "/resources", "api.socket.group=", "xds.socket.group=", "dns.listen="}, set...) {
		args = append(args, "--set", kv)
	}
	return args
}

// launch starts an agent without waiting. change may modify the command.
func launch(t *testing.T, dir string, change func(*exec.Cmd), set ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, dir: dir, ended: make(chan struct{}), grown: make(chan struct{})}
	d.cmd = exec.Command("nearside", runArgs(dir, set...)...)
	if change != nil {
		change(d.cmd)
	}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			d.mu.Lock()
			d.log.WriteString(s.Text() + "\n")
			close(d.grown)
			d.grown = make(chan struct{})
			d.mu.Unlock()
		}
		d.err = d.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.ended
		secrettest.Agent(t, dir, d.logged())
		if t.Failed() {
			t.Logf("log of the agent:\n%s", d.logged())
		}
	})
	return d
}

// start starts an agent and waits until it serves.
func start(t *testing.T, dir string, set ...string) *daemon {
	t.Helper()
	d := launch(t, dir, nil, set...)
	d.says("the agent is ready")
	return d
}

func (d *daemon) logged() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// says waits until the log contains all parts.
func (d *daemon) says(parts ...string) {
	d.t.Helper()
	late := time.After(patience)
	for {
		d.mu.Lock()
		log, grown := d.log.String(), d.grown
		d.mu.Unlock()
		missing := ""
		for _, p := range parts {
			if !strings.Contains(log, p) {
				missing = p
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-grown:
		case <-d.ended:
			if strings.Contains(d.logged(), missing) {
				continue
			}
			d.t.Fatalf("the agent has ended (%v) and did not say %q:\n%s", d.err, missing, d.logged())
		case <-late:
			d.t.Fatalf("the agent does not say %q:\n%s", missing, d.logged())
		}
	}
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "run", "nearside.sock") }

func (d *daemon) xds() string { return filepath.Join(d.dir, "run", "xds.sock") }

func (d *daemon) api() *client.Client { return client.New(d.socket(), patience) }

// nearside runs a command against the agent and returns its exit code.
func (d *daemon) nearside(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(append(args, "--socket", d.socket()), strings.NewReader(stdin), &out, &errs, nil)
	return code, out.String(), errs.String()
}

// must runs a command that must succeed and returns its output.
func (d *daemon) must(stdin string, args ...string) string {
	d.t.Helper()
	code, out, errs := d.nearside(stdin, args...)
	if code != command.ExitOK {
		d.t.Fatalf("%v: exit code %d: %s", args, code, errs)
	}
	return out
}

// end sends a signal and returns the exit code of the process, or -1 if the signal killed it.
func (d *daemon) end(sig os.Signal) int {
	d.t.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.ended:
	case <-time.After(patience):
		d.t.Fatalf("the agent does not end after %v", sig)
	}
	var exit *exec.ExitError
	switch {
	case d.err == nil:
		return 0
	case errors.As(d.err, &exit):
		return exit.ExitCode()
	}
	d.t.Fatal(d.err)
	return 0
}

// asUser makes nearside run under an unused user ID. It copies the program to dir, because the user
// may not be able to read the original path.
func asUser(t *testing.T, dir string, uid uint32) func(*exec.Cmd) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can start a process under another user id")
	}
	program := filepath.Join(dir, fmt.Sprintf("program-%d", uid))
	agenttest.Do(t, os.Chmod(dir, 0o755))
	agenttest.Program(t, program)
	return func(c *exec.Cmd) {
		c.Path, c.Dir = program, "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
}

// write writes a file and creates its parent directories.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// meshDoc returns a mesh of slightly more than n bytes.
func meshDoc(name string, n int) string {
	return fmt.Sprintf("type: Mesh\nname: %s\nlabels: {fill: %q}\n", name, strings.Repeat("x", min(n, 63)))
}

// webDoc is a mesh with proxy web.
const webDoc = "type: Mesh\nname: default\n---\ntype: Dataplane\nmesh: default\nname: web\nnetworking:\n" +
	"  address: 192.0.2.1\n" +
	"  inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]\n"

// TestSecondSignal stops an agent while a client has an open request, which the agent waits for. A
// second signal must end it immediately.
func TestSecondSignal(t *testing.T) {
	d := start(t, quickTemp(t))
	c, err := net.Dial("unix", filepath.Join(d.dir, "run/nearside.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("PUT /meshes/default HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n" +
		"Content-Length: 100\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil { // the agent asks for the body, so it has read the header
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		if err := d.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if s == syscall.SIGTERM {
			d.says("the agent is stopping")
		}
	}
	<-d.ended
	var exit *exec.ExitError
	if !errors.As(d.err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("the agent ended with %v, want the second signal", d.err)
	}
}
