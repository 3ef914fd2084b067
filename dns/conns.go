package dns

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// conns are the open TCP connections of a server. When they are nearly full, a new one replaces a
// connection of the group and member with the most: the one that has been idle longest. If none of
// these is idle, a busy one is closed only for an owner with fewer, and only at the limit.
type conns struct {
	limit, peerLimit int
	owners           *owners
	turn             atomic.Uint64 // orders the times at which connections became idle

	mu     sync.Mutex
	open   []*tcpConn
	byPeer map[netip.Addr]int
	shares map[uint64]*share // by group and by member
	stats  ConnStats
}

// share is the number of connections of a group or member.
type share struct{ n int }

// ConnStats has the number of open TCP connections, and counts those that were closed for others.
type ConnStats struct {
	Open       int
	ClosedIdle uint64 // idle ones, closed for new connections
	ClosedBusy uint64 // those with queries, of owners with more than their share
	Refused    uint64 // new ones, because their owner already has its share
}

func newConns(limit, peerLimit int, o *owners) *conns {
	return &conns{limit: limit, peerLimit: peerLimit, owners: o, byPeer: map[netip.Addr]int{},
		shares: map[uint64]*share{}}
}

// admit adds a connection, or returns false if its owner already has its share.
func (s *conns) admit(t *tcpConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	peer := t.peer.Addr()
	s.assign(t, s.firstOwner(t))
	if 4*len(s.open) >= s.limit || 4*s.byPeer[peer] >= s.peerLimit {
		s.resolve(t)
		for _, o := range s.open {
			s.resolve(o)
		}
	}
	if !sharedAddress(peer, t.local, t.foreign) && forward.Full(s.byPeer[peer], s.peerLimit, t.member.n) {
		return s.refuse(t)
	}
	full := len(s.open) >= s.limit
	var v *tcpConn
	if len(s.open) >= s.limit-s.limit/8 {
		v = s.victim(t, full)
	}
	if full && v == nil {
		return s.refuse(t)
	}
	t.index = len(s.open)
	s.open = append(s.open, t)
	s.byPeer[peer]++
	t.group.n++
	t.member.n++
	if v != nil {
		s.evict(v)
	}
	return true
}

func (s *conns) refuse(t *tcpConn) bool {
	s.stats.Refused++
	s.drop(t)
	return false
}

// firstOwner returns the owner that is known without a lookup.
func (s *conns) firstOwner(t *tcpConn) owner {
	if t.foreign != 0 {
		return s.owners.ofNamespace(t.foreign)
	}
	return s.owners.ofAddress(t.peer.Addr())
}

// resolve finds the owner of a connection from this host.
func (s *conns) resolve(t *tcpConn) {
	if t.resolved || t.foreign != 0 || !onThisHost(t.peer.Addr(), t.local) {
		return
	}
	counted := t.index >= 0
	if counted {
		t.group.n--
		t.member.n--
	}
	s.drop(t)
	s.assign(t, s.owners.ofTCP(t.conn))
	t.resolved = true
	if counted {
		t.group.n++
		t.member.n++
	}
}

// ownerOf returns the owner of a connection, after a lookup if it is from this host.
func (s *conns) ownerOf(t *tcpConn) owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resolve(t)
	return t.owner
}

// onThisHost reports whether a client that sent to a local address is on this host.
func onThisHost(client, local netip.Addr) bool {
	return client.IsLoopback() || local.IsLoopback() || client == local
}

// sharedAddress reports whether the processes of a host share a client address: a loopback address,
// or that of redirected queries, unless they are from another namespace, such as a pod.
func sharedAddress(client, local netip.Addr, foreign uint64) bool {
	return client.IsLoopback() || local.IsLoopback() && foreign == 0
}

func (s *conns) assign(t *tcpConn, o owner) {
	t.owner = o
	get := func(key uint64) *share {
		x := s.shares[key]
		if x == nil {
			x = new(share)
			s.shares[key] = x
		}
		return x
	}
	t.group, t.member = get(o.group), get(o.member)
}

// drop forgets the shares of a connection if no other one uses them.
func (s *conns) drop(t *tcpConn) {
	if t.group.n == 0 {
		delete(s.shares, t.owner.group)
	}
	if t.member.n == 0 {
		delete(s.shares, t.owner.member)
	}
}

// maxUnread is how many connections with an unread query are passed over when one is closed.
const maxUnread = 8

// victim returns the connection to close for a new one, or nil. A busy one is closed only if busy
// is set.
func (s *conns) victim(t *tcpConn, busy bool) *tcpConn {
	for range maxUnread {
		var most, own *tcpConn
		for _, o := range s.open {
			if most == nil || o.before(most) {
				most = o
			}
			if o.member == t.member && o.idle() && (own == nil || o.before(own)) {
				own = o
			}
		}
		if most == nil {
			return nil
		}
		v := own
		if most.yields(t, busy) {
			v = most
		}
		if v == nil || !v.idle() || !v.unread() {
			return v
		}
		v.idleAt.Store(s.turn.Add(1)) // its query has arrived
	}
	return nil
}

// before reports whether a connection is closed before another one.
func (t *tcpConn) before(o *tcpConn) bool {
	switch {
	case t.group.n != o.group.n:
		return t.group.n > o.group.n
	case t.member.n != o.member.n:
		return t.member.n > o.member.n
	case t.idle() != o.idle():
		return t.idle()
	}
	return t.idleAt.Load() < o.idleAt.Load()
}

// yields reports whether a connection may be closed for a new one. Closing a busy connection must
// make shares more equal.
func (t *tcpConn) yields(to *tcpConn, busy bool) bool {
	idle := t.idle()
	if !idle && !busy {
		return false
	}
	mine, others := t.group.n, to.group.n
	if t.group == to.group {
		mine, others = t.member.n, to.member.n
	}
	switch {
	case t.member == to.member:
		return idle
	case idle:
		return mine > others
	}
	return mine > others+1
}

func (t *tcpConn) idle() bool { return t.busy.Load() == 0 }

// unread reports whether a query, or a part of one, has arrived and was not read.
func (t *tcpConn) unread() bool {
	n := 0
	if c, ok := t.conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		}
	}
	return n > 0
}

// evict closes a connection. Replies to its queries are dropped.
func (s *conns) evict(t *tcpConn) {
	if t.idle() {
		s.stats.ClosedIdle++
	} else {
		s.stats.ClosedBusy++
	}
	s.delete(t)
	t.cancel()
	_ = t.conn.Close()
}

// remove removes a connection that has ended, unless it was closed for another one.
func (s *conns) remove(t *tcpConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.index >= 0 {
		s.delete(t)
	}
}

func (s *conns) delete(t *tcpConn) {
	last := len(s.open) - 1
	s.open[t.index] = s.open[last]
	s.open[t.index].index = t.index
	s.open[last] = nil
	s.open = s.open[:last]
	t.index = -1
	peer := t.peer.Addr()
	if s.byPeer[peer]--; s.byPeer[peer] == 0 {
		delete(s.byPeer, peer)
	}
	t.group.n--
	t.member.n--
	s.drop(t)
}

// Conns returns the state of the TCP connections.
func (s *Server) Conns() ConnStats {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	out := s.conns.stats
	out.Open = len(s.conns.open)
	return out
}
