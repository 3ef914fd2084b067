package dns

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// maxWaiting is the maximum number of forwarded queries of one address that wait for a reply. It
// does not apply to loopback addresses, because many processes share them.
const maxWaiting = 2000

// buckets is the number of counters of each kind. Clients are identified by a hash, so two of them
// may share a counter.
const buckets = 1024

// waitingQueries counts the forwarded queries without a reply: all, and by address and owner of
// the client. Owners on this host are looked up, and counted, only under pressure.
type waitingQueries struct {
	total                  atomic.Int64
	addrs, groups, members [buckets]atomic.Int32
}

// Bits of [forward.ReplyTo].Share. The lower bits have the indexes of the counters.
const (
	countedAddress = 1 << 31
	countedOwner   = 1 << 30
)

func (w *waitingQueries) counters(share uint32) (addr, group, member *atomic.Int32) {
	return &w.addrs[share%buckets], &w.groups[share>>10%buckets], &w.members[share>>20%buckets]
}

// release counts a query that has its reply, or gets none.
func (w *waitingQueries) release(to forward.ReplyTo) {
	w.total.Add(-1)
	addr, group, member := w.counters(to.Share)
	if to.Share&countedAddress != 0 {
		addr.Add(-1)
	}
	if to.Share&countedOwner != 0 {
		group.Add(-1)
		member.Add(-1)
	}
}

// clientRefusals counts queries that were refused because of their client, by reason.
type clientRefusals struct{ waiting, rate atomic.Uint64 }

// Refusals counts forwarded queries that were answered with SERVFAIL, by reason.
type Refusals struct {
	Client uint64 // too many queries of the client wait for a reply
	Rate   uint64 // more than ServerOptions.PeerRate
}

// Refused returns the counters of refused queries. Those of the forwarder are in
// [forward.Stats].
func (s *Server) Refused() Refusals {
	return Refusals{Client: s.refused.waiting.Load(), Rate: s.refused.rate.Load()}
}

// take counts a query that will wait for a reply. It returns false if its client has too many. A
// client on this host, with a socket in the table of this process, is its user and cgroup.
func (s *Server) take(to *forward.ReplyTo) bool {
	addr, w := to.Addr.Addr(), &s.waiting
	foreign := foreignOf(to.Via)
	here, exempt := onThisHost(addr, to.Local), sharedAddress(addr, to.Local, foreign)
	if !exempt && !s.clientRates.take(addr, s.o.PeerRate, to.At) {
		s.refused.rate.Add(1)
		return false
	}
	busy := w.total.Add(1) > int64(s.o.Forwarder.Opts.InFlight/2)
	to.Share, to.Ahead = 0, 0
	waiting := 0
	if !exempt {
		// #nosec G115 -- below buckets
		to.Share = countedAddress | uint32(s.owners.ofAddress(addr).group%buckets)
		n, _, _ := w.counters(to.Share)
		waiting = int(n.Add(1)) - 1
		to.Ahead = waiting
		busy = busy || waiting >= maxWaiting/2
	}
	if foreign != 0 || here && busy {
		o := s.ownerOf(to, foreign)
		// #nosec G115 -- below buckets
		to.Share |= countedOwner | uint32(o.group%buckets)<<10 | uint32(o.member%buckets)<<20
		_, group, member := w.counters(to.Share)
		to.Ahead = max(int(member.Add(1))-1, (int(group.Add(1))-1)/2) // cgroups of a user share twice as much
	}
	if !exempt && forward.Full(waiting, maxWaiting, to.Ahead) {
		w.release(*to)
		s.refused.waiting.Add(1)
		return false
	}
	return true
}

// socketOf returns the socket of a client, without what changes its replies.
func socketOf(via forward.Replier) forward.Replier {
	for {
		switch r := via.(type) {
		case *aliasReplier:
			via = r.via
		case uncachedReplier:
			via = r.via
		default:
			return via
		}
	}
}

// foreignOf returns the cookie of the network namespace of a socket, if that is another one.
func foreignOf(via forward.Replier) uint64 {
	switch via := socketOf(via).(type) {
	case *udpReplier:
		return via.foreign
	case *tcpConn:
		return via.foreign
	}
	return 0
}

// ownerOf returns the owner of a client on this host.
func (s *Server) ownerOf(to *forward.ReplyTo, foreign uint64) owner {
	if foreign != 0 {
		return s.owners.ofNamespace(foreign)
	}
	switch via := socketOf(to.Via).(type) {
	case *tcpConn:
		return s.conns.ownerOf(via)
	case *udpReplier:
		servers := append(make([]netip.AddrPort, 0, 2+forward.MaxServers), netip.AddrPortFrom(to.Local, via.port))
		if redirected := to.Origin.Server(); redirected.IsValid() {
			servers = append(servers, redirected)
		}
		return s.owners.ofUDP(to.Addr, to.At, s.o.Forwarder.AppendServers(servers))
	}
	return s.owners.unknown()
}

// clientRates bounds the forwarded queries of each client per second. It identifies clients by a
// hash of their address.
type clientRates struct{ n [buckets]atomic.Int64 }

// bucketOf returns a 10-bit hash of an address.
func bucketOf(a netip.Addr) uint32 {
	b := a.As16()
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	return h >> 22
}

// take reports whether a client may forward another query. A client that forwarded nothing in the
// last second may use a full second's queries at once.
func (r *clientRates) take(a netip.Addr, perSecond int, now int64) bool {
	if perSecond <= 0 {
		return true
	}
	usedUntil := &r.n[bucketOf(a)] // time until which the client has used up its rate
	for {
		old := usedUntil.Load()
		next := max(old, now) + int64(time.Second)/int64(perSecond)
		if next-now > int64(time.Second) {
			return false
		}
		if usedUntil.CompareAndSwap(old, next) {
			return true
		}
	}
}
