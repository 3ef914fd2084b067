package agent_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// startHolder runs a supervised holder for the run directory of an agent, until the test ends.
func startHolder(t *testing.T, dir string) (stop func()) {
	t.Helper()
	run := filepath.Join(dir, "run")
	agenttest.Do(t, os.MkdirAll(run, 0o755))
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- hold.Serve(ctx, run, hold.ServeOptions{Stay: true, Ready: func() { close(ready) }})
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	done := false
	stop = func() {
		if cancel(); !done {
			done = true
			agenttest.Do(t, <-ended)
		}
	}
	t.Cleanup(stop)
	return stop
}

// held are the dependencies of an agent with a separately started holder.
var held = agent.Deps{Hold: []string{"/bin/false"}}

// TestSocketsOutliveTheAgent checks that clients wait while no agent runs, and that the next agent
// serves them. Sockets that the config does not name any more are closed, and a socket whose file
// was removed is replaced.
func TestSocketsOutliveTheAgent(t *testing.T) {
	dir := agenttest.ShortDir(t)
	startHolder(t, dir)
	receivers := `accessLog.receivers=[{name: a, address: "unix:log.sock", file: a.log}]`
	sockets := []string{receivers, "api.tcp=127.0.0.1:0", "api.tokenFile=" + filepath.Join(dir, "token")}
	agenttest.WriteSecret(t, filepath.Join(dir, "token"), strings.Repeat("x", 32))
	r := agenttest.Up(t, dir, held, sockets...)
	at := r.Addrs().APITCP.String()
	agenttest.Do(t, r.Stop())

	api, err := net.Dial("tcp", at)
	agenttest.Do(t, err)
	defer api.Close()
	_, err = io.WriteString(api, "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
	agenttest.Do(t, err)
	sender, err := net.Dial("unix", filepath.Join(dir, "run", "log.sock"))
	agenttest.Do(t, err)
	_, err = io.WriteString(sender, "sent without an agent\n")
	agenttest.Do(t, err, sender.Close())

	r = agenttest.Up(t, dir, held, sockets...)
	answer, err := http.ReadResponse(bufio.NewReader(api), nil)
	if err != nil || r.Addrs().APITCP.String() != at {
		t.Errorf("request of before at %s: %v; the address is now %s", at, err, r.Addrs().APITCP)
	} else {
		_ = answer.Body.Close()
	}
	agenttest.Eventually(t, "the line is in its file", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "logs", "a.log"))
		return string(b) == "sent without an agent\n"
	})
	agenttest.Do(t, r.Stop())

	agenttest.Do(t, os.Remove(filepath.Join(dir, "run", "nearside.sock")))
	r = agenttest.Up(t, dir, held)
	if c, err := net.Dial("unix", filepath.Join(dir, "run", "log.sock")); err == nil {
		t.Error("the socket of a removed receiver accepts connections")
		_ = c.Close()
	}
	if c, err := net.Dial("tcp", at); err == nil {
		t.Error("a removed api.tcp accepts connections")
		_ = c.Close()
	}
	if _, err := r.Api().Status(t.Context()); err != nil {
		t.Errorf("the API socket whose file was removed: %v", err)
	}
	agenttest.Do(t, r.Stop())
}

// TestHolderEndsBeforeTheAgent checks that the next holder gets all sockets from a running agent,
// and that an agent without a holder replaces the socket files.
func TestHolderEndsBeforeTheAgent(t *testing.T) {
	dir := agenttest.ShortDir(t)
	run := filepath.Join(dir, "run")
	stop := startHolder(t, dir)
	r := agenttest.Up(t, dir, held)
	before, err := hold.Check(run)
	if err != nil || before.Sockets < 3 { // xDS, API, and OTLP
		t.Errorf("held: %+v, %v", before, err)
	}
	stop()
	stop = startHolder(t, dir)
	agenttest.Eventually(t, "the next holder has all sockets", func() bool {
		s, err := hold.Check(run)
		return err == nil && s == before
	})
	agenttest.Do(t, r.Stop())
	c, err := net.Dial("unix", filepath.Join(run, "xds.sock"))
	agenttest.Do(t, err)
	_ = c.Close()
	stop()
	r = agenttest.Up(t, dir, agent.Deps{})
	if _, err := r.Api().Status(t.Context()); err != nil {
		t.Error(err)
	}
	agenttest.Do(t, r.Stop())
}

// TestNoSocketsWithoutASupervisedHolder checks that an agent that starts its holder itself leaves
// no listening socket behind, so that a client sees at once that no agent runs.
func TestNoSocketsWithoutASupervisedHolder(t *testing.T) {
	dir := agenttest.ShortDir(t)
	r := agenttest.Up(t, dir, held)
	agenttest.Do(t, r.Stop())
	for _, name := range []string{"nearside.sock", "xds.sock", "otlp.sock"} {
		if _, err := os.Lstat(filepath.Join(dir, "run", name)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

// TestSocketOfAnEndedAgent checks that an agent replaces a socket that a holder of another run
// directory keeps for an agent that has ended.
func TestSocketOfAnEndedAgent(t *testing.T) {
	dir := agenttest.ShortDir(t)
	path := filepath.Join(dir, "api.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	agenttest.Do(t, err)
	kept := os.NewFile(uintptr(fd), "kept")
	defer kept.Close()
	ended := exec.Command(os.Args[0], "-test.run=^TestListenAndEnd$")
	ended.Env, ended.ExtraFiles = append(os.Environ(), listenVariable+"="+path), []*os.File{kept}
	if out, err := ended.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := net.Dial("unix", path)
	agenttest.Do(t, err)
	_ = c.Close()
	r := agenttest.Up(t, dir, agent.Deps{}, "api.socket.path="+path)
	if _, err := r.Api().Status(t.Context()); err != nil {
		t.Error(err)
	}
	agenttest.Do(t, r.Stop())
}

const listenVariable = "AGENT_TEST_LISTEN"

// TestListenAndEnd is the agent of TestSocketOfAnEndedAgent. It listens with the inherited socket.
func TestListenAndEnd(t *testing.T) {
	path := os.Getenv(listenVariable)
	if path == "" {
		t.Skip("skipped: TestSocketOfAnEndedAgent runs this in another process")
	}
	agenttest.Do(t, unix.Bind(3, &unix.SockaddrUnix{Name: path}), unix.Listen(3, 8))
}
