package forward

import (
	"errors"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/dns/table"
)

var (
	errNoCapacity = errors.New("too many questions are in flight to a server")
	errAllTried   = errors.New("all servers were tried")
)

// Cached appends the complete reply to a query to out, if the cache has a usable answer. The reply
// has the ID, flags, and question of the client, and an OPT record if the query has one. It has at
// most to.Max bytes and no partial records. Cached sets to.Dropped. It allocates nothing if out has
// enough capacity.
func (f *Forwarder) Cached(q *table.Query, msg, out []byte, to *ReplyTo) ([]byte, bool) {
	if f.Opts.CacheBytes < 0 {
		return out, false
	}
	key := questionOf(q, to.Origin)
	by := client{
		id: uint16(msg[0])<<8 | uint16(msg[1]), flags: q.Flags, question: msg[table.HeaderLen:q.End],
		edns: q.EDNS.Present, do: q.EDNS.Do,
	}
	hash := f.cache.hash(&key)
	out, result := f.cache.appendReply(out, &key, hash, &by, to.Max, to.At)
	to.Dropped = by.dropped
	if result == cachePrefetch {
		f.prefetch(hash, &key)
	}
	return out, result != cacheMissed
}

// questionOf returns the question of a query to an origin. It refers to q.
func questionOf(q *table.Query, origin *Origin) question {
	if origin.number() == 0 {
		origin = nil
	}
	return question{name: q.Key(), qtype: q.Qtype, do: q.EDNS.Do, cd: q.Flags&table.FlagCD != 0, origin: origin}
}

// prefetch refreshes an answer that will soon expire.
func (f *Forwarder) prefetch(hash uint64, q *question) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx == nil || f.slots.used >= f.slots.limit*3/4 || f.slots.find(hash, q) != nil || !q.origin.admits() {
		return
	}
	if s := f.start(hash, q); s != nil {
		f.counts.Prefetches++
	}
}

