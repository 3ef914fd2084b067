package forward

import (
	"math"

	"github.com/nearside-mesh/nearside/dns/table"
)

const (
	maxTries   = 8    // in flight for one question
	MaxSends   = 16   // of one question
	MaxWaiters = 1024 // for one answer: as many as ask for the same name while the agent restarts fit into its sockets
	chunk      = 256
	wheelSize  = 256
	never      = math.MaxInt64
)

// slot is a question that is asked, and who waits for the answer. Slots are used again and again;
// all fields are guarded by the forwarder's lock, but a slot that has ended belongs to the
// goroutine that answers its waiters.
type slot struct {
	number int32
	use    uint32 // counts, so that a slot that is used anew is not taken for the old one
	asking bool

	hash   uint64
	next   int32 // 1 + the next slot with the same place in the index
	name   [table.MaxName]byte
	len    int
	qtype  uint16
	do, cd bool

	waiters *waiter
	waiting int
	served  bool // the time after which a stale answer is better than none has passed

	set     *serverSet
	order   [MaxServers]uint8 // of the set's servers
	servers int
	step    int // how many servers the question was sent to by the order
	sends   int
	failed  uint16 // bits of servers that have answered with a code that another one need not share
	tcp     bool   // no more datagrams
	wrong   int
	tries   [maxTries]try
	rcode   int
	ede     int
	// When to send to the next server, to serve a stale answer, and to end.
	sendAt, staleAt, endsAt int64

	at           int64 // the first of these
	bucket       int32 // of the wheel; -1 for none
	before, then int32 // in the bucket; -1 for none
}

// try is a query in flight.
type try struct {
	ch      *channel // nil: there is none
	query   wireQuery
	at      int64
	lowered bool // sent in lower case, or
	plain   bool // without EDNS, because the server seems to want that
	probe   bool
	seen    *server // while tries are counted
}

// waiter is a client that waits for an answer.
type waiter struct {
	to        ReplyTo
	id, flags uint16
	edns, do  bool
	upper     [(table.MaxName + 63) / 64]uint64 // which letters of its question are in upper case
	next      *waiter
}

func (s *slot) question() question {
	return question{name: s.name[:s.len], qtype: s.qtype, do: s.do, cd: s.cd}
}

// outstanding reports whether an answer may still come.
func (s *slot) outstanding() bool {
	for i := range s.tries {
		if s.tries[i].ch != nil {
			return true
		}
	}
	return false
}

// slots are the slots in use and the free ones, the waiters, and when something is due.
type slots struct {
	limit   int
	chunks  [][]slot
	free    []int32
	used    int
	index   []int32
	spare   *waiter // free ones
	waiting int

	wheel [wheelSize + 1]int32 // the first slot of each tick; the last one is for what is due already
	tick  int64                // length of one
	done  int64                // the last tick that was looked at
	wake  func()               // is told when something is due already
}

func newSlots(limit int, tick int64, wake func()) *slots {
	size := 256
	for size < limit {
		size *= 2
	}
	t := &slots{limit: limit, index: make([]int32, size), tick: tick, wake: wake}
	for i := range t.wheel {
		t.wheel[i] = -1
	}
	return t
}

func (t *slots) slot(i int32) *slot { return &t.chunks[i/chunk][i%chunk] }

// find returns the slot that asks a question; nil where there is none.
func (t *slots) find(hash uint64, q *question) *slot {
	for i := t.index[hash&uint64(len(t.index)-1)]; i > 0; {
		s := t.slot(i - 1)
		if s.hash == hash && s.qtype == q.qtype && s.do == q.do && s.cd == q.cd && string(s.name[:s.len]) == string(q.name) {
			return s
		}
		i = s.next
	}
	return nil
}

// start takes a slot for a question; nil where too many are in use.
func (t *slots) start(hash uint64, q *question) *slot {
	if t.used >= t.limit {
		return nil
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
	s := t.slot(i)
	use := s.use
	*s = slot{number: i, use: use, asking: true, hash: hash, qtype: q.qtype, do: q.do, cd: q.cd, bucket: -1, before: -1,
		then: -1, sendAt: never}
	s.len = copy(s.name[:], q.name)
	b := &t.index[hash&uint64(len(t.index)-1)]
	s.next, *b = *b, i+1
	return s
}

// detach ends the asking of a slot, which others then no longer find.
func (t *slots) detach(s *slot) {
	p := &t.index[s.hash&uint64(len(t.index)-1)]
	for *p != s.number+1 {
		p = &t.slot(*p - 1).next
	}
	*p = s.next
	t.unschedule(s)
	s.asking = false
	s.use++
}

// release gives a slot back.
func (t *slots) release(s *slot) {
	s.set = nil
	t.free = append(t.free, s.number)
	t.used--
}

// join adds a client to those that wait for a slot.
func (t *slots) join(s *slot) *waiter {
	if s.waiting >= MaxWaiters || t.waiting >= 2*t.limit {
		return nil
	}
	if t.spare == nil {
		more := make([]waiter, chunk)
		for i := range more {
			more[i].next, t.spare = t.spare, &more[i]
		}
	}
	w := t.spare
	t.spare = w.next
	w.next, s.waiters = s.waiters, w
	s.waiting++
	t.waiting++
	return w
}

// takeWaiters takes the waiters off a slot.
func (t *slots) takeWaiters(s *slot) (first *waiter) {
	first, s.waiters, s.waiting = s.waiters, nil, 0
	return first
}

// releaseWaiters gives back a list of waiters.
func (t *slots) releaseWaiters(first *waiter) {
	for w := first; w != nil; {
		next := w.next
		*w = waiter{next: t.spare}
		t.spare = w
		t.waiting--
		w = next
	}
}

// schedule says when to look at a slot again.
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
	} else { // a time beyond the wheel is looked at more often than needed
		tick := max(at/t.tick, now/t.tick, t.done) + 1
		s.bucket = int32(min(tick, max(now/t.tick, t.done)+wheelSize-1) % wheelSize)
	}
	s.then = t.wheel[s.bucket]
	if s.then >= 0 {
		t.slot(s.then).before = s.number
	}
	t.wheel[s.bucket] = s.number
}

func (t *slots) unschedule(s *slot) {
	if s.bucket < 0 {
		return
	}
	if s.before >= 0 {
		t.slot(s.before).then = s.then
	} else {
		t.wheel[s.bucket] = s.then
	}
	if s.then >= 0 {
		t.slot(s.then).before = s.before
	}
	s.bucket, s.before, s.then = -1, -1, -1
}

// due returns a slot for which it is time, and takes it off the wheel; nil when there is no more.
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
			i = s.then
			if s.at <= now {
				t.unschedule(s)
				return s
			}
		}
	}
	return nil
}
