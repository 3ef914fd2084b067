package forward

import (
	"github.com/nearside-mesh/nearside/dns/table"
)

// detach ends the tries of a slot. The argument by is the server that answered, or nil.
func (f *Forwarder) detach(s *slot, by *server, now int64) {
	for i := range s.tries {
		t := &s.tries[i]
		if t.ch == nil {
			continue
		}
		sv := t.ch.server
		waited := now - t.at
		timedOut := sv != by && waited >= f.patience(s, sv, f.timing.wait)
		for j := range i {
			timedOut = timedOut && s.tries[j].counted != sv
		}
		t.counted = sv
		if timedOut {
			sv.timedOut(waited)
			f.missed(sv)
		}
		f.end(t)
	}
	for i := range s.tries {
		s.tries[i].counted = nil
	}
	if by != nil { // the question was answerable, so the failures were the servers' own
		for i := range s.servers {
			if sv := s.set.servers[s.order[i]]; s.failed&(1<<i) != 0 && sv != by {
				f.missed(sv)
			}
		}
	}
	f.slots.detach(s)
}

// finish caches an answer and sends it to the waiters. The caller holds the lock, which is
// released in between.
func (f *Forwarder) finish(s *slot, by *server, w *worker, now int64) {
	s.domain.unanswered = 0
	f.detach(s, by, now)
	first := f.slots.takeWaiters(s)
	trusted, server := s.set.trusted, by.addr
	f.mu.Unlock()
	q, p := s.question(), f.protection.Load()
	drop := p.protect(f, &w.r, &q)
	a, ttl, err := w.r.answer(w.pack, q.name)
	switch {
	case err != nil:
		a = failure(w.pack, q.name, q.qtype, table.RcodeServFail, noEDE)
	case drop != DropNone:
		a.ede = edeDropped + uint16(drop)
	}
	w.pack = a.data
	if !trusted {
		a.data[3] &^= table.FlagAD
	}
	switch {
	case f.Opts.CacheBytes < 0:
	case err != nil:
		f.cache.failed(&q, s.hash, a, now)
	case ttl > 0:
		f.cache.put(&q, s.hash, a, now, ttl)
	default:
		f.cache.forget(&q, s.hash)
	}
	if f.protection.Load() != p && f.Opts.CacheBytes >= 0 {
		f.cache.forget(&q, s.hash) // the cache was dropped, perhaps before
	}
	for c := first; c != nil; c = c.next {
		var buf [table.MaxName + 4]byte
		by := c.client(&q, buf[:0])
		w.out = a.appendReply(w.out[:0], &by, 0, c.to.Max, false)
		c.to.Server, c.to.Dropped = server, a.dropped()
		c.to.Via.Reply(c.to, w.out)
	}
	f.mu.Lock()
	f.slots.releaseWaiters(first)
	f.slots.release(s)
}

// expire handles a slot whose time has come. The caller holds the lock, which may be released in
// between.
func (f *Forwarder) expire(s *slot, now int64) {
	use := s.use
	if now >= s.endsAt {
		f.fail(s, now)
		return
	}
	if !s.served && now >= s.staleAt {
		s.served = true
		if s.set.allDown() && s.step >= s.servers {
			f.fail(s, now)
			return
		}
		if f.serveStale(s, now); s.use != use {
			return
		}
	}
	if now >= s.sendAt {
		f.suspect(s, now)
		f.proceed(s, now)
		return
	}
	f.slots.schedule(s, now)
}

// serveStale sends a stale answer to the waiters of a slot, if there is one. The question stays
// in flight.
func (f *Forwarder) serveStale(s *slot, now int64) {
	if f.Opts.CacheBytes < 0 || s.waiters == nil {
		return
	}
	q := s.question()
	if !f.cache.recheckLater(&q, s.hash, now) {
		return
	}
	f.replyAll(s, nil, now)
}

// replyAll sends a stale answer to the waiters of a slot. If there is none, it sends other, or
// SERVFAIL if other is nil. The caller holds the lock, which is released in between.
func (f *Forwarder) replyAll(s *slot, other *answer, now int64) {
	q := s.question()
	hash := s.hash
	var name [table.MaxName]byte
	q.name = append(name[:0], q.name...)
	first := f.slots.takeWaiters(s)
	f.mu.Unlock()
	w := f.worker()
	for c := first; c != nil; c = c.next {
		var buf [table.MaxName + 4]byte
		by := c.client(&q, buf[:0])
		out, ok := f.cache.appendStale(w.out[:0], &q, hash, &by, c.to.Max, now)
		if !ok {
			a := other
			if a == nil {
				failed := failure(nil, q.name, q.qtype, table.RcodeServFail, edeNoServer)
				a = &failed
			}
			out = a.appendReply(out, &by, 0, c.to.Max, false)
		}
		w.out = out
		c.to.Via.Reply(c.to, out)
	}
	f.workers.Put(w)
	f.mu.Lock()
	f.slots.releaseWaiters(first)
}

// fail ends a question without an answer. The caller holds the lock, which is released in
// between.
func (f *Forwarder) fail(s *slot, now int64) {
	rcode, ede := s.rcode, uint16(noEDE)
	switch {
	case rcode != 0 && s.ede >= 0:
		ede = uint16(s.ede)
	case rcode != 0:
	case s.outstanding() || s.servers == 0:
		rcode, ede = table.RcodeServFail, edeNoServer
	default:
		rcode, ede = table.RcodeServFail, edeNetwork
	}
	f.counts.Failed++
	f.detach(s, nil, now)
	q := s.question()
	a := failure(nil, q.name, q.qtype, rcode, ede)
	if f.Opts.CacheBytes >= 0 {
		f.cache.failed(&q, s.hash, a, now)
	}
	f.replyAll(s, &a, now)
	f.slots.release(s)
}

// client returns the client of a waiter. It builds the question in the client's spelling in buf.
func (c *waiter) client(q *question, buf []byte) client {
	buf = append(buf, q.name...)
	for i := range buf {
		if c.upper[i/64]&(1<<(i%64)) != 0 {
			buf[i] -= 'a' - 'A'
		}
	}
	buf = append(buf, byte(q.qtype>>8), byte(q.qtype), 0, table.ClassIN)
	return client{id: c.id, flags: c.flags, question: buf, edns: c.edns, do: c.do}
}