// Ask forwards a query; to.Via gets the reply once, later. It does not block, and does not retain q
// or msg. It returns false if there will be no reply, because too many questions are in flight, too
// many clients wait for this one, or its domain is silent. The caller then answers SERVFAIL; the
// reason is already counted.
func (f *Forwarder) Ask(q *table.Query, msg []byte, to ReplyTo) bool {
	key := questionOf(q, to.Origin)
	hash := f.cache.hash(&key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx == nil {
		f.counts.Refused.Stopped++
		return false
	}
	if ch := f.locals[localAddr{to.Origin.network(), to.Addr}]; ch != nil {
		f.looped(ch.server)
		return false
	}
	s := f.slots.find(hash, &key)
	join := s != nil
	if !join {
		if !key.origin.admits() {
			return false
		}
		var silent bool
		if s, silent = f.slots.start(hash, &key, to.Ahead, f.clock()); silent {
			f.counts.Refused.Domain++
			return false
		} else if s == nil {
			f.counts.Refused.InFlight++
			return false
		}
	}
	w := f.slots.join(s, to.Ahead)
	if w == nil {
		if join {
			f.counts.Refused.Waiters++
		} else { // no waiter is free
			f.counts.Refused.InFlight++
			f.slots.detach(s)
			f.slots.release(s)
		}
		return false
	}
	w.to, w.id, w.flags, w.edns, w.do = to, uint16(msg[0])<<8|uint16(msg[1]), q.Flags, q.EDNS.Present, q.EDNS.Do
	for i := range w.upper {
		w.upper[i] = 0
	}
	for i, c := range msg[table.HeaderLen : q.End-4] {
		if c >= 'A' && c <= 'Z' && c != key.name[i] {
			w.upper[i/64] |= 1 << (i % 64)
		}
	}
	if join {
		f.counts.Coalesced++
		return true
	}
	f.counts.Asked++
	f.begin(s)
	return true
}

// start takes a slot and sends its question. It returns nil if no slot is free.
func (f *Forwarder) start(hash uint64, q *question) *slot {
	s, _ := f.slots.start(hash, q, 0, f.clock())
	if s != nil {
		f.begin(s)
	}
	return s
}

// begin sends the question of a slot to the first server.
func (f *Forwarder) begin(s *slot) {
	now := f.clock()
	s.staleAt = now + int64(f.timing.client)
	s.ede = -1
	f.choose(s)
	total := int64(f.timing.total)
	if p := s.set.patience; p > 0 {
		rounds := int64(max(s.set.attempts, 1))
		total = min(total, max(p*rounds*int64(max(s.servers, 1)), int64(time.Second)))
	}
	s.endsAt = now + total
	f.speedUp()
	if probe := f.probe(s); probe != nil {
		use := s.use
		if err := f.send(s, probe, sendOptions{probe: true}, now); s.use != use {
			return
		} else if err == nil {
			f.counts.Probes++
		}
	}
	f.proceed(s, now)
}

// choose selects and orders the servers of the current config for a slot.
func (f *Forwarder) choose(s *slot) {
	s.set = f.responsible(s)
	f.turn++
	s.servers = len(s.set.order(s.order[:0], f.turn))
	s.step, s.failed = 0, 0
	s.tcp = s.tcp || s.set.tcp
}

func (f *Forwarder) probe(s *slot) *server {
	if s.servers < 2 {
		return nil
	}
	return s.set.probe(s.order[:s.servers], f.random())
}

// pick returns the next server for a question, or nil if all were tried.
func (s *slot) pick() *server {
	n := s.servers
	for n > 0 && s.sends < MaxSends {
		if s.set.attempts > 0 && s.step >= n*s.set.attempts || s.failed == 1<<n-1 {
			return nil
		}
		i := s.step % n
		s.step++
		if s.failed&(1<<i) == 0 {
			return s.set.servers[s.order[i]]
		}
	}
	return nil
}

// proceed sends a question to the next server, and to further ones if sending fails immediately.
// The caller holds the lock, which is released while sending.
func (f *Forwarder) proceed(s *slot, now int64) {
	use := s.use
	for {
		sv := s.pick()
		if sv == nil {
			s.sendAt = never
			if !s.outstanding() {
				s.endsAt = now
			}
			break
		}
		round := (s.step - 1) / s.servers
		err := f.send(s, sv, sendOptions{}, now)
		if s.use != use {
			return
		}
		s.sendAt = now + f.wait(s, sv, round)
		if err == nil {
			break
		}
		if lacksCapacity(err) { // try the same server again later
			s.step--
			break
		}
		if s.step >= s.servers { // each server failed once: wait, because one may be starting
			if s.step >= 2*s.servers && !s.outstanding() {
				s.endsAt = now
			}
			break
		}
	}
	f.slots.schedule(s, now)
}

// queryLost handles a query that certainly gets no answer. The caller holds the lock.
func (f *Forwarder) queryLost(s *slot, now int64) {
	switch {
	case s.step < s.servers:
		f.proceed(s, now)
		return
	case s.outstanding():
	case s.step >= 2*s.servers || s.pickable() == 0:
		s.endsAt = now
	default:
		s.sendAt = min(s.sendAt, now+int64(f.timing.wait))
	}
	f.slots.schedule(s, now)
}

// pickable returns the number of servers that did not answer with a failure.
func (s *slot) pickable() (n int) {
	for i := range s.servers {
		if s.failed&(1<<i) == 0 {
			n++
		}
	}
	return n
}

// wait returns how long to wait for a server before asking the next one.
func (f *Forwarder) wait(s *slot, sv *server, round int) int64 {
	least := f.timing.wait
	if s.tcp {
		least = f.timing.waitTCP
	}
	w := f.patience(s, sv, least) << min(round, 4)
	if s.set.patience > 0 {
		w = min(w, s.set.patience)
	}
	return w
}

// patience returns how long a server may take before it counts as silent.
func (f *Forwarder) patience(s *slot, sv *server, least time.Duration) int64 {
	return min(max(3*sv.srtt, int64(least)), int64(f.timing.allTried)/int64(max(s.servers, 1)))
}

// sendOptions changes how a query is sent.
type sendOptions struct{ lowered, plain, probe, tcp bool }

// send sends the question of a slot to one server. The caller holds the lock, which is released
// while a datagram is sent.
func (f *Forwarder) send(s *slot, sv *server, o sendOptions, now int64) error {
	t := s.freeTry()
	if t == nil || s.sends >= MaxSends {
		return errAllTried
	}
	s.sends++
	sv.stats.Queries++
	retried := !sv.ednsKnown && s.sentTo(sv)
	latched := now < sv.plainUntil && f.random()%probeEDNS != 0
	t.query = wireQuery{edns: !o.plain && !latched && !retried, wants: s.set.trusted}
	if !o.lowered && now >= sv.lowerUntil {
		t.query.seed = f.random() | 1
	}
	t.at, t.lowered, t.plain, t.probe = now, o.lowered, o.plain || retried, o.probe
	if s.tcp || o.tcp {
		return f.sendTCP(s, sv, t, now)
	}
	u, err := f.socket(sv, now)
	if err != nil {
		return f.notSent(s, sv, err)
	}
	id, ok := u.take(f.random, s.number)
	if !ok {
		return f.notSent(s, sv, errNoCapacity)
	}
	t.query.id, t.ch = id, &u.channel
	sv.probing = sv.probing || o.probe
	q := s.question()
	var buf [maxQueryLen]byte
	wire := t.query.appendTo(buf[:0], &q)
	use := s.use
	f.mu.Unlock()
	err = u.io.write(wire)
	f.mu.Lock()
	if err != nil && s.use == use && t.ch == &u.channel && t.query.id == id {
		f.end(t)
		err = f.notSent(s, sv, err)
	}
	return err
}

// notSent counts a query that could not be sent. It does not count as a try if a socket or an ID
// was missing.
func (f *Forwarder) notSent(s *slot, sv *server, err error) error {
	if lacksCapacity(err) {
		f.counts.NoSocket++
		sv.stats.Queries--
		s.sends--
	} else {
		f.networkError(sv, err)
	}
	return err
}

// lacksCapacity reports whether an error is not the server's fault.
func lacksCapacity(err error) bool {
	return errors.Is(err, errNoCapacity) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// sentTo reports whether the question is in flight to a server.
func (s *slot) sentTo(sv *server) bool {
	for i := range s.tries {
		if ch := s.tries[i].ch; ch != nil && ch.server == sv {
			return true
		}
	}
	return false
}

func (s *slot) freeTry() *try {
	for i := range s.tries {
		if s.tries[i].ch == nil {
			return &s.tries[i]
		}
	}
	return nil
}

// end ends a try. It frees the ID, and closes a retired socket without other tries.
func (f *Forwarder) end(t *try) {
	ch := t.ch
	if ch == nil {
		return
	}
	t.ch = nil
	if t.probe {
		ch.server.probing = false
	}
	ch.end(t.query.id)
	switch {
	case ch.udp != nil:
		f.closeIdle(ch.udp)
	case ch.retired && ch.inFlight == 0:
		ch.tcp.finish()
	}
}
