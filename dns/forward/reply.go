package forward

import (
	"time"

	"github.com/nearside-mesh/nearside/dns/table"
)

// worker is what a goroutine needs to read and pass on answers.
type worker struct {
	in   []byte
	r    response
	pack []byte
	out  []byte
	fail []byte
}

func (f *Forwarder) worker() *worker { return f.workers.Get().(*worker) }

// received takes a message from a server. Cut says that it was longer than what is here.
func (f *Forwarder) received(ch *channel, w *worker, m []byte, cut bool) {
	now := f.clock()
	readable := w.r.read(m)
	f.mu.Lock()
	defer f.mu.Unlock()
	sv := ch.server
	if !readable {
		sv.stats.Malformed++
		return
	}
	id := ch.of(w.r.Id)
	switch id.state {
	case idUnused:
		sv.stats.Forged++
		if ch.forged++; ch.forged >= MaxForged {
			f.distrust(ch, now)
		}
		return
	case idOver:
		sv.stats.Late++
		if sv.down() {
			f.log.Info("A name server answers again.", "server", sv.addr)
		}
		sv.fails = 0
		return
	}
	s := f.slots.slot(id.slot)
	t := s.try(ch, w.r.Id)
	if t == nil {
		return
	}
	q := s.question()
	switch t.query.echoes(m, &q) {
	case otherQuestion:
		f.mismatched(s, t, now)
		return
	case otherCase:
		sv.stats.OtherCase++
		f.repeat(s, t, sendOptions{lowered: true, plain: t.plain}, now)
		return
	case noQuestion:
		if w.r.Rcode == table.RcodeSuccess || w.r.Rcode == table.RcodeName {
			f.mismatched(s, t, now)
			return
		}
	}
	took := now - t.at
	switch {
	case t.query.edns && w.r.refusesEDNS():
		f.repeat(s, t, sendOptions{plain: true, lowered: t.lowered}, now)
	case cut || w.r.Truncated:
		f.answered(sv, took)
		sv.stats.Truncated++
		if ch.tcp != nil {
			f.refusedBy(s, t, table.RcodeServFail, -1, now)
			return
		}
		s.tcp = true
		f.repeat(s, t, sendOptions{tcp: true, plain: t.plain, lowered: t.lowered}, now)
	case !w.r.whole:
		sv.stats.Malformed++
		f.refusedBy(s, t, table.RcodeServFail, -1, now)
	case w.r.Rcode != table.RcodeSuccess && w.r.Rcode != table.RcodeName || w.r.lame():
		rcode := w.r.Rcode
		if rcode == table.RcodeSuccess || rcode > 15 {
			rcode = table.RcodeServFail
		}
		f.refusedBy(s, t, rcode, w.r.ede(), now)
	default:
		f.answered(sv, took)
		f.learn(sv, t, w.r.opt != nil, now)
		f.finish(s, sv, w, now)
	}
}

// answered notes that a server has answered.
func (f *Forwarder) answered(sv *server, took int64) {
	if sv.down() {
		f.log.Info("A name server answers again.", "server", sv.addr)
	}
	sv.answered(took)
}

// learn notes whether a server keeps the case of names and knows EDNS, by an answer that is good.
func (f *Forwarder) learn(sv *server, t *try, edns bool, now int64) {
	switch {
	case t.query.seed != 0:
		sv.lowerSeen = 0
	case t.lowered:
		if sv.lowerSeen++; sv.lowerSeen >= Confirmed {
			sv.lowerSeen, sv.lowerUntil = 0, now+int64(relearn)
			f.log.Info("A name server does not keep the case of names: it is no longer checked.", "server", sv.addr)
		}
	}
	switch {
	case t.query.edns && edns:
		sv.ednsKnown, sv.plainSeen = true, 0
	case t.plain:
		if sv.plainSeen++; sv.plainSeen >= Confirmed {
			sv.plainSeen, sv.plainUntil = 0, now+int64(relearn)
			f.log.Info("A name server does not know EDNS: it is asked without.", "server", sv.addr)
		}
	}
}

const relearn = time.Hour

