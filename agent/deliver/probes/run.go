package probes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// NamespaceError means that a probe could not run in the network namespace of the Envoy. It says
// nothing about the workload.
type NamespaceError struct{ err error }

func (e *NamespaceError) Error() string {
	return "the network namespace of its Envoy cannot be entered: " + e.err.Error()
}
func (e *NamespaceError) Unwrap() error { return e.err }

// Addresses from which Envoy connects to workloads whose traffic is redirected. The redirection
// excludes them.
var (
	sourceV4 = netip.MustParseAddr("127.0.0.6")
	sourceV6 = netip.MustParseAddr("::6")
)

// run probes a workload in the network namespace of its Envoy.
func run(ctx context.Context, peer access.Peer, p *resource.Probe) error {
	c, err := dial(ctx, peer, p)
	if err != nil {
		return err
	}
	defer c.Close()
	if p.Path == "" {
		return nil
	}
	if at, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(at)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return request(c, p)
}

// maxStatusLine is the size of the largest status line.
const maxStatusLine = 1024

// request sends an HTTP request, and succeeds for a status of 200 to 399.
func request(c net.Conn, p *resource.Probe) error {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: nearside\r\nAccept: */*\r\n"+
		"Connection: close\r\n\r\n", p.Path, p.Workload); err != nil {
		return fmt.Errorf("send a request: %w", err)
	}
	line, err := bufio.NewReaderSize(io.LimitReader(c, maxStatusLine), maxStatusLine).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	var minor, status int
	if _, err := fmt.Sscanf(line, "HTTP/1.%d %d", &minor, &status); err != nil {
		return errors.New("the response is not HTTP/1.1")
	}
	if status < 200 || status > 399 {
		return fmt.Errorf("GET %s: status %d", p.Path, status)
	}
	return nil
}

// dial connects to a workload from where its Envoy does.
func dial(ctx context.Context, peer access.Peer, p *resource.Probe) (net.Conn, error) {
	var d net.Dialer
	if p.Redirected {
		source := sourceV6
		if p.Workload.Addr().Is4() {
			source = sourceV4
		}
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	if !peer.Local || peer.PID <= 0 {
		return nil, &NamespaceError{errors.New("its process is not visible, because it is in another PID namespace or on " +
			"another host")}
	}
	pid := strconv.Itoa(int(peer.PID))
	own, err := inode("/proc/thread-self/net/dev")
	if err != nil {
		return nil, &NamespaceError{err}
	}
	other, err := inode("/proc/" + pid + "/net/dev")
	switch {
	case err != nil:
		return nil, &NamespaceError{err}
	case own == other:
		return d.DialContext(ctx, "tcp", p.Workload.String())
	}
	ns, err := intercept.OpenNamespace("/proc/" + pid + "/ns/net")
	if err != nil {
		return nil, &NamespaceError{err}
	}
	defer ns.Close()
	var c net.Conn
	entered := false
	err = ns.Do(func() (err error) {
		entered = true
		c, err = d.DialContext(ctx, "tcp", p.Workload.String())
		return err
	})
	if err != nil && !entered {
		return nil, &NamespaceError{err}
	}
	return c, err
}

// inode returns the inode of a file below /proc/PID/net, which identifies the network namespace. It
// needs no privileges, unlike /proc/PID/ns/net.
func inode(path string) (uint64, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return st.Sys().(*syscall.Stat_t).Ino, nil
}
