package sockets_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/host/sockets"
	"github.com/nearside-mesh/nearside/dns"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderVariable); dir != "" {
		os.Exit(holder(dir))
	}
	goleak.VerifyTestMain(m)
}

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

func do(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// node is a run directory with a holder. Its agents run one after another.
type node struct {
	t   *testing.T
	dir string
	log bytes.Buffer
}

func newNode(t *testing.T) *node {
	n := &node{t: t, dir: t.TempDir()}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- hold.Serve(ctx, n.dir, hold.ServeOptions{Ready: func() { close(ready) }}) }()
	select {
	case <-ready:
	case err := <-ended:
		stop()
		t.Fatalf("the holder has ended: %v", err)
	}
	t.Cleanup(func() { stop(); do(t, <-ended) })
	return n
}

// agent starts an agent. It returns the agent's Book and a function that ends the agent.
func (n *node) agent(given ...*os.File) (*sockets.Book, func()) {
	k := hold.Open(hold.Options{Dir: n.dir})
	end := sync.OnceFunc(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = k.Run(ctx)
	})
	n.t.Cleanup(end)
	return sockets.New(sockets.Options{Holder: k, Given: given, Log: slog.New(slog.NewTextHandler(&n.log, nil))}), end
}

func open(t *testing.T, b *sockets.Book, namespace string, addr netip.AddrPort, udp int) *sockets.Set {
	t.Helper()
	s, err := b.Open(t.Context(), namespace, addr, udp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// ask sends a packet from a new socket.
func ask(t *testing.T, to netip.AddrPort, text string) error {
	t.Helper()
	c, err := net.Dial("udp", to.String())
	do(t, err)
	defer c.Close()
	_, err = c.Write([]byte(text))
	return err
}

// waiting reads the queued packets of the sockets and returns their number.
func waiting(t *testing.T, s *sockets.Set) (n int) {
	t.Helper()
	for _, c := range s.UDP {
		for {
			raw, err := c.SyscallConn()
			do(t, err)
			var got error
			do(t, raw.Control(func(fd uintptr) {
				_, _, got = syscall.Recvfrom(int(fd), make([]byte, 100), syscall.MSG_DONTWAIT)
			}))
			if got != nil {
				break
			}
			n++
		}
	}
	return n
}

// TestTakenOver checks that queries wait in the sockets while no agent runs, even if the next agent
// would open another number of sockets.
func TestTakenOver(t *testing.T) {
	n := newNode(t)
	b, end := n.agent()
	s := open(t, b, sockets.Here, loopback, 3)
	if s.By() != "" || s.Held() {
		t.Errorf("held by %q before the call of Hold", s.By())
	}
	s.Hold(t.Context())
	if !strings.HasPrefix(s.By(), "nearside hold (pid ") || !s.Held() {
		t.Errorf("held by %q", s.By())
	}
	at := s.Addr()
	for _, want := range []int{1, 8, 2} { // what the next agents would open
		do(t, s.Close())
		end()
		const asked = 60
		for i := range asked {
			do(t, ask(t, at, fmt.Sprint(i)))
		}
		stream, err := net.Dial("tcp", at.String())
		do(t, err)
		defer stream.Close()
		b, end = n.agent()
		s = open(t, b, sockets.Here, loopback, want)
		if len(s.UDP) != 3 || s.Addr() != at {
			t.Fatalf("%d sockets on %s, want 3 on %s", len(s.UDP), s.Addr(), at)
		}
		do(t, b.ReleaseUnused())
		if got := waiting(t, s); got != asked {
			t.Errorf("%d of %d queries are there", got, asked)
		}
		c, err := s.TCP[0].Accept()
		do(t, err)
		_ = c.Close()
		s.Hold(t.Context())
	}
	do(t, s.Release())
	if s.Held() || s.By() != "" {
		t.Errorf("held by %q after its release", s.By())
	}
	do(t, s.Close())
	if err := errors.Join(ask(t, at, "x"), ask(t, at, "x")); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", at.String()); err == nil {
		t.Error("it is open after its release", c.Close())
	}
}

// TestOtherAddresses checks that held sockets of addresses that are no longer configured are
// released, and that sockets in use are not.
func TestOtherAddresses(t *testing.T) {
	n := newNode(t)
	b, end := n.agent()
	old, same := open(t, b, sockets.Here, netip.MustParseAddrPort("127.0.0.2:0"), 2), open(t, b, sockets.Here, loopback, 2)
	pod := open(t, b, "4711", netip.MustParseAddrPort("127.0.0.3:0"), 1)
	for _, s := range []*sockets.Set{old, same, pod} {
		s.Hold(t.Context())
		do(t, s.Close())
	}
	end()
	b, _ = n.agent()
	s := open(t, b, sockets.Here, loopback, 2)
	do(t, b.ReleaseUnused())
	gone := func(s *sockets.Set) bool {
		l, err := net.Listen("tcp", s.Addr().String())
		if err == nil {
			l.Close()
		}
		return err == nil
	}
	if !gone(old) || s.Addr() != same.Addr() || gone(pod) {
		t.Errorf("old address released: %v; new address %s, before %s; namespace released: %v",
			gone(old), s.Addr(), same.Addr(), gone(pod))
	}
	do(t, b.ReleaseNamespaces([]string{"4711"}))
	if gone(pod) {
		t.Error("the sockets of a namespace that is in use are released")
	}
	do(t, b.ReleaseNamespaces(nil))
	if !gone(pod) {
		t.Error("the sockets of a namespace that is not in use are still held")
	}
	if got, err := net.Dial("tcp", s.Addr().String()); err != nil {
		t.Error("a socket in use was released", err)
	} else {
		got.Close()
	}
}

// TestAddressHeldForNamespace checks that the resolver can open an address whose socket is held
// under the number of a namespace.
func TestAddressHeldForNamespace(t *testing.T) {
	n := newNode(t)
	b, end := n.agent()
	s := open(t, b, "4711", loopback, 1)
	at := s.Addr()
	do(t, s.Close())
	s = open(t, b, "4711", at, 1)
	s.Hold(t.Context())
	do(t, s.Close())
	end()
	b, _ = n.agent()
	if s := open(t, b, sockets.Here, at, 1); s.Addr() != at {
		t.Errorf("opened %s", s.Addr())
	}
}

// TestTwoAgents checks that an agent takes neither the sockets nor the queries of another agent,
// even while that one does not run.
func TestTwoAgents(t *testing.T) {
	one, two := newNode(t), newNode(t)
	b, end := one.agent()
	s := open(t, b, sockets.Here, loopback, 2)
	s.Hold(t.Context())
	do(t, s.Close())
	end()
	other, _ := two.agent()
	const asked = 100
	for i := range asked {
		done := make(chan error)
		go func() { done <- ask(t, s.Addr(), fmt.Sprint(i)) }()
		if got, err := other.Open(t.Context(), sockets.Here, s.Addr(), 4); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("the other agent has got %v, %v", got, err)
		}
		do(t, <-done)
	}
	if waits := open(t, other, sockets.Here, loopback, 1); waits.Addr() == s.Addr() {
		t.Error("the other agent has the same port")
	}
	b, _ = one.agent()
	if got := waiting(t, open(t, b, sockets.Here, loopback, 2)); got != asked {
		t.Errorf("%d of %d queries are there", got, asked)
	}
}