// try returns the try that an ID belongs to.
func (s *slot) try(ch *channel, id uint16) *try {
	for i := range s.tries {
		if t := &s.tries[i]; t.ch == ch && t.query.id == id {
			return t
		}
	}
	return nil
}

// mismatched ignores a reply with another question. Where there are many, the question is asked
// over TCP.
func (f *Forwarder) mismatched(s *slot, t *try, now int64) {
	sv := t.ch.server
	sv.stats.Mismatched++
	if t.ch.tcp != nil { // nobody else can have sent it
		f.refusedBy(s, t, table.RcodeServFail, -1, now)
		return
	}
	if s.wrong++; s.wrong == maxWrong && !s.tcp {
		s.tcp = true
		f.counts.Distrusted++
		f.repeat(s, t, sendOptions{tcp: true, plain: t.plain, lowered: t.lowered}, now)
	}
}

// distrust asks over TCP what is in flight on a socket that somebody sends guesses to.
func (f *Forwarder) distrust(ch *channel, now int64) {
	if ch.tcp != nil {
		f.retireStream(ch.tcp)
		return
	}
	f.log.Warn("Forged replies arrive on a socket to a name server: its questions are asked over TCP.",
		"server", ch.server.addr, "local", ch.udp.local)
	f.retire(ch.udp)
	for i := range ch.ids {
		if ch.ids[i].state != idInFlight {
			continue
		}
		s := f.slots.slot(ch.ids[i].slot)
		if t := s.try(ch, ch.ids[i].id); t != nil {
			s.tcp = true
			f.counts.Distrusted++
			f.repeat(s, t, sendOptions{tcp: true, plain: t.plain, lowered: t.lowered}, now)
		}
	}
}

// repeat ends a try and sends the question to its server again, in another way.
func (f *Forwarder) repeat(s *slot, t *try, o sendOptions, now int64) {
	sv := t.ch.server
	f.end(t)
	f.resend(s, sv, o, now)
}

func (f *Forwarder) resend(s *slot, sv *server, o sendOptions, now int64) {
	use := s.use
	err := f.send(s, sv, o, now)
	if s.use != use {
		return
	}
	if err != nil && !noRoom(err) {
		f.lost(s, now)
		return
	}
	if err != nil {
		s.step = max(s.step-1, 0)
		s.sendAt = now + int64(f.timing.wait)
	} else {
		s.sendAt = now + f.wait(s, sv, 0)
	}
	f.slots.schedule(s, now)
}

// refusedBy notes that a server has answered with a failure, and goes on with the next one.
func (f *Forwarder) refusedBy(s *slot, t *try, rcode, ede int, now int64) {
	sv := t.ch.server
	sv.stats.Failures++
	for i := range s.servers {
		if s.set.servers[s.order[i]] == sv {
			s.failed |= 1 << i
		}
	}
	if s.rcode == 0 || s.ede < 0 && ede >= 0 {
		s.rcode, s.ede = rcode, ede
	}
	probe := t.probe
	f.end(t)
	if probe && s.outstanding() {
		return // the question is with another server, as usual
	}
	if s.pickable() == 0 {
		f.lost(s, now)
		return
	}
	f.proceed(s, now)
}

// refused notes that the network says that a server cannot be reached. False when the socket has
// been closed.
func (f *Forwarder) refused(ch *channel, err error) bool {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	sv := ch.server
	f.networkError(sv, err)
	for i := range ch.ids {
		if ch.ids[i].state != idInFlight {
			continue
		}
		s := f.slots.slot(ch.ids[i].slot)
		if t := s.try(ch, ch.ids[i].id); t != nil {
			f.end(t)
			f.lost(s, now)
		}
	}
	return ch.udp == nil || !ch.udp.closed
}

// networkError notes an error of the network.
func (f *Forwarder) networkError(sv *server, err error) {
	sv.stats.Errors++
	f.missed(sv)
	f.log.Debug("A name server cannot be reached.", "server", sv.addr, "error", err)
}

// missed notes that a server has not answered.
func (f *Forwarder) missed(sv *server) {
	if sv.fails++; sv.fails == Failing {
		f.log.Warn("A name server does not answer: others are asked first.", "server", sv.addr)
	}
}
