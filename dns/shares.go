package dns

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// shares bounds how many queries of one client wait for other servers, so that none takes all the
// room. Clients are told apart by a hash of their addresses, so two may share one.
type shares struct{ n [1024]atomic.Int32 }

// maxWaiting is the share of one client that is not on this host, where many processes have one
// address.
const maxWaiting = 2000

func (s *shares) of(a netip.Addr) *atomic.Int32 { return &s.n[placeOf(a)] }

// placeOf is a hash of an address of 10 bits.
func placeOf(a netip.Addr) uint32 {
	b := a.As16()
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	return h >> 22
}

func (s *shares) take(a netip.Addr) bool {
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

func (s *shares) giveBack(a netip.Addr) {
	if !a.IsLoopback() {
		s.of(a).Add(-1)
	}
}

// rates bounds how many queries of one client are sent on in a second. Clients are told apart as by
// shares.
type rates struct{ n [1024]atomic.Int64 }

// take reports whether a query may be sent on, of so many a second. What was not used in the last
// second may be used at once.
func (r *rates) take(a netip.Addr, perSecond int, now int64) bool {
	if perSecond <= 0 || a.IsLoopback() {
		return true
	}
	spent := &r.n[placeOf(a)] // until when the share is used up
	for {
		old := spent.Load()
		next := max(old, now) + int64(time.Second)/int64(perSecond)
		if next-now > int64(time.Second) {
			return false
		}
		if spent.CompareAndSwap(old, next) {
			return true
		}
	}
}
