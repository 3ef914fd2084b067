package gossip

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Parameters of the detection of lost packets. memberlist probes a member each second, each of them
// at least once in two rounds.
const (
	ackPatience  = 5 * time.Second
	ackEach      = 2 * time.Second // for each live member
	lostExchange = 5 * time.Second // between push/pulls while all packets are lost
)

// packets detects networks that drop UDP and carry TCP. memberlist then counts the members as
// alive, because it also probes over TCP, but acknowledgments of probes arrive only over UDP.
type packets struct {
	mu       sync.Mutex
	off      bool                 // all messages use streams
	heard    map[string]time.Time // time of the last acknowledgment of each live member, or of its join
	last     time.Time            // last acknowledgment of any member, or the join of the first one
	lost     bool                 // no member acknowledges
	exchange time.Time            // last push/pull requested
}

// add starts the observation of a live member.
func (p *packets) add(member string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.heard) == 0 {
		p.last = now
	}
	if _, ok := p.heard[member]; !ok {
		p.heard[member] = now
	}
}

func (p *packets) drop(member string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.heard, member)
}

// acked records an acknowledgment, and reports whether it is the first one after a loss.
func (p *packets) acked(member string, now time.Time) (ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.heard[member]; ok {
		p.heard[member] = now
	}
	p.last = now
	ended, p.lost = p.lost, false
	return ended
}

// update reports whether all packets have been lost since the last call.
func (p *packets) update(now time.Time) (began bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	silent := !p.off && len(p.heard) > 0 && now.Sub(p.last) > ackPatience
	began, p.lost = silent && !p.lost, silent
	return began
}

// lostTo reports whether packets to a member are lost, in one or both directions.
func (p *packets) lostTo(member string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.heard[member]
	return !p.off && ok && (p.lost || now.Sub(at) > ackPatience+time.Duration(len(p.heard))*ackEach)
}

// state reports whether all packets are lost, and the number of members to which they are lost.
func (p *packets) state(now time.Time) (lost bool, members int) {
	p.mu.Lock()
	lost = p.lost
	var names []string
	for m := range p.heard {
		names = append(names, m)
	}
	p.mu.Unlock()
	for _, m := range names {
		if p.lostTo(m, now) {
			members++
		}
	}
	return lost, members
}

// checkPackets detects that packets to all members are lost. While that lasts, changes of the
// member list do not spread either, so this node compares it with a random member over TCP.
func (n *Node) checkPackets() {
	now := time.Now()
	if n.packets.update(now) {
		n.opt.Log.Warn("no member acknowledges UDP packets: messages use TCP now; allow UDP and TCP on the gossip port",
			"port", n.Addr().Port())
	}
	n.packets.mu.Lock()
	due := n.packets.lost && now.Sub(n.packets.exchange) >= lostExchange
	if due {
		n.packets.exchange = now
	}
	n.packets.mu.Unlock()
	if !due {
		return
	}
	n.mu.Lock()
	var peers []string
	for name, addr := range n.addrs {
		peers = append(peers, name+"/"+addr)
	}
	n.mu.Unlock()
	if len(peers) == 0 {
		return
	}
	select {
	case n.exchange <- peers[rand.IntN(len(peers))]:
	default: // an exchange is already pending
	}
}
