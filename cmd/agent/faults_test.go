package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestHangup checks that SIGHUP reloads the config and that the result is logged.
func TestHangup(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	file := dir + "/agent.yaml"
	write(t, file, "log: {level: info}\nnode: {zone: one}\n")
	d := launch(t, dir, func(c *exec.Cmd) { c.Args = append(c.Args, "--config", file) })
	d.says("the agent is ready")
	hangup := func(text string, says ...string) {
		t.Helper()
		write(t, file, text)
		if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		d.says(says...)
	}
	hangup("log: {level: debug}\nnode: {zone: two}\n", "key=log.level from=info to=debug",
		"needs a restart of the agent\" key=node.zone from=one to=two")
	hangup("log: {level: loud}\n", "is not applied", "agent.yaml:1: log.level", "one of debug, info, warn, error")
	code, out, _ := d.nearside("", "status")
	if code != command.ExitOK {
		t.Errorf("status: exit code %d", code)
	}
	agenttest.Contains(t, out, "(zone one)")
}

// TestPIDFile checks that an existing pid file does not prevent a start, unless it cannot be
// locked.
func TestPIDFile(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	pid := dir + "/run/nearside.pid"
	write(t, pid, "no number at all "+strings.Repeat("9", 5000))
	d := start(t, dir)
	if b, err := os.ReadFile(pid); err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(d.cmd.Process.Pid) {
		t.Errorf("pid file: %q %v", b, err)
	}
	if code, _, errs := runWith(runArgs(dir)); code != command.ExitFailed ||
		!strings.Contains(errs, fmt.Sprintf("(pid %d)", d.cmd.Process.Pid)) {
		t.Errorf("a second agent: exit code %d, %s", code, errs)
	}
	// Overwriting the file does not affect the first agent: its lock remains, and the kernel knows
	// the holder.
	write(t, pid, "-1\n")
	if code, _, errs := runWith(runArgs(dir, "paths.state="+dir+"/other")); code != command.ExitFailed ||
		!strings.Contains(errs, fmt.Sprintf("(pid %d)", d.cmd.Process.Pid)) {
		t.Errorf("a second agent: exit code %d, %s", code, errs)
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := errors.Join(os.Remove(pid), os.Mkdir(pid, 0o700)); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runWith(runArgs(dir)); code != command.ExitFailed ||
		!strings.Contains(errs, "paths.run cannot be used") {
		t.Errorf("with a directory there: exit code %d, %s", code, errs)
	}
}

func runWith(args []string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(args, strings.NewReader(""), &out, &errs, nil)
	return code, out.String(), errs.String()
}

// TestExplainUnknownName checks that a name that does not resolve in the mesh is not reported as
// allowed.
func TestExplainUnknownName(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"nosuch:80": "unknown host: no service of the mesh default has the name nosuch; " +
			"run nearside inspect services to list them",
		"backen:80":      "unknown host: no service of the mesh default has the name backen; did you mean backend?",
		"backnd.mesh:80": "unknown host: no service of the mesh default has the name backnd.mesh; did you mean backend?",
		"web:80": "unreachable: the dataplane does not reach web: the dataplane has no transparent proxy and no " +
			"outbound to it",
		"example.com:80": "allowed: ",
	} {
		for _, what := range []string{"connection", "request"} {
			code, out, errs := runWith([]string{"explain", what, "-f", "../../examples/quickstart/resources",
				"--from", "web", "--to", to})
			if wanted := map[bool]int{true: command.ExitOK, false: 2}[strings.HasPrefix(want, "allowed")]; code != wanted ||
				!strings.HasPrefix(out, want) {
				t.Errorf("%s to %s: exit code %d, %s%s", what, to, code, out, errs)
			}
		}
	}
}

// TestLongSocketPath checks that both the agent and the client report a socket path that is too
// long.
func TestLongSocketPath(t *testing.T) {
	t.Parallel()
	long := "/tmp/" + strings.Repeat("x", 110)
	code, _, errs := runWith(runArgs("/tmp/nearside-test", "paths.run="+long))
	if code != command.ExitInvalid {
		t.Errorf("run: exit code %d", code)
	}
	agenttest.Contains(t, errs, "api.socket.path: ", "at most 107", "set a shorter path")
	code, _, errs = runWith([]string{"status", "--socket", long})
	if code != command.ExitUnreachable {
		t.Errorf("status: exit code %d", code)
	}
	agenttest.Contains(t, errs, "the path has 115 bytes, and the system takes at most 107")
}

