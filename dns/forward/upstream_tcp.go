package forward

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	mdns "github.com/miekg/dns"
)

const (
	MaxStreams       = 4
	maxSingleStreams = 16 // to a server that answers only one query per connection
	nextStream       = 64 // questions in flight per stream before another one is opened
	streamStuck      = int64(time.Second)
)

// stream is a TCP connection to a server for concurrent questions (RFC 7766).
type stream struct {
	channel
	f    *Forwarder
	wake chan struct{} // signals data in out
	done chan struct{} // closed to end the stream

	// The forwarder's lock guards these fields.
	out       []byte
	ending    bool
	connected bool
	answers   int
	deepest   int   // maximum of inFlight
	answered  int64 // time of the last answer, or of opening
}

// sendTCP sends a question over a stream. The caller holds the lock.
func (f *Forwarder) sendTCP(s *slot, sv *server, t *try, now int64) error {
	st, err := f.stream(sv, now)
	if err != nil {
		return f.notSent(s, sv, err)
	}
	id, ok := st.take(f.random, s.number)
	if !ok {
		return f.notSent(s, sv, errNoCapacity)
	}
	sv.stats.TCP++
	t.query.pad = sv.tls != nil
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
	if now < sv.singleUntil {
		most, depth = maxSingleStreams, 1
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
	case len(sv.streams) >= most || f.ctx == nil || sv.mayOpen() != nil:
		return nil, errNoCapacity
	}
	st := &stream{f: f, wake: make(chan struct{}, 1), done: make(chan struct{}), answered: now}
	st.server, st.tcp = sv, st
	sv.streams = append(sv.streams, st)
	sv.opened(1)
	f.wg.Add(1)
	go st.run(f.ctx)
	return st, nil
}

// retireStream stops sending questions over a stream. The stream is closed after its last
// question in flight.
func (f *Forwarder) retireStream(st *stream) {
	st.retired = true
	st.server.streams = slices.DeleteFunc(slices.Clone(st.server.streams), func(o *stream) bool { return o == st })
	if st.inFlight == 0 {
		st.finish()
	}
}

// finish ends a stream. The caller holds the lock.
func (st *stream) finish() {
	if !st.ending {
		st.ending = true
		close(st.done)
	}
}

// suspect retires streams without a recent answer, because the connection may be dead.
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

// run connects, and writes queries until the stream ends.
func (st *stream) run(ctx context.Context) {
	f := st.f
	defer f.wg.Done()
	conn, err := f.connect(ctx, st.server)
	if err != nil {
		f.streamEnded(st, err)
		return
	}
	local := conn.LocalAddr().(*net.TCPAddr).AddrPort()
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	f.mu.Lock()
	f.locals[localAddr{st.server.origin.network(), local}] = &st.channel
	st.connected = true
	f.mu.Unlock()
	ended := make(chan error, 1)
	f.wg.Add(1)
	go st.read(conn, ended)
	err = st.write(ctx, conn, ended)
	hangUp(ctx, conn)
	f.mu.Lock()
	f.forgetLocal(&st.channel, local)
	f.mu.Unlock()
	f.streamEnded(st, err)
}

// write writes queries until the stream ends.
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

// read reads replies until either side closes the connection, or it is idle for too long.
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

// streamEnded handles the questions in flight on a stream that ended.
func (f *Forwarder) streamEnded(st *stream, err error) {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	sv := st.server
	if !st.retired {
		f.retireStream(st)
	}
	st.finish()
	sv.opened(-1)
	if f.ctx == nil {
		return
	}
	f.connectionFailed(sv, err)
	retried := st.answers > 0 // the stream worked before, so the server closed an idle connection
	switch {
	case st.inFlight == 0:
	case st.connected && st.deepest > 1:
		// it closes after an answer, whatever else was asked; that may be seen as a reset before any
		retried = true
		sv.singleUntil = now + int64(relearn)
		f.report(sv, slog.LevelInfo,
			"Name server closes TCP connections with queries in flight; each connection gets one query")
	case !retried:
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
		if retried {
			f.repeat(s, t, sendOptions{tcp: true, plain: t.plain, lowered: t.lowered}, now)
			continue
		}
		f.end(t)
		f.queryLost(s, now)
	}
}
