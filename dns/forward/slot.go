package forward

import (
	"math"

	"github.com/nearside-mesh/nearside/dns/table"
)

const (
	maxTries   = 8    // in flight per question
	MaxSends   = 16   // per question
	MaxWaiters = 1024 // per answer; enough for the queries for one name that queue in the sockets during a restart
	chunk      = 256
	wheelSize  = 256
	never      = math.MaxInt64
)

// slot is a question in flight and its waiters. Slots are reused. The forwarder's lock guards all
// fields, except that a slot that has ended belongs to the goroutine that replies to its waiters.
type slot struct {
	number int32
	use    uint32 // changes when the slot is reused
	asking bool

	hash   uint64
	next   int32 // 1 + the next slot in the hash chain
	name   [table.MaxName]byte
	len    int
	qtype  uint16
	do, cd bool
	origin *Origin // nil: the servers of the config
	domain *domain

	waiters *waiter
	waiting int
	served  bool // the time for a stale answer has passed

	set     *serverSet
	order   [MaxServers]uint8 // indexes of the set's servers
	servers int
	step    int // number of sends in this order
	sends   int
	failed  uint16 // bits of servers that failed in a way that others may not
	tcp     bool   // send over TCP only
	wrong   int
	tries   [maxTries]try
	rcode   int
	ede     int
	// Times to ask the next server, to serve a stale answer, and to fail.
	sendAt, staleAt, endsAt int64

	at                     int64 // the earliest of these
	bucket                 int32 // of the wheel; -1 if not scheduled
	bucketPrev, bucketNext int32 // neighbors in the bucket; -1 if none
}

// try is a query in flight.
type try struct {
	ch      *channel // nil if the try is unused
	query   wireQuery
	at      int64
	lowered bool // sent in lower case
	plain   bool // sent without EDNS
	probe   bool
	counted *server // used while counting timeouts
}

// waiter is a client that waits for an answer.
type waiter struct {
	to        ReplyTo
	id, flags uint16
	edns, do  bool
	upper     [(table.MaxName + 63) / 64]uint64 // bit set of upper-case letters in its question
	next      *waiter
}

func (s *slot) question() question {
	return question{name: s.name[:s.len], qtype: s.qtype, do: s.do, cd: s.cd, origin: s.origin}
}

// outstanding reports whether a try is in flight.
func (s *slot) outstanding() bool {
	for i := range s.tries {
		if s.tries[i].ch != nil {
			return true
		}
	}
	return false
}

// slots has the slots, the waiters, and the timer wheel.
type slots struct {
	limit       int // for all clients; those with few questions may exceed it, see [Full]
	chunks      [][]slot
	free        []int32
	used        int
	index       []int32
	freeWaiters *waiter // list of free waiters
	waiting     int
	domains     domains

	wheel [wheelSize + 1]int32 // first slot of each tick; the last bucket is already due
	tick  int64                // length of a tick in nanoseconds
	done  int64                // last handled tick
	wake  func()               // called if a slot is due immediately
}

func newSlots(limit int, tick int64, wake func()) *slots {
	size := 256
	for size < limit {
		size *= 2
	}
	t := &slots{limit: limit, index: make([]int32, size), tick: tick, wake: wake, domains: newDomains()}
	for i := range t.wheel {
		t.wheel[i] = -1
	}
	return t
}

func (t *slots) slot(i int32) *slot { return &t.chunks[i/chunk][i%chunk] }

// find returns the slot of a question, or nil.
func (t *slots) find(hash uint64, q *question) *slot {
	for i := t.index[hash&uint64(len(t.index)-1)]; i > 0; {
		s := t.slot(i - 1)
		if s.hash == hash && s.qtype == q.qtype && s.do == q.do && s.cd == q.cd && s.origin == q.origin &&
			string(s.name[:s.len]) == string(q.name) {
			return s
		}
		i = s.next
	}
	return nil
}

