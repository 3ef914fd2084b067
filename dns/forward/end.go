package forward

import (
	"github.com/nearside-mesh/nearside/dns/table"
)

// detach ends the asking of a slot. By is the server that has answered; nil for none.
func (f *Forwarder) detach(s *slot, by *server, now int64) {
	for i := range s.tries {
		t := &s.tries[i]
		if t.ch == nil {
			continue
		}
		sv := t.ch.server
		waited := now - t.at
		silent := sv != by && waited >= f.patience(s, sv, f.timing.wait)
		for j := range i {
			silent = silent && s.tries[j].seen != sv
		}
		t.seen = sv
		if silent {
			sv.silent(waited)
			f.missed(sv)
		}
		f.end(t)
	}
	for i := range s.tries {
		s.tries[i].seen = nil
	}
	if by != nil { // the others' failure was theirs
		for i := range s.servers {
			if sv := s.set.servers[s.order[i]]; s.failed&(1<<i) != 0 && sv != by {
				f.missed(sv)
			}
		}
	}
	f.slots.detach(s)
}

// finish keeps an answer and passes it on. The caller holds the lock, which is given up meanwhile.
func (f *Forwarder) finish(s *slot, by *server, w *worker, now int64) {
	f.detach(s, by, now)
	first := f.slots.takeWaiters(s)
	trusted := s.set.trusted
	f.mu.Unlock()
	q := s.question()
	a, ttl, err := w.r.answer(w.pack, q.name)
	if err != nil {
		a = failure(w.pack, q.name, q.qtype, table.RcodeServFail, noEDE)
	}
	w.pack = a.data
	if f.Opts.CacheBytes >= 0 {
		if ttl > 0 {
			f.cache.put(&q, s.hash, a, now, ttl)
		} else {
			f.cache.forget(&q, s.hash)
		}
	}
	for c := first; c != nil; c = c.next {
		var buf [table.MaxName + 4]byte
		by := c.asker(&q, buf[:0], trusted)
		w.out = a.appendReply(w.out[:0], &by, 0, c.to.Max, false)
		c.to.Via.Reply(c.to, w.out)
	}
	f.mu.Lock()
	f.slots.releaseWaiters(first)
	f.slots.release(s)
}

// expire does what is due for a slot. The caller holds the lock, which may be given up meanwhile.
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

// serveStale answers the waiters of a slot with what was an answer, if there is one. The question
// goes on.
func (f *Forwarder) serveStale(s *slot, now int64) {
	if f.Opts.CacheBytes < 0 || s.waiters == nil {
		return
	}
	q := s.question()
	if !f.cache.recheckLater(&q, s.hash, now) {
		return
	}
	f.passOn(s, nil, now)
}

// passOn answers the waiters of a slot with a stale answer, and without one with another answer, if
// that is given. The caller holds the lock, which is given up meanwhile.
func (f *Forwarder) passOn(s *slot, other *answer, now int64) {
	q := s.question()
	hash, trusted := s.hash, s.set.trusted
	var name [table.MaxName]byte
	q.name = append(name[:0], q.name...)
	first := f.slots.takeWaiters(s)
	f.mu.Unlock()
	w := f.worker()
	for c := first; c != nil; c = c.next {
		var buf [table.MaxName + 4]byte
		by := c.asker(&q, buf[:0], trusted)
		out, ok := f.cache.appendStale(w.out[:0], &q, hash, &by, c.to.Max, now)
		if !ok {
			a := other
			if a == nil {
				failed := failure(w.fail, q.name, q.qtype, table.RcodeServFail, edeNoServer)
				w.fail, a = failed.data, &failed
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

// fail ends a question that has no answer. The caller holds the lock, which is given up meanwhile.
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
	f.passOn(s, &a, now)
	f.slots.release(s)
}

// asker describes a client, with the question as it has written it, which is made in buf.
func (c *waiter) asker(q *question, buf []byte, trusted bool) asker {
	buf = append(buf, q.name...)
	for i := range buf {
		if c.upper[i/64]&(1<<(i%64)) != 0 {
			buf[i] -= 'a' - 'A'
		}
	}
	buf = append(buf, byte(q.qtype>>8), byte(q.qtype), 0, table.ClassIN)
	return asker{id: c.id, flags: c.flags, question: buf, edns: c.edns, do: c.do, trusted: trusted}
}