// TestAgentThatHangs checks that commands report a stopped or overloaded agent after the timeout.
func TestAgentThatHangs(t *testing.T) {
	t.Parallel()
	d := start(t, quickTemp(t))
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The signal is asynchronous. The kernel reports when the process has stopped.
	agenttest.Eventually(t, "the agent stands", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(rest, "T")
	})
	code, _, errs := d.nearside("", "healthcheck", "--timeout", "200ms")
	if code != command.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	agenttest.Contains(t, errs, "the agent at "+d.socket()+" has said nothing for 200ms")
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := d.nearside("", "healthcheck"); code != command.ExitOK {
		t.Error(errs)
	}
}

// TestLogReaderGone checks that the agent keeps running after the reader of its log has ended.
func TestLogReaderGone(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "nearside", runArgs(dir)...)
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	d := &daemon{t: t, dir: dir}
	agenttest.Eventually(t, "the agent answers", func() bool { _, err := d.api().Ready(t.Context()); return err == nil })
	r.Close()
	for i := range 3 {
		// This request writes a log line.
		if code, _, errs := d.nearside(meshDoc(fmt.Sprintf("m-%d", i), 1), "apply", "-f", "-"); code != command.ExitOK {
			t.Errorf("write %d: exit code %d: %s", i, code, errs)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// TestOutputThatIsLost checks that every command fails if its output cannot be written.
func TestOutputThatIsLost(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/web.yaml", webDoc)
	d := start(t, dir)
	for _, line := range []string{
		"status", "status -o json", "status -o yaml", "get dp", "get dp -o name", "get dp -o yaml", "get dp web -o json",
		"history dp web", "inspect dataplanes", "inspect dataplanes -o name", "inspect dataplane web",
		"inspect dataplane web --type=status", "apply --dry-run -f -", "bootstrap --name web", "config show",
		"config schema", "completion bash", "version", "--help", "get --help",
	} {
		var errs bytes.Buffer
		args := append(strings.Fields(line), "--socket", d.socket())
		code := Main(args, strings.NewReader(meshDoc("m", 1)), fullWriter{}, &errs, nil)
		if code != command.ExitFailed || !strings.Contains(errs.String(), syscall.ENOSPC.Error()) {
			t.Errorf("%s: exit code %d: %s", line, code, errs.String())
		}
	}
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestOtherUserMayNotWrite checks that another user with access to the socket can read but not
// write.
func TestOtherUserMayNotWrite(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	as := asUser(t, dir, 4242)
	write(t, dir+"/run/x", "") // keeps the directory open to all
	write(t, dir+"/resources/web.yaml", webDoc)
	other := func(d *daemon, args ...string) (int, string) {
		t.Helper()
		cmd := exec.Command("nearside", append(args, "--socket", d.socket())...)
		cmd.Stdin = strings.NewReader(meshDoc("m", 1))
		as(cmd)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	d := start(t, dir)
	if code, out := other(d, "status"); code != command.ExitPermission ||
		!strings.Contains(out, "hint: run the command as root") {
		t.Errorf("a socket with mode 0660: exit code %d: %s", code, out)
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	d = start(t, dir, "api.socket.mode=0666")
	if code, out := other(d, "get", "dp"); code != command.ExitOK {
		t.Errorf("reading: exit code %d: %s", code, out)
	}
	for _, args := range [][]string{
		{"apply", "-f", "-"}, {"delete", "dp", "web"}, {"rollback", "dp", "web", "--to", "2"},
	} {
		if code, out := other(d, args...); code != command.ExitPermission || !strings.Contains(out, "uid=4242") {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
}

// TestGarbageOnSockets checks that invalid data on a socket does not affect other clients.
func TestGarbageOnSockets(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/web.yaml", webDoc)
	d := start(t, dir)
	stream := openStream(t, d.xds(), "default.web")
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{d.socket(), d.xds()} {
		for _, junk := range []string{"\x00\xff\xfe", "GET / HTTP/9.9\r\n\r\n",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff",
			"PUT /meshes/x HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", strings.Repeat("A", 1<<20)} {
			conn, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, junk) // the agent may close the connection meanwhile
			_ = conn.(*net.UnixConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn) // until the agent closes the connection
			conn.Close()
		}
	}
	write(t, dir+"/resources/more.yaml",
		strings.NewReplacer("type: Mesh\nname: default\n---\n", "", "name: web", "name: web-2").Replace(webDoc))
	agenttest.Eventually(t, "the agent still works", func() bool {
		code, _, _ := d.nearside("", "get", "dp", "web-2")
		return code == command.ExitOK
	})
	if code, out, _ := d.nearside("", "inspect", "dataplanes"); code != command.ExitOK ||
		strings.Count(out, "disconnected") != 1 {
		t.Errorf("the stream that was open: exit code %d\n%s", code, out)
	}
}