// start takes a slot for a question of a client with other questions in flight. It returns nil if
// too many are in use, or if the domain is silent.
func (t *slots) start(hash uint64, q *question, ahead int, now int64) (s *slot, silent bool) {
	if Full(t.used, t.limit, ahead) {
		return nil, false
	}
	domain := t.domains.key(q)
	if t.domains.silent(domain, t.used >= t.limit/2, now) {
		return nil, true
	}
	if len(t.free) == 0 {
		from := int32(len(t.chunks) * chunk)
		t.chunks = append(t.chunks, make([]slot, chunk))
		for i := int32(chunk) - 1; i >= 0; i-- {
			t.free = append(t.free, from+i)
		}
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.used++
	s = t.slot(i)
	use := s.use
	*s = slot{number: i, use: use, domain: t.domains.start(domain, now), asking: true, hash: hash, qtype: q.qtype,
		do: q.do, cd: q.cd, bucket: -1,
		bucketPrev: -1,
		bucketNext: -1, sendAt: never, origin: q.origin}
	if q.origin != nil {
		q.origin.of.inFlight++
	}
	s.len = copy(s.name[:], q.name)
	b := &t.index[hash&uint64(len(t.index)-1)]
	s.next, *b = *b, i+1
	return s, false
}

// detach removes a slot from the index and the wheel.
func (t *slots) detach(s *slot) {
	p := &t.index[s.hash&uint64(len(t.index)-1)]
	for *p != s.number+1 {
		p = &t.slot(*p - 1).next
	}
	*p = s.next
	t.unschedule(s)
	if s.origin != nil {
		s.origin.of.inFlight--
	}
	t.domains.end(s.domain)
	s.domain = nil
	s.asking = false
	s.use++
}

// release returns a slot to the free list.
func (t *slots) release(s *slot) {
	s.set, s.origin = nil, nil
	t.free = append(t.free, s.number)
	t.used--
}

// join adds a waiter to a slot. It returns nil if there are too many.
func (t *slots) join(s *slot, ahead int) *waiter {
	if s.waiting >= MaxWaiters || Full(t.waiting, 2*t.limit, ahead) {
		return nil
	}
	if t.freeWaiters == nil {
		more := make([]waiter, chunk)
		for i := range more {
			more[i].next, t.freeWaiters = t.freeWaiters, &more[i]
		}
	}
	w := t.freeWaiters
	t.freeWaiters = w.next
	w.next, s.waiters = s.waiters, w
	s.waiting++
	t.waiting++
	return w
}

// takeWaiters removes and returns the waiters of a slot.
func (t *slots) takeWaiters(s *slot) (first *waiter) {
	first, s.waiters, s.waiting = s.waiters, nil, 0
	return first
}

// releaseWaiters returns waiters to the free list.
func (t *slots) releaseWaiters(first *waiter) {
	for w := first; w != nil; {
		next := w.next
		*w = waiter{next: t.freeWaiters}
		t.freeWaiters = w
		t.waiting--
		w = next
	}
}

// schedule puts a slot on the wheel.
func (t *slots) schedule(s *slot, now int64) {
	at := min(s.sendAt, s.endsAt)
	if !s.served {
		at = min(at, s.staleAt)
	}
	if s.bucket >= 0 && at == s.at {
		return
	}
	t.unschedule(s)
	s.at = at
	if at <= now {
		s.bucket = wheelSize
		t.wake()
	} else { // slots beyond the wheel's end are checked early
		tick := max(at/t.tick, now/t.tick, t.done) + 1
		s.bucket = int32(min(tick, max(now/t.tick, t.done)+wheelSize-1) % wheelSize)
	}
	s.bucketNext = t.wheel[s.bucket]
	if s.bucketNext >= 0 {
		t.slot(s.bucketNext).bucketPrev = s.number
	}
	t.wheel[s.bucket] = s.number
}

func (t *slots) unschedule(s *slot) {
	if s.bucket < 0 {
		return
	}
	if s.bucketPrev >= 0 {
		t.slot(s.bucketPrev).bucketNext = s.bucketNext
	} else {
		t.wheel[s.bucket] = s.bucketNext
	}
	if s.bucketNext >= 0 {
		t.slot(s.bucketNext).bucketPrev = s.bucketPrev
	}
	s.bucket, s.bucketPrev, s.bucketNext = -1, -1, -1
}

// due removes and returns a slot that is due, or nil.
func (t *slots) due(now int64) *slot {
	if i := t.wheel[wheelSize]; i >= 0 {
		s := t.slot(i)
		t.unschedule(s)
		return s
	}
	last := now / t.tick
	if last-t.done > wheelSize {
		t.done = last - wheelSize
	}
	for ; t.done < last; t.done++ {
		bucket := (t.done + 1) % wheelSize
		for i := t.wheel[bucket]; i >= 0; {
			s := t.slot(i)
			i = s.bucketNext
			if s.at <= now {
				t.unschedule(s)
				return s
			}
		}
	}
	return nil
}
