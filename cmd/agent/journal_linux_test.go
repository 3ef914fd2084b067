package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestJournal checks that an agent that logs to the journal writes the priority of each line
// without a time, and that other logs are unchanged.
func TestJournal(t *testing.T) {
	var b bytes.Buffer
	for _, c := range []struct{ format, want string }{
		{"text",
			"<7>level=DEBUG msg=a x.k=1\n<6>level=INFO msg=a x.k=1\n<4>level=WARN msg=a x.k=1\n<3>level=ERROR msg=a x.k=1\n"},
		{"json", `<7>{"level":"DEBUG","msg":"a","x":{"k":1}}` + "\n" + `<6>{"level":"INFO","msg":"a","x":{"k":1}}` + "\n" +
			`<4>{"level":"WARN","msg":"a","x":{"k":1}}` + "\n" + `<3>{"level":"ERROR","msg":"a","x":{"k":1}}` + "\n"},
	} {
		b.Reset()
		log := newLog(&b, c.format, slog.LevelDebug, true).WithGroup("x").With("k", 1)
		for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			log.Log(t.Context(), l, "a")
		}
		if b.String() != c.want {
			t.Errorf("%s: %s", c.format, &b)
		}
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	sys := st.Sys().(*syscall.Stat_t)
	for stream, want := range map[string]bool{
		fmt.Sprintf("%d:%d", sys.Dev, sys.Ino): true, fmt.Sprintf("%d:%d", sys.Dev, sys.Ino+1): false, "": false, "1": false,
		"a:b": false, "-1:2": false,
	} {
		if got := toJournal(stream, f); got != want {
			t.Errorf("JOURNAL_STREAM=%q: %v", stream, got)
		}
	}
}

// TestSocketActivation starts an agent with sockets that another process opened, as systemd does,
// and stops it. Clients that connect while no agent runs must be served by the next agent, and the
// sockets must remain.
func TestSocketActivation(t *testing.T) {
	dir := quickTemp(t)
	if err := os.Mkdir(dir+"/run", 0o750); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	var files []*os.File
	for _, l := range []net.Listener{
		listenAt(t, dir+"/run/nearside.sock"), listenAt(t, dir+"/run/xds.sock"), listenAt(t, dir+"/run/unused.sock"), tcp,
	} {
		f, err := l.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	receiver := "accessLog.receivers=[{name: a, address: '" + tcp.Addr().String() + "', file: a.log}]"
	activate := func(c *exec.Cmd) {
		c.ExtraFiles = files
		// LISTEN_PID must be the PID of the agent, which replaces the shell.
		c.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec nearside "$@"`, "sh"}, c.Args[1:]...)
		c.Path = "/bin/sh"
		c.Env = append(os.Environ(), "LISTEN_FDS=4", "LISTEN_FDNAMES=api:xds:xds:log")
	}
	for range 2 {
		early, err := net.Dial("unix", dir+"/run/nearside.sock") // before the agent starts
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(early, "GET /readyz HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		line, err := net.Dial("tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(line, "a line"); err != nil {
			t.Fatal(err)
		}
		line.Close()
		d := launch(t, dir, activate, receiver)
		d.says("the agent is ready", `address=unix:`+dir+`/run/unused.sock`)
		_ = early.SetReadDeadline(time.Now().Add(patience))
		answer := make([]byte, 15)
		if _, err := early.Read(answer); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 200") {
			t.Errorf("answer %q, %v", answer, err)
		}
		early.Close()
		if st, err := os.Stat(dir + "/run/xds.sock"); err != nil || st.Mode().Perm() != 0o660 {
			t.Errorf("the mode of the config is not that of the socket: %v %v", st, err)
		}
		if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-d.ended
		if d.err != nil {
			t.Errorf("the agent ended with %v", d.err)
		}
		if _, err := os.Stat(dir + "/run/nearside.sock"); err != nil {
			t.Errorf("the socket is gone with the agent: %v", err)
		}
	}
	b, err := os.ReadFile(dir + "/logs/a.log")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if got := string(b); got != "a line\na line\n" {
		t.Errorf("the receiver has %q", got)
	}
}

func listenAt(t *testing.T, path string) net.Listener {
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