func file(t *testing.T, c interface{ File() (*os.File, error) }, name string) *os.File {
	t.Helper()
	f, err := c.File()
	do(t, err)
	defer f.Close()
	fd, err := syscall.Dup(int(f.Fd()))
	do(t, err)
	return os.NewFile(uintptr(fd), name)
}

// TestSocketUnit checks that sockets of systemd for the address are used and not held, and that
// missing sockets are opened.
func TestSocketUnit(t *testing.T) {
	for _, with := range []string{"udp", "tcp", "udp and tcp"} {
		t.Run(with, func(t *testing.T) {
			n := newNode(t)
			udp, tcp, err := dns.Listen(t.Context(), loopback, 1)
			do(t, err)
			at := tcp.Addr().(*net.TCPAddr).AddrPort()
			foreign, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 9)})
			do(t, err)
			given := []*os.File{file(t, foreign, sockets.UnitUDP)}
			if strings.Contains(with, "udp") {
				given = append(given, file(t, udp[0], sockets.UnitUDP))
			}
			if strings.Contains(with, "tcp") {
				given = append(given, file(t, tcp.(*net.TCPListener), sockets.UnitTCP))
			}
			do(t, udp[0].Close(), tcp.Close(), foreign.Close())
			if strings.Contains(with, "udp") {
				do(t, ask(t, at, "query"))
			}
			b, _ := n.agent(given...)
			s := open(t, b, sockets.Here, at, 2)
			do(t, b.ReleaseUnused())
			if s.Addr() != at || strings.Contains(with, "udp") && (len(s.UDP) != 1 || waiting(t, s) != 1) {
				t.Errorf("%d sockets for UDP on %s", len(s.UDP), s.Addr())
			}
			s.Hold(t.Context())
			want := "a socket unit of systemd"
			if by := s.By(); !strings.HasPrefix(by, want) || strings.Contains(by, "nearside hold") == (with == "udp and tcp") ||
				!s.Held() {
				t.Errorf("held by %q", by)
			}
			if log := n.log.String(); strings.Count(log, "matches no address of dns.listen") != 1 ||
				!strings.Contains(log, "127.0.0.9:") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// hostile is a holder that returns arbitrary files and refuses to hold any.
type hostile struct {
	t    *testing.T
	give func() *os.File
}

var errNo = errors.New("no")

func (h hostile) Hold(string, *os.File) error  { return errNo }
func (h hostile) Take(string) (*os.File, bool) { return h.give(), true }
func (h hostile) Release(string) error         { return errNo }
func (h hostile) ReleaseUnused(string) error   { return errNo }
func (h hostile) Names(string) []string {
	return []string{"dns/here/udp/127.0.0.1:0/0", "dns/", "dns/here", "dns/here/udp", "\xff"}
}
func (h hostile) Holds(string) bool             { return true }
func (h hostile) By(string) string              { return "" }
func (h hostile) file(name string) (f *os.File) { f, _ = os.Open(name); return f }
func (h hostile) udp(network, at string) *os.File {
	c, err := net.ListenPacket(network, at)
	do(h.t, err)
	defer c.Close()
	return file(h.t, c.(*net.UDPConn), "")
}

// TestHostileHolder checks that files from a holder that are not sockets of the address are not
// used, and that Open tries a limited number of them.
func TestHostileHolder(t *testing.T) {
	h := hostile{t: t}
	for name, give := range map[string]func() *os.File{
		"a file":           func() *os.File { return h.file("/etc/hostname") },
		"a device":         func() *os.File { return h.file("/dev/null") },
		"another address":  func() *os.File { return h.udp("udp4", "127.0.0.2:0") },
		"the other family": func() *os.File { return h.udp("udp6", "[::]:0") },
		"all addresses":    func() *os.File { return h.udp("udp4", "0.0.0.0:0") },
		"a unix socket": func() *os.File {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixgram"})
			do(t, err)
			defer c.Close()
			return file(t, c, "")
		},
		"a connected socket": func() *os.File {
			c, err := net.Dial("udp4", "127.0.0.1:9")
			do(t, err)
			defer c.Close()
			return file(t, c.(*net.UDPConn), "")
		},
		"a connection": func() *os.File {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			do(t, err)
			defer l.Close()
			c, err := net.Dial("tcp4", l.Addr().String())
			do(t, err)
			defer c.Close()
			return file(t, c.(*net.TCPConn), "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "the other family" && give() == nil {
				t.Skip("the host has no IPv6")
			}
			var log bytes.Buffer
			b := sockets.New(sockets.Options{Holder: hostile{t, give}, Log: slog.New(slog.NewTextHandler(&log, nil))})
			s := open(t, b, sockets.Here, loopback, 2)
			if len(s.UDP) != 2 || len(s.TCP) != 1 || s.Addr().Addr() != loopback.Addr() {
				t.Errorf("%d and %d sockets on %s", len(s.UDP), len(s.TCP), s.Addr())
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			s.Hold(ctx)
			if s.Held() || s.By() != "" || !strings.Contains(log.String(), "does not match its name") {
				t.Errorf("held by %q; log: %s", s.By(), &log)
			}
			if err := b.ReleaseUnused(); !errors.Is(err, errNo) {
				t.Error(err)
			}
		})
	}
}
