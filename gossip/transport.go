package gossip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/sync/semaphore"
)

// Limits of the transport.
const (
	maxDatagram    = 1232     // bytes; longer messages use a stream; 1,280 minus the headers of IPv6 and UDP
	maxFrame       = 2 << 20  // bytes of a message on a stream, including encryption overhead
	maxInbound     = 1024     // inbound connections
	maxInboundHost = 32       // inbound connections from one address
	inboundMemory  = 32 << 20 // bytes of messages being read from streams
	maxOutbound    = 1024     // outbound streams
	outboundMemory = 8 << 20  // bytes queued for one stream
	dialTimeout    = 3 * time.Second
	firstByte      = 5 * time.Second  // to send the first byte of a connection
	streamIdle     = 30 * time.Second // before the dialing node closes an idle stream
)

// streamByte is the first byte of a connection that carries a sequence of messages. Connections of
// memberlist begin with 244 (the label) or with a message type, which is below 20.
const streamByte = 0xa7

// viaStream is a prefix of an address name. It makes the transport use a stream for any length.
const viaStream = "stream:"

// transport carries memberlist's packets and connections. It has one UDP and one TCP socket for
// each address, all on the same port.
type transport struct {
	udp      []*net.UDPConn
	tcp      []*net.TCPListener
	packets  chan *memberlist.Packet
	conns    chan net.Conn
	ctx      context.Context
	end      context.CancelFunc
	wg       sync.WaitGroup
	memory   *semaphore.Weighted
	counters *transportCounters

	mu       sync.Mutex
	inbound  map[net.Conn]netip.Addr // mu
	outbound map[string]*stream      // mu; by address
}

type transportCounters struct {
	packetsIn, packetsOut, bytesIn, bytesOut                 atomic.Uint64
	streamsIn, streamsOut, refused, malformed, dropped, lost atomic.Uint64
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// listen opens the sockets. With port 0, the kernel selects one port for all addresses and for UDP.
func listen(bind []netip.AddrPort, tcpOnly bool, counters *transportCounters) (*transport, error) {
	var err error
	for range 10 { // the UDP port may be in use
		var t *transport
		if t, err = tryListen(bind, tcpOnly, counters); err == nil {
			return t, nil
		}
		if bind[0].Port() != 0 {
			break
		}
	}
	return nil, err
}

func tryListen(bind []netip.AddrPort, tcpOnly bool, counters *transportCounters) (*transport, error) {
	t := &transport{counters: counters, packets: make(chan *memberlist.Packet, 64), conns: make(chan net.Conn),
		memory:  semaphore.NewWeighted(inboundMemory),
		inbound: map[net.Conn]netip.Addr{}, outbound: map[string]*stream{}}
	t.ctx, t.end = context.WithCancel(context.Background())
	port := bind[0].Port()
	for _, b := range bind {
		network := "4"
		if b.Addr().Is6() {
			network = "6"
		}
		at := netip.AddrPortFrom(b.Addr(), max(b.Port(), port))
		l, err := net.ListenTCP("tcp"+network, net.TCPAddrFromAddrPort(at))
		if err != nil {
			t.closeSockets()
			return nil, fmt.Errorf("gossip: listen on TCP %s: %w", at, err)
		}
		t.tcp = append(t.tcp, l)
		port = l.Addr().(*net.TCPAddr).AddrPort().Port()
		if tcpOnly {
			continue
		}
		u, err := net.ListenUDP("udp"+network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.Addr(), port)))
		if err != nil {
			t.closeSockets()
			return nil, fmt.Errorf("gossip: listen on UDP %s: %w", netip.AddrPortFrom(b.Addr(), port), err)
		}
		t.udp = append(t.udp, u)
	}
	return t, nil
}

// start starts the goroutines that read the sockets.
func (t *transport) start() {
	for _, u := range t.udp {
		t.wg.Go(func() { t.readPackets(u) })
	}
	for _, l := range t.tcp {
		t.wg.Go(func() { t.accept(l) })
	}
}

func (t *transport) closeSockets() {
	for _, u := range t.udp {
		_ = u.Close()
	}
	for _, l := range t.tcp {
		_ = l.Close()
	}
}

// addr returns the first listening address.
func (t *transport) addr() netip.AddrPort { return t.tcp[0].Addr().(*net.TCPAddr).AddrPort() }

// FinalAdvertiseAddr returns the address to advertise to peers.
func (t *transport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	own := t.addr()
	if port == 0 {
		port = int(own.Port())
	}
	if ip != "" {
		a, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, 0, fmt.Errorf("gossip: advertised address %q is not an IP address", ip)
		}
		return a.AsSlice(), port, nil
	}
	if !own.Addr().IsUnspecified() {
		return own.Addr().AsSlice(), port, nil
	}
	a, err := advertisableAddr(own.Addr().Is4())
	if err != nil {
		return nil, 0, err
	}
	return a.AsSlice(), port, nil
}

