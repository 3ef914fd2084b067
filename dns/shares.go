package dns

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// clientLimits bounds the forwarded queries of each client that wait for a reply, so that one
// client cannot use the whole capacity. Clients are identified by a hash of their address, so two
// of them may share a limit.
type clientLimits struct{ n [1024]atomic.Int32 }

// maxWaiting is the limit for one client. Clients on this host are exempt, because many processes
// share one address.
const maxWaiting = 2000

func (s *clientLimits) of(a netip.Addr) *atomic.Int32 { return &s.n[bucketOf(a)] }

// bucketOf returns a 10-bit hash of an address.
func bucketOf(a netip.Addr) uint32 {
	b := a.As16()
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	return h >> 22
}

func (s *clientLimits) take(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	n := s.of(a)
	if n.Add(1) > maxWaiting {
		n.Add(-1)
		return false
	}
	return true
}

func (s *clientLimits) release(a netip.Addr) {
	if !a.IsLoopback() {
		s.of(a).Add(-1)
	}
}

// clientRates bounds the forwarded queries of each client per second. It identifies clients like
// clientLimits.
type clientRates struct{ n [1024]atomic.Int64 }

// take reports whether a client may forward another query. A client that forwarded nothing in the
// last second may use a full second's queries at once.
func (r *clientRates) take(a netip.Addr, perSecond int, now int64) bool {
	if perSecond <= 0 || a.IsLoopback() {
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
