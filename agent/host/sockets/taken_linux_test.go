package sockets_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/host/sockets"
)

// holderVariable is the environment variable that makes the test binary a holder of a directory.
const holderVariable = "TEST_HOLDER"

// holder runs a holder of a directory until its standard input ends.
func holder(dir string) int {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	ready := func() { _, _ = os.Stdout.WriteString("ready\n") }
	if err := hold.Serve(ctx, dir, hold.ServeOptions{Ready: ready}); err != nil {
		return 1
	}
	return 0
}

// without calls f on a thread without CAP_NET_ADMIN. The thread ends afterwards.
func without(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		if err == nil {
			data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
			err = unix.Capset(&header, &data[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	do(t, <-done)
}

// buffer returns the size of a receive buffer in bytes.
func buffer(t *testing.T, c *net.UDPConn) (size int) {
	t.Helper()
	raw, err := c.SyscallConn()
	do(t, err)
	do(t, raw.Control(func(fd uintptr) { size, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF) }), err)
	return size / 2
}

// TestBuffers checks that new and held sockets get large receive buffers, and that a warning names
// the limit of the system if it prevents that.
func TestBuffers(t *testing.T) {
	b, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	do(t, err)
	limit, err := strconv.Atoi(strings.TrimSpace(string(b)))
	do(t, err)
	n := newNode(t)
	small, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(loopback))
	do(t, err)
	defer small.Close()
	book, end := n.agent(file(t, small, sockets.UnitUDP))
	s := open(t, book, sockets.Here, small.LocalAddr().(*net.UDPAddr).AddrPort(), 1)
	if os.Geteuid() == 0 && buffer(t, s.UDP[0]) != sockets.BufferSize {
		t.Errorf("a given socket has %d bytes", buffer(t, s.UDP[0]))
	}
	end()
	without(t, func() {
		book, _ := n.agent()
		s := open(t, book, sockets.Here, loopback, 2)
		for _, c := range s.UDP {
			if got, want := buffer(t, c), min(limit, sockets.BufferSize); got != want {
				t.Errorf("without the capability: %d bytes, want %d", got, want)
			}
		}
	})
	warned := strings.Contains(n.log.String(), "set net.core.rmem_max to 4194304")
	if warned != (limit < sockets.BufferSize) {
		t.Errorf("limit %d, and the log is %s", limit, &n.log)
	}
}

// TestOtherNamespace checks that a held socket of another network namespace is not used, even
// without CAP_NET_ADMIN, and that one of the agent's own namespace is.
func TestOtherNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can create network namespaces")
	}
	n := newNode(t)
	at := netip.MustParseAddrPort("0.0.0.0:15999")
	book, end := n.agent()
	opened := make(chan *sockets.Set)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			close(opened)
			return
		}
		s, err := book.Open(t.Context(), sockets.Here, at, 1)
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	s := <-opened
	if s == nil {
		t.FailNow()
	}
	s.Hold(t.Context())
	do(t, s.Close())
	end()
	for _, capable := range []bool{false, true} {
		check := func() {
			book, end := n.agent()
			defer end()
			s := open(t, book, sockets.Here, at, 1)
			c, err := net.Dial("tcp", "127.0.0.1:15999")
			if err != nil {
				t.Errorf("capable %v: the socket is not in this namespace: %v", capable, err)
			} else {
				_ = c.Close()
			}
			s.Hold(t.Context())
			do(t, s.Close())
		}
		if n.log.Reset(); capable {
			check()
		} else {
			without(t, check)
		}
		if refused := strings.Contains(n.log.String(), "another network namespace"); refused == capable {
			t.Errorf("capable %v: %s", capable, &n.log) // the second agent finds the socket of the first one
		}
	}
}

// TestWildcardAddress checks that sockets that an earlier agent left at all addresses do not
// prevent one of them, and the other way round.
func TestWildcardAddress(t *testing.T) {
	n := newNode(t)
	book, end := n.agent()
	// A port that is free at all addresses: a connection from another address may have one that is
	// free at loopback.
	s := open(t, book, sockets.Here, netip.MustParseAddrPort("0.0.0.0:0"), 1)
	port := s.Addr().Port()
	do(t, s.Close())
	for _, ip := range []string{"0.0.0.0", "127.0.0.1", "0.0.0.0"} {
		at := netip.AddrPortFrom(netip.MustParseAddr(ip), port)
		s, err := book.Open(t.Context(), sockets.Here, at, 1)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		s.Hold(t.Context())
		do(t, s.Close(), book.ReleaseUnused())
		end()
		book, end = n.agent()
	}
}

// TestOtherHolder checks that the holder that has an address is found with its run directory,
// unless an agent has the address too, and that the address is free once that holder ends.
func TestOtherHolder(t *testing.T) {
	dir := t.TempDir()
	program, err := os.Executable()
	do(t, err)
	cmd := exec.Command(program)
	cmd.Args, cmd.Env = []string{"nearside", "hold", "--dir", dir}, []string{holderVariable + "=" + dir}
	in, err := cmd.StdinPipe()
	do(t, err)
	out, err := cmd.StdoutPipe()
	do(t, err, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	_, err = bufio.NewReader(out).ReadString('\n')
	do(t, err)

	k := hold.Open(hold.Options{Dir: dir})
	first := sockets.New(sockets.Options{Holder: k})
	s := open(t, first, sockets.Here, loopback, 2)
	at := s.Addr()
	s.Hold(t.Context())
	do(t, s.Close())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	do(t, k.Run(gone))
	second, _ := newNode(t).agent()
	_, err = second.Open(t.Context(), sockets.Here, at, 1)
	want := "nearside hold (pid " + strconv.Itoa(cmd.Process.Pid) + ", run directory " + dir + ")"
	if by := sockets.OtherHolder(at); by != want || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v; held by %q, want %s", err, by, want)
	}
	owner := open(t, sockets.New(sockets.Options{Holder: hold.Open(hold.Options{Dir: dir})}), sockets.Here, loopback, 2)
	if by := sockets.OtherHolder(at); by != "" {
		t.Errorf("held by %q, and the agent runs", by)
	}
	do(t, owner.Close())
	do(t, in.Close(), cmd.Wait())
	if s := open(t, second, sockets.Here, at, 1); s.Addr() != at {
		t.Errorf("opened %s", s.Addr())
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	do(t, err)
	defer l.Close()
	if by := sockets.OtherHolder(l.Addr().(*net.TCPAddr).AddrPort()); by != "" {
		t.Errorf("an address of another program: held by %q", by)
	}
}
