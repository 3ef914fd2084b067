package dns

import "net"

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
