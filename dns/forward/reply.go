package forward

import (
	"log/slog"
	"time"

	"github.com/nearside-mesh/nearside/dns/table"
)

// worker has the reusable memory of a goroutine that reads and forwards replies.
type worker struct {
	in   []byte
	r    response
	pack []byte
	out  []byte
}

func (f *Forwarder) worker() *worker { return f.workers.Get().(*worker) }

// received handles a message from a server. The argument cut reports that the message was longer.
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
			f.report(sv, slog.LevelInfo, "Name server responds again")
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
	if w.r.opt != nil && w.r.Rcode != table.RcodeBadVers {
		sv.ednsKnown, sv.plainSeen, sv.plainUntil = true, 0, 0
	}
	elapsed := now - t.at
	switch {
	case t.query.edns && w.r.refusesEDNS():
		f.repeat(s, t, sendOptions{plain: true, lowered: t.lowered}, now)
	case cut || w.r.Truncated:
		f.answered(sv, elapsed)
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
		f.answered(sv, elapsed)
		f.learn(sv, t, now)
		f.finish(s, sv, w, now)
	}
}

// answered records an answer of a server.
func (f *Forwarder) answered(sv *server, elapsed int64) {
	if sv.down() {
		f.report(sv, slog.LevelInfo, "Name server responds again")
	}
	sv.answered(elapsed)
}

// learn records, from a good answer, whether a server preserves case and supports EDNS. Once a
// server has shown that it does, this never changes: it may forward replies of the servers of one
// domain, whose owner could otherwise turn off both for all domains.
func (f *Forwarder) learn(sv *server, t *try, now int64) {
	switch {
	case t.query.seed != 0:
		sv.caseKnown, sv.lowerSeen, sv.lowerUntil = true, 0, 0
	case t.lowered && !sv.caseKnown:
		if sv.lowerSeen++; sv.lowerSeen >= Confirmed {
			sv.lowerSeen, sv.lowerUntil = 0, now+int64(relearn)
			f.report(sv, slog.LevelInfo,
				"Name server does not preserve the case of names; replies are no longer checked for it")
		}
	}
	if t.plain && !sv.ednsKnown {
		if sv.plainSeen++; sv.plainSeen >= Confirmed {
			sv.plainSeen, sv.plainUntil = 0, now+int64(relearn)
			f.report(sv, slog.LevelInfo,
				"Name server does not seem to support EDNS; most queries to it are sent without")
		}
	}
}

const relearn = time.Hour

// try returns the try with an ID, or nil.
func (s *slot) try(ch *channel, id uint16) *try {
	for i := range s.tries {
		if t := &s.tries[i]; t.ch == ch && t.query.id == id {
			return t
		}
	}
	return nil
}

// mismatched ignores a reply with another question. After several, the question is sent over TCP.
func (f *Forwarder) mismatched(s *slot, t *try, now int64) {
	sv := t.ch.server
	sv.stats.Mismatched++
	if t.ch.tcp != nil { // over TCP, the reply is from the server
		f.refusedBy(s, t, table.RcodeServFail, -1, now)
		return
	}
	if s.wrong++; s.wrong == maxWrong && !s.tcp {
		s.tcp = true
		f.counts.Distrusted++
		f.repeat(s, t, sendOptions{tcp: true, plain: t.plain, lowered: t.lowered}, now)
	}
}

// distrust repeats the questions in flight on a socket over TCP, because forged replies arrive on
// it.
func (f *Forwarder) distrust(ch *channel, now int64) {
	if ch.tcp != nil {
		f.retireStream(ch.tcp)
		return
	}
	f.report(ch.server, slog.LevelWarn,
		"Forged replies received on a socket to a name server; its queries are repeated over TCP", "local", ch.udp.local)
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

// repeat ends a try and sends the question to the same server with other options.
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
	if err != nil && !lacksCapacity(err) {
		f.queryLost(s, now)
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

// refusedBy records a failure reply, and asks the next server.
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
		return // another server has the question too
	}
	if s.pickable() == 0 {
		f.queryLost(s, now)
		return
	}
	f.proceed(s, now)
}

// socketError handles a network error. It returns false if the socket is closed.
func (f *Forwarder) socketError(ch *channel, err error) bool {
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
			f.queryLost(s, now)
		}
	}
	return ch.udp == nil || !ch.udp.closed
}

// networkError counts a network error.
func (f *Forwarder) networkError(sv *server, err error) {
	sv.stats.Errors++
	f.missed(sv)
	f.log.Debug("Name server is unreachable", "server", sv.addr, "error", err)
}

// missed counts a question without an answer.
func (f *Forwarder) missed(sv *server) {
	if sv.fails++; sv.fails == Failing {
		f.report(sv, slog.LevelWarn, "Name server does not respond; other servers are asked first")
	}
}
