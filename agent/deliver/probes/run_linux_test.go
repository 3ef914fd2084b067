package probes

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// workload serves connections until the test ends, and answers with a text. It returns its address.
func workload(t *testing.T, l net.Listener, text string) netip.AddrPort {
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 4096)
				if n, _ := c.Read(b); strings.Contains(string(b[:n]), "GET /hang ") {
					_, _ = io.Copy(io.Discard, c)
				}
				_, _ = io.WriteString(c, text)
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestRun probes real sockets in the network namespace of the test.
func TestRun(t *testing.T) {
	gone := listen(t)
	refused := netip.MustParseAddrPort(gone.Addr().String())
	ok := workload(t, listen(t), "HTTP/1.1 204 No Content\r\n\r\n")
	moved := workload(t, listen(t), "HTTP/1.0 302 Found\r\n\r\n")
	sick := workload(t, listen(t), "HTTP/1.1 503 Service Unavailable\r\n\r\n")
	other := workload(t, listen(t), strings.Repeat("SSH-2.0 ", 1000))
	gone.Close() // after the others are open, so that none of them has its port
	self := access.Peer{Local: true, PID: int32(os.Getpid())}
	for _, c := range []struct {
		name  string
		peer  access.Peer
		probe resource.Probe
		want  string // part of the error; "": none
	}{
		{"TCP", self, resource.Probe{Workload: ok}, ""},
		{"TCP with redirection", self, resource.Probe{Workload: ok, Redirected: true}, ""},
		{"TCP, refused", self, resource.Probe{Workload: refused}, "refused"},
		{"HTTP", self, resource.Probe{Workload: ok, Path: "/ready?a=b"}, ""},
		{"HTTP, moved", self, resource.Probe{Workload: moved, Path: "/"}, ""},
		{"HTTP, unavailable", self, resource.Probe{Workload: sick, Path: "/ready"}, "GET /ready: status 503"},
		{"HTTP, another protocol", self, resource.Probe{Workload: other, Path: "/"}, "read the response"},
		{"HTTP, hanging", self, resource.Probe{Workload: ok, Path: "/hang"}, "timeout"},
		{"another host", access.Peer{Addr: "192.0.2.1:1"}, resource.Probe{Workload: ok}, "not visible"},
		{"another PID namespace", access.Peer{Local: true}, resource.Probe{Workload: ok}, "not visible"},
		{"no such process", access.Peer{Local: true, PID: 1 << 30}, resource.Probe{Workload: ok}, "no such file"},
	} {
		patience := 2 * time.Minute // also on a busy machine
		if c.want == "timeout" {
			patience = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := run(ctx, c.peer, &c.probe)
		cancel()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		var ns *NamespaceError
		if errors.As(err, &ns) != (c.peer.PID != self.PID) {
			t.Errorf("%s: %v is a namespace error: %t", c.name, err, errors.As(err, &ns))
		}
	}
}

// TestRunInNamespace probes a workload in the network namespace of another process. The same
// address leads nowhere in the namespace of the test.
func TestRunInNamespace(t *testing.T) {
	cmd := exec.Command("unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		t.Skipf("cannot create a network namespace: %v", err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
		t.Skipf("cannot create a network namespace: %v", err)
	}
	ns, err := intercept.OpenNamespace("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/net")
	if err != nil {
		t.Skip(err)
	}
	defer ns.Close()
	var l net.Listener
	if err := ns.Do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		t.Fatal(err)
	}
	at := workload(t, l, "HTTP/1.1 200 OK\r\n\r\n")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	there, here := access.Peer{Local: true, PID: int32(cmd.Process.Pid)}, access.Peer{Local: true, PID: int32(os.Getpid())}
	for _, path := range []string{"", "/ready"} {
		p := resource.Probe{Workload: at, Path: path}
		if err := run(ctx, there, &p); err != nil {
			t.Errorf("path %q: %v", path, err)
		}
		if err := run(ctx, here, &p); err == nil {
			t.Errorf("path %q: the probe reached another namespace", path)
		}
	}
	_ = l.Close()
	var ne *NamespaceError
	if err := run(ctx, there, &resource.Probe{Workload: at}); err == nil || errors.As(err, &ne) {
		t.Errorf("a closed port: %v", err)
	}
}
