package forward

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"time"

	mdns "github.com/miekg/dns"
)

const (
	MaxStreams      = 4
	maxStreamsAlone = 16 // to a server that answers one query of a connection only
	nextStream      = 64 // questions in flight on each stream, until one more is opened
	streamStuck     = int64(time.Second)
)

// stream is a TCP connection to a server, for many questions at a time (RFC 7766).
type stream struct {
	channel
	f    *Forwarder
	wake chan struct{} // there is something to write
	done chan struct{} // the stream ends

	// Guarded by the forwarder's lock.
	out       []byte
	ending    bool
	connected bool
	answers   int
	deepest   int   // questions in flight at a time
	answered  int64 // when it last brought an answer, or was opened
}

// sendTCP sends a question over a stream. The caller holds the lock.
func (f *Forwarder) sendTCP(s *slot, sv *server, t *try, now int64) error {
	st, err := f.stream(sv, now)
	if err != nil {
		return f.notSent(s, sv, err)
	}
	id, ok := st.take(f.random, s.number)
	if !ok {
		return f.notSent(s, sv, errNoRoom)
	}
	sv.stats.TCP++
	t.query.id, t.ch = id, &st.channel
	st.deepest = max(st.deepest, st.inFlight)
	q := s.question()
	at := len(st.out)
	st.out = t.query.appendTo(append(st.out, 0, 0), &q)
	binary.BigEndian.PutUint16(st.out[at:], uint16(len(st.out)-at-2))
	select {
	case st.wake <- struct{}{}:
	default:
	}
	return nil
}

// stream returns a stream for the next question to a server.
func (f *Forwarder) stream(sv *server, now int64) (*stream, error) {
	most, depth := MaxStreams, maxInFlight
	if now < sv.aloneUntil {
		most, depth = maxStreamsAlone, 1
	}
	var best *stream
	for _, st := range sv.streams {
		if best == nil || st.inFlight < best.inFlight {
			best = st
		}
	}
	switch {
	case best != nil && best.inFlight < min(depth, nextStream),
		best != nil && len(sv.streams) >= most && best.inFlight < depth:
		return best, nil
	case len(sv.streams) >= most || f.ctx == nil:
		return nil, errNoRoom
	}
	st := &stream{f: f, wake: make(chan struct{}, 1), done: make(chan struct{}), answered: now}
	st.server, st.tcp = sv, st
	sv.streams = append(sv.streams, st)
	f.wg.Add(1)
	go st.run(f.ctx)
	return st, nil
}

// retireStream takes a stream out of use. It is closed with the last question in flight on it.
func (f *Forwarder) retireStream(st *stream) {
	st.retired = true
	st.server.streams = slices.DeleteFunc(slices.Clone(st.server.streams), func(o *stream) bool { return o == st })
	if st.inFlight == 0 {
		st.finish()
	}
}

// finish makes a stream end. The caller holds the lock.
func (st *stream) finish() {
	if !st.ending {
		st.ending = true
		close(st.done)
	}
}

// suspect takes streams out of use that have brought nothing for long: the connection may be dead
// without a word.
func (f *Forwarder) suspect(s *slot, now int64) {
	for i := range s.tries {
		ch := s.tries[i].ch
		if ch == nil || ch.tcp == nil || ch.retired || now-ch.tcp.answered < streamStuck ||
			now-s.tries[i].at < streamStuck/2 {
			continue
		}
		f.retireStream(ch.tcp)
	}
}

// run connects, and writes what is to be written until the stream ends.
func (st *stream) run(ctx context.Context) {
	f := st.f
	defer f.wg.Done()
	conn, err := f.dialer.DialContext(ctx, "tcp", st.server.addr.String())
	if err != nil {
		f.streamEnded(st, err)
		return
	}
	local := conn.LocalAddr().(*net.TCPAddr).AddrPort()
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	f.mu.Lock()
	f.locals[local] = &st.channel
	st.connected = true
	f.mu.Unlock()
	ended := make(chan error, 1)
	f.wg.Add(1)
	go st.read(conn, ended)
	err = st.write(ctx, conn, ended)
	_ = conn.Close()
	f.mu.Lock()
	f.forgetLocal(&st.channel, local)
	f.mu.Unlock()
	f.streamEnded(st, err)
}

// write writes until the stream ends.
func (st *stream) write(ctx context.Context, conn net.Conn, ended <-chan error) error {
	var out []byte
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-st.done:
			return nil
		case err := <-ended:
			return err
		case <-st.wake:
		}
		st.f.mu.Lock()
		out, st.out = st.out, out[:0]
		st.f.mu.Unlock()
		if err := conn.SetWriteDeadline(time.Now().Add(st.f.timing.dial)); err != nil {
			return err
		}
		if _, err := conn.Write(out); err != nil {
			return err
		}
	}
}

// read reads until the connection is closed, by either side, or brings nothing for a while.
func (st *stream) read(conn net.Conn, ended chan<- error) {
	defer st.f.wg.Done()
	w := st.f.worker()
	defer st.f.workers.Put(w)
	in := mdns.Conn{Conn: conn}
	for {
		if err := conn.SetReadDeadline(time.Now().Add(st.f.timing.idle)); err != nil {
			ended <- err
			return
		}
		m, err := in.ReadMsgHeader(nil)
		if err != nil {
			ended <- err
			return
		}
		st.f.mu.Lock()
		st.answers++
		st.answered = st.f.clock()
		st.f.mu.Unlock()
		st.f.received(&st.channel, w, m, false)
	}
}

// streamEnded goes on with the questions that were in flight on a stream.
func (f *Forwarder) streamEnded(st *stream, err error) {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !st.retired {
		f.retireStream(st)
	}
	st.finish()
	if f.ctx == nil {
		return
	}
	sv := st.server
	again := st.answers > 0 // it was good before: the connection was closed as a question was sent
	switch {
	case st.inFlight == 0:
	case st.connected && st.deepest > 1:
		// it closes after an answer, whatever else was asked; that may be seen as a reset before any
		again = true
		sv.aloneUntil = now + int64(relearn)
		f.log.Info("A name server closes TCP connections with questions in flight: it is asked one on each.",
			"server", sv.addr)
	case !again:
		f.networkError(sv, err)
	}
	for i := range st.ids {
		if st.ids[i].state != idInFlight {
			continue
		}
		s := f.slots.slot(st.ids[i].slot)
		t := s.try(&st.channel, st.ids[i].id)
		if t == nil {
			continue
		}
		if again {
			f.repeat(s, t, sendOptions{tcp: true, plain: t.plain, lowered: t.lowered}, now)
			continue
		}
		f.end(t)
		f.lost(s, now)
	}
}
