package agent_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// sendLines sends text over a connection and waits until the agent has read it.
func sendLines(t *testing.T, network, address, text string) {
	t.Helper()
	c, err := net.Dial(network, address)
	agenttest.Do(t, err)
	defer c.Close()
	_, err = io.WriteString(c, text)
	agenttest.Do(t, err, c.(interface{ CloseWrite() error }).CloseWrite())
	_, _ = io.Copy(io.Discard, c)
}

// received waits until each receiver has stored the given number of lines.
func received(t *testing.T, r *agenttest.Running, want ...uint64) {
	t.Helper()
	agenttest.Eventually(t, fmt.Sprintf("%v lines are stored", want), func() bool {
		for i, s := range r.Receivers() {
			if s.Written != want[i] {
				return false
			}
		}
		return true
	})
}

// TestReceivers checks that lines received over TCP and over a Unix socket are written to files and
// counted, and that the files remain after the agent stops.
func TestReceivers(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	r := agenttest.Up(t, dir, agent.Deps{},
		`accessLog.receivers=[{name: tcp, address: "127.0.0.1:0", file: tcp/a.log}, {name: local, address: "unix:in.sock", file: local.log, mode: "0600", group: ""}]`)
	sendLines(t, "tcp", r.Receivers()[0].Address, "one\ntwo\r\nhalf")
	sendLines(t, "unix", filepath.Join(dir, "run", "in.sock"), "three\n")
	received(t, r, 3, 1)
	if st, err := os.Stat(filepath.Join(dir, "run", "in.sock")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", st, err)
	}
	labels := func(name string) string {
		i := slices.IndexFunc(r.Receivers(), func(x logs.ReceiverStatus) bool { return x.Name == name })
		return fmt.Sprintf(`{destination="file %s",kind="receiver",receiver="%s"} `, r.Receivers()[i].File, name)
	}
	for _, want := range []string{"nearside_log_records_total" + labels("tcp") + "3",
		"nearside_log_records_total" + labels("local") + "1", "nearside_log_bytes_total" + labels("tcp") + "13",
		"nearside_log_file_bytes 20", `nearside_log_rotations_total{cause="size"} 0`} {
		agenttest.Eventually(t, want+" is in /metrics", func() bool {
			_, metrics := r.Request("GET", "http://nearside/metrics", "")
			return strings.Contains(metrics, want+"\n")
		})
	}
	if status, body := r.Request("GET", "http://nearside/readyz?verbose", ""); status != 200 ||
		!strings.Contains(body, "all lines go where they are to go") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	open, err := net.Dial("tcp", r.Receivers()[0].Address)
	agenttest.Do(t, err)
	defer open.Close()
	_, err = io.WriteString(open, "last\n")
	agenttest.Do(t, err)
	go func() {
		_, _ = open.Read(make([]byte, 1)) // returns when the agent closes the connection
		open.Close()
	}()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	for file, want := range map[string]string{"tcp/a.log": "one\ntwo\r\nhalf\nlast\n", "local.log": "three\n"} {
		got, err := os.ReadFile(filepath.Join(dir, "logs", file))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "run", "in.sock")); err == nil {
		t.Error("the socket is still there")
	}
}

// TestReceiverThatCannotBeOpened checks that a log directory that is a symbolic link of another
// user and a port in use degrade the agent but do not stop it. After they are fixed, lines must be
// received.
func TestReceiverThatCannotBeOpened(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755), os.Mkdir(filepath.Join(dir, "logs"), 0o750),
		os.Symlink(t.TempDir(), filepath.Join(dir, "logs", "link")))
	if os.Geteuid() == 0 {
		agenttest.Do(t, os.Lchown(filepath.Join(dir, "logs", "link"), 12345, -1))
	}
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", freePort(t)))
	agenttest.Do(t, err)
	defer taken.Close()
	r := agenttest.Up(t, dir, agent.Deps{}, fmt.Sprintf(
		`accessLog.receivers=[{name: a, address: "127.0.0.1:0", file: link/a.log}, {name: b, address: "%s", file: b.log},
		{name: c, address: "127.0.0.2:0", file: c.log, tls: {cert: no, key: no}}]`, taken.Addr()))
	status, body := r.Request("GET", "http://nearside/readyz?verbose", "")
	for _, want := range []string{
		"receiver a: file: ", "link is a symbolic link", "receiver b: address: another process listens on ",
		"receiver c: tls.cert and tls.key: ",
	} {
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("/readyz: %d, %q is not in %s", status, want, body)
		}
	}
	agenttest.Do(t, os.Remove(filepath.Join(dir, "logs", "link")), taken.Close())
	agenttest.Eventually(t, "both are received", func() bool {
		return r.Receivers()[0].Health == "" && r.Receivers()[1].Health == ""
	})
	for _, s := range r.Receivers()[:2] {
		sendLines(t, "tcp", s.Address, "line\n")
	}
	received(t, r, 1, 1, 0)
}
