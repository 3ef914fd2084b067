//go:build !linux || (!amd64 && !arm64) || portable

package dns

import (
	"net"
	"net/netip"
	"sync/atomic"
)

// serveUDP answers packets one at a time, as every system can.
func (s *Server) serveUDP(c *net.UDPConn, count *counters, via *udpReplier, _ *atomic.Bool) error {
	if err := wantDestination(c); err != nil {
		return err
	}
	in, oob, out := make([]byte, maxQuery+1), make([]byte, 128), make([]byte, 0, maxUDP)
	var q query
	for turn := uint32(0); ; turn++ {
		n, noob, _, from, err := c.ReadMsgUDPAddrPort(in, oob)
		if err != nil {
			if passing(err) {
				continue
			}
			return err
		}
		if n > maxQuery { // it is longer still, perhaps
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		to := replyTo{via: via, addr: from, local: destination(oob[:noob]), at: s.now()}
		switch reply, f := s.handle(&q, in[:n], to, false, turn, count, out[:0]); f {
		case later:
			via.waiting.Add(1)
		case replied:
			var buf [64]byte
			_, _, _ = c.WriteMsgUDPAddrPort(reply, appendSource(buf[:0], to.local), from)
		}
	}
}
