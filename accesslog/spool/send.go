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

// Times of connections to collectors.
const (
	FirstBackoff = 100 * time.Millisecond
	MaxBackoff   = 30 * time.Second
	DialTimeout  = 10 * time.Second
	// takeTimeout is the time without progress after which a connection counts as broken.
	takeTimeout = 15 * time.Second
	// stallTime is the time without progress after which a collector is reported, although its
	// connection is open.
	stallTime = 3 * time.Second
	// writeStep is the maximum time of one write, after which the sender checks for other events.
	writeStep = 250 * time.Millisecond
	// StopGrace is how long the sender waits for acknowledgments when the connection or the process
	// ends.
	StopGrace = time.Second
	// minAckPoll and maxAckPoll limit the interval of checks for acknowledgments.
	minAckPoll = time.Millisecond
	maxAckPoll = 50 * time.Millisecond
)

var (
	errFIN       = errors.New("it closed the connection")
	errTakesNone = errors.New("it accepted no data for 15 s")
	errStalled   = errors.New("it accepts connections, but does not read")
)

// Jitter returns the delay before attempt tries, with full jitter.
func Jitter(tries int) time.Duration {
	limit := MaxBackoff
	if tries < 9 { // 100 ms × 2^9 > 30 s
		limit = min(FirstBackoff<<tries, MaxBackoff)
	}
	return rand.N(limit)
}

// Pause waits for d. It returns false if ctx ends first.
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

// send sends lines to the collector until ctx ends.
func (f *Forwarder) send(ctx context.Context) {
	b := f.backlog
	var highest uint64 // highest line number ever sent
	var prefix ackedPrefix
	stalled := false // the last connection took no data
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
			if !stalled {
				f.setFault(nil)
			}
			b.SetDown(false)
			s := &stream{f: f, conn: conn, gone: make(chan struct{}), highest: highest, prefix: prefix, stalled: stalled}
			err = s.run(ctx)
			highest, prefix, stalled = s.highest, s.prefix, s.stalled
			if s.acked > 0 && !stalled { // the kernel of a collector that does not read takes some data too
				tries = 0
			}
			b.Rewind()
		}
		if ctx.Err() != nil {
			return
		}
		b.SetDown(true)
		if !errors.Is(err, errFIN) || b.pending() { // the collector may close an idle connection
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

// ackedPrefix is the acknowledged prefix of a record. It ends at a line.
type ackedPrefix struct {
	first uint64 // first line of the record
	bytes int
}

// sent is a record in flight.
type sent struct {
	r          *Record
	prefix     ackedPrefix // acknowledged before
	begin, end int64       // offsets in the byte stream of the connection
}

// stream is one connection to a collector.
type stream struct {
	f        *Forwarder
	conn     net.Conn
	gone     chan struct{} // closed when the collector closes the connection
	goneErr  error         // set before gone is closed
	highest  uint64
	prefix   ackedPrefix
	window   []sent
	stalled  bool  // the collector takes no data, or was so on the last connection
	accepted int64 // bytes accepted by the local kernel
	acked    int64 // bytes acknowledged by the collector's kernel
}

// run sends until the connection breaks or ctx ends, and records acknowledgments.
func (s *stream) run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.watch()
	}()
	err := s.sendAll(ctx)
	if errors.Is(err, errFIN) || err == nil {
		s.awaitAcks(StopGrace)
	}
	s.pollAcks()
	s.savePrefix()
	s.conn.Close()
	<-ended
	return err
}

// watch detects the end of the connection. It discards unexpected data.
func (s *stream) watch() {
	_, err := io.Copy(io.Discard, s.conn)
	if err == nil {
		err = errFIN
	}
	s.goneErr = err
	close(s.gone)
}

// sendAll returns nil after ctx ends when the lines in memory are sent, or after StopGrace.
func (s *stream) sendAll(ctx context.Context) error {
	b := s.f.backlog
	wait := minAckPoll
	timer := time.NewTimer(0)
	defer timer.Stop()
	var until time.Time // deadline after ctx ends
	stopping := ctx.Done()
	for {
		if s.pollAcks() {
			wait = minAckPoll
			s.reads()
		}
		select {
		case <-s.gone:
			return s.goneErr
		case <-stopping:
			stopping, until = nil, time.Now().Add(StopGrace)
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
		var poll <-chan time.Time
		if len(s.window) > 0 || b.ReadFailed() {
			timer.Reset(wait)
			poll = timer.C
			wait = min(2*wait, maxAckPoll)
		}
		select {
		case <-b.Ready:
		case <-poll:
		case <-s.gone:
		case <-stopping:
		}
	}
}

// write sends a record without its acknowledged prefix.
func (s *stream) write(ctx context.Context, r *Record) error {
	w := sent{r: r, begin: s.accepted}
	if s.prefix.first == r.First && r.Lines > 0 && s.prefix.bytes <= len(r.Payload()) {
		w.prefix = s.prefix
	}
	rest := r.Payload()[w.prefix.bytes:]
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
		s.accepted += int64(n)
		s.repeated(&w, before[:n])
		if s.pollAcks() || n > 0 {
			progress = time.Now()
			s.reads()
		}
		if !s.stalled && time.Since(progress) >= stallTime {
			s.stalled = true
			s.f.setFault(errStalled)
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

// catchUp is how many bytes a collector that has not read before must take on one connection to
// count as available again. It is more than the buffers of the kernels.
const catchUp = 16 << 20

// reads ends the fault of a collector that did not read: it takes more than the buffers hold, or
// everything.
func (s *stream) reads() {
	if s.stalled && (s.acked >= catchUp || !s.f.backlog.pending()) {
		s.stalled = false
		s.f.setFault(nil)
	}
}

// repeated counts lines that were just sent and had been sent before.
func (s *stream) repeated(w *sent, bytesSent []byte) {
	if w.r.Lines == 0 {
		return // a marker
	}
	lines := accesslog.CountLines(bytesSent)
	sentBefore := accesslog.CountLines(w.r.Payload()[:int(s.accepted-w.begin)+w.prefix.bytes-len(bytesSent)])
	from, to := w.r.First+sentBefore, w.r.First+sentBefore+lines // half-open interval
	if from <= s.highest && to > from {
		s.f.backlog.Count.Repeated.Add(min(to-1, s.highest) - from + 1)
	}
	s.highest = max(s.highest, to-1)
}

// pollAcks gets the number of acknowledged bytes from the kernel, and reports whether it increased.
func (s *stream) pollAcks() bool {
	if len(s.window) == 0 {
		return false
	}
	acked := s.accepted
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

// awaitAcks waits until everything is acknowledged, at most for limit.
func (s *stream) awaitAcks(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for wait := minAckPoll; len(s.window) > 0 && Pause(ctx, wait); wait = min(2*wait, maxAckPoll) {
		s.pollAcks()
	}
}

// savePrefix records the acknowledged prefix of the first record that will be sent again.
func (s *stream) savePrefix() {
	if len(s.window) == 0 || s.window[0].r.Lines == 0 { // a marker is sent again
		return
	}
	w := s.window[0]
	s.prefix = w.prefix
	s.prefix.first = w.r.First
	if n := s.acked - w.begin; n > 0 {
		payload := w.r.Payload()
		s.prefix.bytes = bytes.LastIndexByte(payload[:min(int64(w.prefix.bytes)+n, int64(len(payload)))], '\n') + 1
	}
}
