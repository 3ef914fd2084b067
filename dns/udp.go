package dns

import (
	"net"
	"net/netip"
)

// maxQuery is how long a query over UDP may be. Longer ones are cut by the kernel, and are then no queries.
const maxQuery = 4096

// udpReplier sends replies that come later.
type udpReplier struct {
	s    *Server
	conn *net.UDPConn
}

func (r *udpReplier) reply(to replyTo, wire []byte) {
	r.s.waiting.giveBack(to.addr.Addr())
	var buf [64]byte
	// A client that is gone, or a full buffer: as if the packet were lost.
	_, _, _ = r.conn.WriteMsgUDPAddrPort(wire, appendSource(buf[:0], to.local), to.addr)
}

// serveOne answers packets one at a time, as every system can.
func (s *Server) serveOne(c *net.UDPConn, count *counters) error {
	if err := wantDestination(c); err != nil {
		return err
	}
	via := &udpReplier{s, c}
	in, oob, out := make([]byte, maxQuery), make([]byte, 128), make([]byte, 0, maxUDP)
	var q query
	for turn := uint32(0); ; turn++ {
		n, noob, _, from, err := c.ReadMsgUDPAddrPort(in, oob)
		if err != nil {
			if passing(err) {
				continue
			}
			return err
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		to := replyTo{via: via, addr: from, local: destination(oob[:noob]), at: s.now()}
		if reply, f := s.handle(&q, in[:n], to, false, turn, count, out[:0]); f == replied {
			var buf [64]byte
			_, _, _ = c.WriteMsgUDPAddrPort(reply, appendSource(buf[:0], to.local), from)
		}
	}
}
