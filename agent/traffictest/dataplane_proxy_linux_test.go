package traffictest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/envoy"
	"github.com/nearside-mesh/nearside/agent/envoy/match"
)

// dataplane is a proxy as far as what leaves a workload goes: it takes its config from a running agent, opens the
// listeners, sniffs what clients say where listener filters do, goes the way that the engine of package match finds, and
// carries the bytes to where the cluster leads.
type dataplane struct {
	ns      *netns
	resolve func(name string) []netip.Addr // in place of the DNS
	// inspection takes the place of listener_filters_timeout, which is 15 s by default.
	inspection time.Duration
	http       *http.Server
	toHTTP     *handoff

	wg     sync.WaitGroup
	mu     sync.Mutex
	closed bool
	config *match.Config // for one goroutine at a time
	parts  *envoy.Snapshot
	ports  map[string]net.Listener // by name of the listener
	opened int                     // how many in all
	conns  map[net.Conn]bool
	traces map[netip.AddrPort]*match.Trace // the last one, by client
}

// runDataplane starts a proxy in a namespace.
func runDataplane(t *testing.T, ns *netns, conn *grpc.ClientConn, node string, resolve func(string) []netip.Addr) *dataplane {
	t.Helper()
	d := &dataplane{
		ns: ns, resolve: resolve, inspection: 200 * time.Millisecond, toHTTP: &handoff{conns: make(chan net.Conn), ended: make(chan struct{})},
		ports: map[string]net.Listener{}, conns: map[net.Conn]bool{}, traces: map[netip.AddrPort]*match.Trace{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := subscribe(ctx, conn, &core.Node{Id: node, UserAgentName: "envoy"}, d.Take)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	d.http = newHTTPServer(d)
	d.wg.Go(func() {
		if err := s.run(); ctx.Err() == nil {
			t.Errorf("the stream of %s: %v", node, err)
		}
	})
	d.wg.Go(func() { _ = d.http.Serve(d.toHTTP) })
	t.Cleanup(func() {
		cancel()
		d.close()
	})
	return d
}

// take puts a config in force: listeners that bind are opened, and those that are gone closed.
func (d *dataplane) Take(s *envoy.Snapshot) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parts, d.config = s, match.Open(s, nil)
	wanted := map[string]bool{}
	for _, r := range s[envoy.KindListener] {
		m := &listenerv3.Listener{}
		if err := proto.Unmarshal(r.Body, m); err != nil {
			return err
		}
		if m.GetTrafficDirection() != core.TrafficDirection_OUTBOUND || m.GetBindToPort() != nil && !m.GetBindToPort().GetValue() {
			continue
		}
		wanted[r.Name] = true
		if d.ports[r.Name] != nil || d.closed {
			continue
		}
		at := m.GetAddress().GetSocketAddress()
		l, err := d.listen(netip.AddrPortFrom(netip.MustParseAddr(at.GetAddress()), uint16(at.GetPortValue())))
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		d.ports[r.Name] = l
		d.opened++
		d.wg.Go(func() { d.accept(l) })
	}
	for name, l := range d.ports {
		if !wanted[name] {
			l.Close()
			delete(d.ports, name)
		}
	}
	return nil
}

func (d *dataplane) listen(at netip.AddrPort) (l net.Listener, err error) {
	network := "tcp6"
	if at.Addr().Is4() {
		network = "tcp4"
	}
	d.ns.do(func() { l, err = net.Listen(network, at.String()) })
	return l, err
}

func (d *dataplane) close() {
	d.mu.Lock()
	d.closed = true
	for _, l := range d.ports {
		l.Close()
	}
	for c := range d.conns {
		c.Close()
	}
	d.mu.Unlock()
	d.http.Close()
	d.wg.Wait()
}

// hold keeps a connection for close, and reports whether it is in time.
func (d *dataplane) hold(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		c.Close()
		return false
	}
	d.conns[c] = true
	return true
}

func (d *dataplane) release(c net.Conn) {
	c.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}

func (d *dataplane) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if tcp, ok := c.(*net.TCPConn); ok && d.hold(c) {
			d.wg.Go(func() { d.serve(tcp) })
		}
	}
}

// serve takes a connection to its end.
func (d *dataplane) serve(c *net.TCPConn) {
	handed := false
	defer func() {
		if !handed {
			d.release(c)
		}
	}()
	local, remote := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	seen := &match.Conn{Dst: originalDst(c, local), Entry: local, Src: remote, First: match.ServerFirst}
	rest := &replayed{Conn: c, r: c, seen: seen}
	// What the client says is looked at where something on the way waits for it, and nowhere else.
	trace := d.follow(seen, nil)
	if trace.Outcome == match.TimedOut || trace.Outcome == match.Broken && trace.At == match.LevelNetworkFilter {
		if trace.Outcome == match.TimedOut {
			_ = c.SetReadDeadline(time.Now().Add(d.inspection))
		}
		said, err := sniff(c)
		_ = c.SetReadDeadline(time.Time{})
		if err != nil {
			return
		}
		seen.First, seen.SNI, seen.ALPN = said.first, said.sni, said.alpn
		rest.r = io.MultiReader(readerOf(said.read), c)
		trace = d.follow(seen, nil)
	}
	switch trace.Outcome {
	case match.Accepted:
		handed = d.toHTTP.give(&released{rest, func() { d.release(c) }})
	case match.Forwarded:
		up, err := d.dial(&trace.Targets[0], seen)
		if err != nil {
			return
		}
		if d.hold(up) {
			pipe(rest, up)
			d.release(up)
		}
	}
}

// follow asks the engine what becomes of a connection or a request, and keeps the answer.
func (d *dataplane) follow(c *match.Conn, r *match.Request) *match.Trace {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out *match.Trace
	if r == nil {
		out = d.config.Connection(c)
	} else {
		out = d.config.Request(c, r)
	}
	d.traces[c.Src] = out
	return out
}

// trace is what became of the connection of a client, with its last request.
func (d *dataplane) trace(client netip.AddrPort) *match.Trace {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.traces[client]
}

// originalDst is what the client dialled before a redirection of the kernel, else where it has come to.
func originalDst(c *net.TCPConn, local netip.AddrPort) netip.AddrPort {
	const soOriginalDst = 80 // of netfilter, for both families
	out := local
	raw, err := c.SyscallConn()
	if err != nil {
		return out
	}
	_ = raw.Control(func(fd uintptr) {
		if local.Addr().Is4() { // a sockaddr_in in the place of another struct of that size
			if a, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, soOriginalDst); err == nil {
				b := a.Multiaddr
				out = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8+uint16(b[3]))
			}
			return
		}
		if a, err := unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, soOriginalDst); err == nil {
			out = netip.AddrPortFrom(netip.AddrFrom16(a.Addr.Addr), a.Addr.Port<<8|a.Addr.Port>>8)
		}
	})
	return out
}

// addrPort reads the address of a socket, an IPv4 address as such.
func addrPort(a net.Addr) netip.AddrPort {
	out := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(out.Addr().Unmap().WithZone(""), out.Port())
}

// pipe carries bytes both ways until both sides are done.
func pipe(a, b net.Conn) {
	var wg sync.WaitGroup
	carry := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil && !errors.Is(err, net.ErrClosed) {
			to.Close() // a reset on one side is one on the other
		}
		if w, ok := to.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
	}
	wg.Go(func() { carry(b, a) })
	carry(a, b)
	wg.Wait()
}
