package accesslog

import (
	"bytes"
	"context"
	"errors"
)

// Sizes in bytes.
const (
	BaseBuffer = 64 << 10   // of a source that sends something
	FlowBuffer = 256 << 10  // of one that fills it
	Quantum    = FlowBuffer // the most that is handed on in one turn, but for a single longer line
	maxTail    = 16 << 10   // of the begun line that an idle source keeps in memory of its own
	// DefaultMaxLine is the longest line that is stored whole.
	DefaultMaxLine = 1 << 20
)

// ErrHeld is for a read while lines wait that were read before.
var ErrHeld = errors.New("the lines that were read before are not handed on yet")

// Lines cuts what one source sends into lines and hands the whole ones on; the begun one stays
// until its rest has come. A line that is longer than max is handed on in pieces, each with an LF.
// The source is read by whoever calls fill, so it may be anything. One goroutine at a time may use
// it.
//
// A caller alternates fill and flush, calls idle when nothing is there to be read, and finish at
// the end of the source.
type Lines struct {
	To      Destination // may be replaced between calls
	Count   *Counters
	Max     int      // bytes of a line without its LF; 0: DefaultMaxLine
	Buffers *Buffers // of several sources; nil: of this one alone, bounded by max

	buf   *buffer // nil while nothing is held
	from  int     // what is before has been handed on
	cut   int     // end of the whole lines
	end   int     // end of what was read
	whole uint64  // lines between from and cut
	fast  bool    // the source fills what it gets
	long  bool    // the begun line is the rest of one of which a piece has been handed on
	piece bool    // a piece of the begun line is counted, but could not be handed on
}

// Fill calls read once, with room for what it finds, and returns what it has returned. It fails
// where whole lines are held.
func (l *Lines) Fill(read func([]byte) (int, error)) (int, error) {
	if l.cut > 0 || l.piece {
		return 0, ErrHeld
	}
	l.makeRoom()
	room := l.buf.bytes[l.end:]
	n, err := read(room)
	if n <= 0 {
		if l.end == 0 {
			l.Release()
		}
		return 0, err
	}
	l.Count.BytesIn.Add(uint64(n))
	if i := bytes.LastIndexByte(room[:n], '\n'); i >= 0 {
		l.cut = l.end + i + 1
		l.whole = CountLines(room[:i+1])
		l.Count.In.Add(l.whole)
		l.long = false
	}
	l.end += n
	if n == len(room) {
		l.fast = true
	} else if n < BaseBuffer/2 {
		l.fast = false
	}
	return n, err
}

var newline = []byte{'\n'}

// CountLines is how many lines end in a batch.
func CountLines(batch []byte) uint64 { return uint64(bytes.Count(batch, newline)) } // #nosec G115 -- not negative

// Held returns how many bytes are held, whole lines and the begun one.
func (l *Lines) Held() int { return l.end }

// Ready returns how many bytes of whole lines are held.
func (l *Lines) Ready() int { return l.cut }

// ExpectMuch lets the next fill take a large buffer: one large read costs less than several.
func (l *Lines) ExpectMuch() { l.fast = true }

// Flows reports whether the next fill takes a large buffer.
func (l *Lines) Flows() bool { return l.fast && l.Size() < min(FlowBuffer, l.longest()+1) }

// makeRoom takes a buffer, or a larger one for a source that fills it. At least one byte is free
// after it.
func (l *Lines) makeRoom() {
	want := BaseBuffer
	if l.fast {
		want = FlowBuffer
	}
	want = min(want, l.longest()+1)
	if l.Size() < want && !l.resize(want) && l.Size() < BaseBuffer {
		l.resize(min(BaseBuffer, want))
	}
}

// longest is the length of the longest line that stays whole, without its LF.
func (l *Lines) longest() int {
	if l.Max <= 0 {
		return DefaultMaxLine
	}
	return l.Max
}

func (l *Lines) Size() int {
	if l.buf == nil {
		return 0
	}
	return len(l.buf.bytes)
}

// resize moves what is held to a buffer of another size, and reports whether there was memory for
// it.
func (l *Lines) resize(size int) bool {
	next := l.Buffers.take(size)
	if next == nil {
		return false
	}
	if l.buf != nil {
		copy(next.bytes, l.buf.bytes[:l.end])
		l.buf.release()
	}
	l.buf = next
	return true
}