// advertisableAddr selects the address of this host that peers can reach: a private address if
// there is one, else a public one, else the loopback address.
func advertisableAddr(v4 bool) (netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("gossip: addresses of this host: %w", err)
	}
	var best netip.Addr
	rank := -1
	for _, x := range all {
		p, err := netip.ParsePrefix(x.String())
		if err != nil || p.Addr().Is4() != v4 && !p.Addr().Is6() || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		r := 0
		switch a := p.Addr(); {
		case a.IsPrivate():
			r = 4
		case !a.IsLoopback():
			r = 2
		}
		if p.Addr().Is4() == v4 {
			r++
		}
		if r > rank {
			best, rank = p.Addr(), r
		}
	}
	if rank < 0 {
		return best, errors.New("gossip: this host has no address to advertise; set one")
	}
	return best, nil
}

// PacketCh returns packets received over UDP or a stream.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh returns inbound connections of memberlist.
func (t *transport) StreamCh() <-chan net.Conn { return t.conns }

// WriteTo sends a packet.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress sends a packet over UDP if it fits, else over a stream. Stream writes do not
// block; packets that cannot be queued are counted.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	t.counters.packetsOut.Add(1)
	t.counters.bytesOut.Add(uint64(len(b)))
	if len(t.udp) == 0 || len(b) > maxDatagram || strings.HasPrefix(a.Name, viaStream) {
		return time.Now(), t.writeStream(b, a.Addr)
	}
	to, err := netip.ParseAddrPort(a.Addr)
	if err != nil {
		return time.Time{}, fmt.Errorf("gossip: address %q: %w", a.Addr, err)
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	for _, u := range t.udp {
		if local := u.LocalAddr().(*net.UDPAddr).AddrPort().Addr(); local.Unmap().Is4() == to.Addr().Is4() {
			_, err := u.WriteToUDPAddrPort(b, to)
			return time.Now(), err
		}
	}
	return time.Time{}, fmt.Errorf("gossip: no socket for %s: this node has no address of that family", to)
}

// DialTimeout connects to a peer.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return (&net.Dialer{Timeout: min(timeout, dialTimeout)}).DialContext(t.ctx, "tcp", addr)
}

// DialAddressTimeout connects to a peer.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// Shutdown closes all sockets and connections and waits for their goroutines.
func (t *transport) Shutdown() error {
	t.closeSockets()
	t.mu.Lock()
	t.end() // no new streams from here on
	for c := range t.inbound {
		_ = c.Close()
	}
	t.mu.Unlock()
	t.wg.Wait()
	return nil
}

func (t *transport) readPackets(u *net.UDPConn) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := u.ReadFromUDPAddrPort(buf)
		now := time.Now()
		if err != nil {
			if t.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an ICMP error for an earlier packet
		}
		t.deliver(append(make([]byte, 0, n), buf[:n]...), net.UDPAddrFromAddrPort(from), now)
	}
}

// deliver passes a packet to memberlist.
func (t *transport) deliver(b []byte, from net.Addr, now time.Time) {
	t.counters.packetsIn.Add(1)
	t.counters.bytesIn.Add(uint64(len(b)))
	if len(b) == 0 {
		t.counters.malformed.Add(1)
		return
	}
	select {
	case t.packets <- &memberlist.Packet{Buf: b, From: from, Timestamp: now}:
	case <-t.ctx.Done():
	}
}

func (t *transport) accept(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		switch {
		case t.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				_ = c.Close()
			}
			return
		case err != nil: // too many open files; retry when some may have been closed
			select {
			case <-time.After(100 * time.Millisecond):
			case <-t.ctx.Done():
				return
			}
			continue
		case !t.admit(c):
			t.counters.refused.Add(1)
			_ = c.Close()
			continue
		}
		t.wg.Go(func() { t.serve(c) })
	}
}

// admit registers a connection. It returns false if a limit is reached.
func (t *transport) admit(c *net.TCPConn) bool {
	from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	t.mu.Lock()
	defer t.mu.Unlock()
	same := 0
	for _, a := range t.inbound {
		if a == from {
			same++
		}
	}
	if len(t.inbound) >= maxInbound || same >= maxInboundHost && !from.IsLoopback() || t.ctx.Err() != nil {
		return false
	}
	t.inbound[c] = from
	return true
}

func (t *transport) forget(c net.Conn) {
	t.mu.Lock()
	delete(t.inbound, c)
	t.mu.Unlock()
}

// serve reads the first byte of a connection to tell message streams from memberlist's connections.
func (t *transport) serve(c *net.TCPConn) {
	t.counters.streamsIn.Add(1)
	var first [1]byte
	_ = c.SetReadDeadline(time.Now().Add(firstByte))
	if _, err := io.ReadFull(c, first[:]); err != nil {
		t.forget(c)
		_ = c.Close()
		return
	}
	if first[0] == streamByte {
		t.readStream(c)
		t.forget(c)
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	select {
	case t.conns <- &peekedConn{TCPConn: c, first: first[:], closed: func() { t.forget(c) }}: // memberlist closes it
	case <-t.ctx.Done():
		t.forget(c)
		_ = c.Close()
	}
}

// peekedConn is a connection whose first byte was already read.
type peekedConn struct {
	*net.TCPConn
	first  []byte
	closed func()
}

// Read returns the peeked byte first.
func (c *peekedConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 && len(b) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.TCPConn.Read(b)
}

// Close unregisters and closes the connection.
func (c *peekedConn) Close() error {
	c.closed()
	return c.TCPConn.Close()
}
