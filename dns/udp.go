package dns

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// maxQuery is the maximum length of a query over UDP. The kernel truncates longer messages, which
// makes them invalid.
const maxQuery = 4096

// udpReplier sends the replies to forwarded queries.
type udpReplier struct {
	listener
	conn    *net.UDPConn
	waiting atomic.Int64  // number of queries without a reply yet
	none    chan struct{} // signals that waiting is 0; one slot
}

func (r *udpReplier) Reply(to forward.ReplyTo, wire []byte) {
	wire = r.s.finish(to, wire)
	var buf [64]byte
	// An error, such as a full buffer, is treated like a lost packet.
	_, _, _ = r.conn.WriteMsgUDPAddrPort(wire, appendSource(buf[:0], to.Local), to.Addr)
	if r.waiting.Add(-1) == 0 {
		select {
		case r.none <- struct{}{}:
		default:
		}
	}
}

// drain waits for replies to forwarded queries, up to the limit for shutdown.
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
