package dns

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// maxQuery is how long a query over UDP may be. Longer ones are cut by the kernel, and are then no
// queries.
const maxQuery = 4096

// udpReplier sends replies that come later.
type udpReplier struct {
	s       *Server
	conn    *net.UDPConn
	waiting atomic.Int64  // queries that get their reply later
	none    chan struct{} // one slot: told when there are none
}

func (r *udpReplier) Reply(to forward.ReplyTo, wire []byte) {
	r.s.waiting.giveBack(to.Addr.Addr())
	r.s.tell(to, wire, fromOthers)
	var buf [64]byte
	// A client that is gone, or a full buffer: as if the packet were lost.
	_, _, _ = r.conn.WriteMsgUDPAddrPort(wire, appendSource(buf[:0], to.Local), to.Addr)
	if r.waiting.Add(-1) == 0 {
		select {
		case r.none <- struct{}{}:
		default:
		}
	}
}

// drain waits for the replies that are to come, as long as they may take. Nothing is read any more.
func (r *udpReplier) drain() {
	late := time.NewTimer(r.s.drain)
	defer late.Stop()
	for r.waiting.Load() > 0 {
		select {
		case <-r.none:
		case <-late.C:
			return
		}
	}
}