// Flush hands on what can be: the whole lines, and a piece of a line for which there is no room.
// After an error the rest is held, and a later call goes on.
func (l *Lines) Flush(ctx context.Context) error {
	for l.from < l.cut {
		if err := l.handOn(ctx, l.from+turn(l.buf.bytes[l.from:l.cut])); err != nil {
			return err
		}
	}
	l.compact()
	if l.end == 0 || l.end < l.Size() {
		return nil
	}
	if want := min(max(2*l.end, FlowBuffer), l.longest()+1); want > l.end && l.resize(want) {
		return nil
	}
	return l.cutPiece(ctx)
}

// turn returns how much of lines is handed on at once: whole lines.
func turn(lines []byte) int {
	if len(lines) <= Quantum {
		return len(lines)
	}
	if n := bytes.LastIndexByte(lines[:Quantum], '\n') + 1; n > 0 {
		return n
	}
	return bytes.IndexByte(lines, '\n') + 1
}

// cutPiece hands on all of a begun line but its last byte, in whose place the LF goes.
func (l *Lines) cutPiece(ctx context.Context) error {
	if !l.long {
		l.long = true
		l.Count.Oversize.Add(1)
	}
	if !l.piece {
		l.piece = true
		l.Count.In.Add(1)
	}
	last := l.end - 1
	kept := l.buf.bytes[last]
	l.buf.bytes[last] = '\n'
	l.cut, l.whole = l.end, 1
	err := l.handOn(ctx, l.end)
	if l.from == 0 { // a line is taken whole or not at all
		l.buf.bytes[last], l.cut, l.whole = kept, 0, 0
		return err
	}
	l.buf.bytes[0] = kept
	l.from, l.cut, l.end, l.piece = 0, 0, 1, false
	return err
}

// handOn writes lines up to an end.
func (l *Lines) handOn(ctx context.Context, end int) error {
	for l.from < end {
		batch := l.buf.bytes[l.from:end]
		n, dropped, err := Deliver(ctx, l.To, batch)
		if n > 0 {
			done := l.whole
			if l.from+n < l.cut {
				done = CountLines(batch[:n])
			}
			lost := min(uint64(max(dropped, 0)), done)
			l.Count.Written.Add(done - lost)
			if lost > 0 {
				l.Count.Drop(CauseDiskFull, lost)
			}
			l.from += n
			l.whole -= done
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			return ErrNothingDone
		}
	}
	return nil
}

var ErrNothingDone = errors.New("the destination has taken nothing and not said why")

// Deliver is Destination.Write, with the lines that were dropped where the destination says it.
func Deliver(ctx context.Context, to Destination, batch []byte) (n, dropped int, err error) {
	if a, ok := to.(Appender); ok {
		n, dropped, err = a.Append(ctx, batch)
	} else {
		n, err = to.Write(ctx, batch)
	}
	return min(n, len(batch)), dropped, err
}

// compact moves the begun line to the front.
func (l *Lines) compact() {
	if l.from == 0 {
		return
	}
	copy(l.buf.bytes, l.buf.bytes[l.from:l.end])
	l.end -= l.from
	l.from, l.cut = 0, 0
	if l.end == 0 && l.Size() > FlowBuffer {
		l.Release()
	}
}

// Idle gives memory back while there is nothing to be read. A begun line stays.
func (l *Lines) Idle() {
	switch {
	case l.cut > 0 || l.buf == nil:
	case l.end == 0:
		l.Release()
	case l.end <= maxTail && l.Size() >= BaseBuffer:
		small := &buffer{bytes: make([]byte, (l.end+512)&^511)}
		copy(small.bytes, l.buf.bytes[:l.end])
		l.buf.release()
		l.buf = small
	}
}

// Finish hands on what is left at the end of the source. A line that was begun gets its LF here.
func (l *Lines) Finish(ctx context.Context) error {
	if err := l.Flush(ctx); err != nil {
		return err
	}
	if l.end == 0 {
		l.Release()
		return nil
	}
	l.buf.bytes[l.end] = '\n'
	l.end++
	l.cut, l.whole, l.long = l.end, 1, false
	l.Count.In.Add(1)
	l.Count.unterminated.Add(1)
	err := l.Flush(ctx)
	if err == nil {
		l.Release()
	}
	return err
}

// Drop gives up what is held, for a cause that is counted. A begun line counts as one.
func (l *Lines) Drop(why Cause) {
	n := l.whole
	if l.end > l.cut {
		if n++; !l.piece {
			l.Count.In.Add(1)
		}
	}
	l.Count.Drop(why, n)
	l.long = false
	l.Release()
}

// Release gives the buffer back, with what is in it.
func (l *Lines) Release() {
	if l.buf != nil {
		l.buf.release()
		l.buf = nil
	}
	l.from, l.cut, l.end, l.whole, l.piece = 0, 0, 0, 0, false
}
