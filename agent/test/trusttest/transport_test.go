package trusttest_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// transport carries the packets and streams of a hostile member over its own sockets.
type transport struct {
	udp     *net.UDPConn
	tcp     *net.TCPListener
	packets chan *memberlist.Packet
	conns   chan net.Conn
	ctx     context.Context
	end     context.CancelFunc
	wg      sync.WaitGroup
}

// streamMark is the first byte of a connection with frames of the pool.
const streamMark = 0xa7

func newTransport() (*transport, error) {
	t := &transport{packets: make(chan *memberlist.Packet, 64), conns: make(chan net.Conn)}
	t.ctx, t.end = context.WithCancel(context.Background())
	loopback := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	var err error
	for range 10 { // the port may be in use for UDP
		if t.tcp, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(loopback)); err != nil {
			return nil, err
		}
		if t.udp, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(t.addr())); err == nil {
			t.wg.Go(t.readPackets)
			t.wg.Go(t.accept)
			return t, nil
		}
		_ = t.tcp.Close()
	}
	return nil, err
}

func (t *transport) addr() netip.AddrPort { return t.tcp.Addr().(*net.TCPAddr).AddrPort() }

func (t *transport) readPackets() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := t.udp.ReadFromUDP(buf)
		if err != nil {
			if t.ctx.Err() != nil {
				return
			}
			continue
		}
		t.deliver(append([]byte{}, buf[:n]...), from)
	}
}

func (t *transport) deliver(b []byte, from net.Addr) {
	select {
	case t.packets <- &memberlist.Packet{Buf: b, From: from, Timestamp: time.Now()}:
	case <-t.ctx.Done():
	}
}

func (t *transport) accept() {
	for {
		c, err := t.tcp.AcceptTCP()
		if err != nil {
			return
		}
		t.wg.Go(func() { t.serve(c) })
	}
}

func (t *transport) serve(c *net.TCPConn) {
	stop := context.AfterFunc(t.ctx, func() { _ = c.Close() })
	defer stop()
	var first [1]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		_ = c.Close()
		return
	}
	if first[0] != streamMark {
		select {
		case t.conns <- &peeked{c, first[:]}:
		case <-t.ctx.Done():
		}
		return
	}
	defer c.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		b := make([]byte, min(binary.BigEndian.Uint32(size[:]), 4<<20))
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		t.deliver(b, c.RemoteAddr())
	}
}

// peeked is a connection whose first byte was read.
type peeked struct {
	*net.TCPConn
	first []byte
}

func (c *peeked) Read(b []byte) (int, error) {
	if len(c.first) > 0 && len(b) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.TCPConn.Read(b)
}

func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.IPv4(127, 0, 0, 1), int(t.addr().Port()), nil
}

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err == nil {
		_, err = t.udp.WriteToUDPAddrPort(b, to)
	}
	return time.Now(), err
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }
func (t *transport) StreamCh() <-chan net.Conn           { return t.conns }

func (t *transport) DialTimeout(addr string, d time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", addr, d)
}

func (t *transport) Shutdown() error {
	t.end()
	_ = t.udp.Close()
	_ = t.tcp.Close()
	t.wg.Wait()
	return nil
}
