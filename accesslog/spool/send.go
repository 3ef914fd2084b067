package spool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
)

// Times of the connection to a collector.
const (
	FirstBackoff = 100 * time.Millisecond
	MostBackoff  = 30 * time.Second
	DialTimeout  = 10 * time.Second
	// takeTimeout is how long a collector may take nothing until the connection counts as broken.
	takeTimeout = 15 * time.Second
	// writeStep is how long a write may hang until the sender looks at what else there is.
	writeStep = 250 * time.Millisecond
	// Farewell is how long acknowledgements are waited for when the connection ends, by the collector
	// or by us.
	Farewell = time.Second
	// ackFirst and ackMost are between looks at acknowledgements.
	ackFirst = time.Millisecond
	ackMost  = 50 * time.Millisecond
)

var (
	errFIN       = errors.New("it has closed the connection")
	errTakesNone = errors.New("it has taken nothing for 15 s")
)

// Jitter is the time until a try, with full jitter.
func Jitter(tries int) time.Duration {
	most := MostBackoff
	if tries < 9 { // 100 ms × 2^9 > 30 s
		most = min(FirstBackoff<<tries, MostBackoff)
	}
	return rand.N(most)
}

// Pause waits, and reports whether ctx has not ended.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send brings lines to the collector until ctx ends.
func (f *Forwarder) send(ctx context.Context) {
	b := f.backlog
	var highest uint64 // line that was ever sent
	var part partial
	for tries := 0; ; {
		if !b.pending() {
			select {
			case <-b.Ready:
				continue
			case <-ctx.Done():
				return
			}
		}
		conn, err := f.dial(ctx)
		if err == nil {
			f.setFault(nil)
			b.SetDown(false)
			s := &stream{f: f, conn: conn, gone: make(chan struct{}), highest: highest, part: part}
			err = s.run(ctx)
			highest, part = s.highest, s.part
			if s.acked > 0 {
				tries = 0
			}
			b.Rewind()
		}
		if ctx.Err() != nil {
			return
		}
		b.SetDown(true)
		if !errors.Is(err, errFIN) || b.pending() { // an idle connection may be closed
			f.setFault(err)
		}
		if !Pause(ctx, Jitter(tries)) {
			return
		}
		tries++
	}
}

func (f *Forwarder) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	return f.opts.Dial(ctx, "tcp", f.opts.Address)
}

// partial is the part of a record that was acknowledged: whole lines at its begin.
type partial struct {
	first uint64 // of the record
	bytes int
}

// sent is a record on its way.
type sent struct {
	r          *Record
	part       partial // was acknowledged before
	begin, end int64   // its place among the bytes of the connection
}

// stream is one connection to a collector.
type stream struct {
	f       *Forwarder
	conn    net.Conn
	gone    chan struct{} // closed when the collector has ended its side
	goneErr error         // set before
	highest uint64
	part    partial
	window  []sent
	written int64 // bytes that this kernel has taken
	acked   int64 // bytes that the other kernel has acknowledged
}

// run sends until the connection breaks or ctx ends, and notes what was acknowledged.
func (s *stream) run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.watch()
	}()
	err := s.sendAll(ctx)
	if errors.Is(err, errFIN) || err == nil {
		s.awaitAcks(Farewell)
	}
	s.look()
	s.notePart()
	s.conn.Close()
	<-ended
	return err
}

// watch reads what nobody is to send, to see the end.
func (s *stream) watch() {
	_, err := io.Copy(io.Discard, s.conn)
	if err == nil {
		err = errFIN
	}
	s.goneErr = err
	close(s.gone)
}

// sendAll returns nil when ctx has ended and what was in memory is on its way, or a second has
// passed.
func (s *stream) sendAll(ctx context.Context) error {
	b := s.f.backlog
	wait := ackFirst
	timer := time.NewTimer(0)
	defer timer.Stop()
	var until time.Time // the end
	stopping := ctx.Done()
	for {
		if s.look() {
			wait = ackFirst
		}
		select {
		case <-s.gone:
			return s.goneErr
		case <-stopping:
			stopping, until = nil, time.Now().Add(Farewell)
		default:
		}
		if !until.IsZero() && (b.Spooled() || time.Now().After(until)) {
			return nil
		}
		if r := b.Take(); r != nil {
			if err := s.write(ctx, r); err != nil {
				return err
			}
			continue
		}
		if !until.IsZero() {
			return nil
		}
		timer.Stop()
		var again <-chan time.Time
		if len(s.window) > 0 || b.ReadFailed() {
			timer.Reset(wait)
			again = timer.C
			wait = min(2*wait, ackMost)
		}
		select {
		case <-b.Ready:
		case <-again:
		case <-s.gone:
		case <-stopping:
		}
	}
}

// write sends a record, but for the part that was acknowledged.
func (s *stream) write(ctx context.Context, r *Record) error {
	w := sent{r: r, begin: s.written}
	if s.part.first == r.First && s.part.bytes <= len(r.Payload()) {
		w.part = s.part
	}
	rest := r.Payload()[w.part.bytes:]
	w.end = w.begin + int64(len(rest))
	s.window = append(s.window, w)
	progress := time.Now()
	for len(rest) > 0 {
		if err := s.conn.SetWriteDeadline(time.Now().Add(writeStep)); err != nil {
			return err
		}
		n, err := s.conn.Write(rest)
		before := rest
		rest = rest[n:]
		s.written += int64(n)
		s.repeated(&w, before[:n])
		if s.look() || n > 0 {
			progress = time.Now()
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if time.Since(progress) >= takeTimeout {
			return errTakesNone
		}
		select {
		case <-s.gone:
			return s.goneErr
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
	}
	return nil
}

// repeated counts the lines of a record whose end was sent just now, and had been sent before.
func (s *stream) repeated(w *sent, bytesSent []byte) {
	lines := accesslog.CountLines(bytesSent)
	sentBefore := accesslog.CountLines(w.r.Payload()[:int(s.written-w.begin)+w.part.bytes-len(bytesSent)])
	from, to := w.r.First+sentBefore, w.r.First+sentBefore+lines // half open
	if from <= s.highest && to > from {
		s.f.backlog.Count.Repeated.Add(min(to-1, s.highest) - from + 1)
	}
	s.highest = max(s.highest, to-1)
}

// look asks the kernel what was acknowledged, and reports whether that is more than before.
func (s *stream) look() bool {
	if len(s.window) == 0 {
		return false
	}
	acked := s.written
	if left, err := unacknowledged(s.conn); err != nil {
		return false
	} else if acked -= left; acked <= s.acked {
		return false
	}
	s.acked = acked
	n := 0
	for _, w := range s.window {
		if w.end > acked {
			break
		}
		n++
	}
	if n > 0 {
		last := s.window[n-1].r
		s.f.backlog.Ack(last.Last(), last.At, 0)
		clear(s.window[:n])
		s.window = s.window[n:]
	}
	return true
}

// awaitAcks waits until everything is acknowledged, or for a time.
func (s *stream) awaitAcks(most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	for wait := ackFirst; len(s.window) > 0 && Pause(ctx, wait); wait = min(2*wait, ackMost) {
		s.look()
	}
}

// notePart remembers which lines of the first record that is to be sent again were acknowledged.
func (s *stream) notePart() {
	if len(s.window) == 0 {
		return
	}
	w := s.window[0]
	s.part = w.part
	s.part.first = w.r.First
	if n := s.acked - w.begin; n > 0 {
		payload := w.r.Payload()
		s.part.bytes = bytes.LastIndexByte(payload[:min(int64(w.part.bytes)+n, int64(len(payload)))], '\n') + 1
	}
}
