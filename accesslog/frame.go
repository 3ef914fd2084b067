package accesslog

import (
	"bytes"
	"context"
	"errors"
)

// Sizes in bytes.
const (
	baseBuffer = 64 << 10   // of a source that sends something
	flowBuffer = 256 << 10  // of one that fills it
	quantum    = flowBuffer // the most that is handed on in one turn, but for a single longer line
	maxTail    = 16 << 10   // of the begun line that an idle source keeps in memory of its own
	// DefaultMaxLine is the longest line that is stored whole.
	DefaultMaxLine = 1 << 20
)

// errHeld is for a read while lines wait that were read before.
var errHeld = errors.New("the lines that were read before are not handed on yet")

// lines cuts what one source sends into lines and hands the whole ones on; the begun one stays
// until its rest has come. A line that is longer than max is handed on in pieces, each with an LF.
// The source is read by whoever calls fill, so it may be anything. One goroutine at a time may use
// it.
//
// A caller alternates fill and flush, calls idle when nothing is there to be read, and finish at
// the end of the source.
type lines struct {
	to     Destination // may be replaced between calls
	count  *counters
	max    int     // bytes of a line without its LF; 0: DefaultMaxLine
	memory *memory // of several sources; nil: of this one alone, bounded by max

	buf   *buffer // nil while nothing is held
	from  int     // what is before has been handed on
	cut   int     // end of the whole lines
	end   int     // end of what was read
	whole uint64  // lines between from and cut
	fast  bool    // the source fills what it gets
	long  bool    // the begun line is the rest of one of which a piece has been handed on
	piece bool    // a piece of the begun line is counted, but could not be handed on
}

// fill calls read once, with room for what it finds, and returns what it has returned. It fails
// where whole lines are held.
func (l *lines) fill(read func([]byte) (int, error)) (int, error) {
	if l.cut > 0 || l.piece {
		return 0, errHeld
	}
	l.makeRoom()
	room := l.buf.bytes[l.end:]
	n, err := read(room)
	if n <= 0 {
		if l.end == 0 {
			l.release()
		}
		return 0, err
	}
	l.count.bytesIn.Add(uint64(n))
	if i := bytes.LastIndexByte(room[:n], '\n'); i >= 0 {
		l.cut = l.end + i + 1
		l.whole = countLines(room[:i+1])
		l.count.in.Add(l.whole)
		l.long = false
	}
	l.end += n
	if n == len(room) {
		l.fast = true
	} else if n < baseBuffer/2 {
		l.fast = false
	}
	return n, err
}

var newline = []byte{'\n'}

// countLines is how many lines end in a batch.
func countLines(batch []byte) uint64 { return uint64(bytes.Count(batch, newline)) } // #nosec G115 -- not negative

// flows reports whether the next fill takes a large buffer.
func (l *lines) flows() bool { return l.fast && l.size() < min(flowBuffer, l.longest()+1) }

// makeRoom takes a buffer, or a larger one for a source that fills it. At least one byte is free
// after it.
func (l *lines) makeRoom() {
	want := baseBuffer
	if l.fast {
		want = flowBuffer
	}
	want = min(want, l.longest()+1)
	if l.size() < want && !l.resize(want) && l.size() < baseBuffer {
		l.resize(min(baseBuffer, want))
	}
}

// longest is the length of the longest line that stays whole, without its LF.
func (l *lines) longest() int {
	if l.max <= 0 {
		return DefaultMaxLine
	}
	return l.max
}

func (l *lines) size() int {
	if l.buf == nil {
		return 0
	}
	return len(l.buf.bytes)
}

// resize moves what is held to a buffer of another size, and reports whether there was memory for
// it.
func (l *lines) resize(size int) bool {
	next := l.memory.take(size)
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

// flush hands on what can be: the whole lines, and a piece of a line for which there is no room.
// After an error the rest is held, and a later call goes on.
func (l *lines) flush(ctx context.Context) error {
	for l.from < l.cut {
		if err := l.handOn(ctx, l.from+turn(l.buf.bytes[l.from:l.cut])); err != nil {
			return err
		}
	}
	l.compact()
	if l.end == 0 || l.end < l.size() {
		return nil
	}
	if want := min(max(2*l.end, flowBuffer), l.longest()+1); want > l.end && l.resize(want) {
		return nil
	}
	return l.cutPiece(ctx)
}

// turn returns how much of lines is handed on at once: whole lines.
func turn(lines []byte) int {
	if len(lines) <= quantum {
		return len(lines)
	}
	if n := bytes.LastIndexByte(lines[:quantum], '\n') + 1; n > 0 {
		return n
	}
	return bytes.IndexByte(lines, '\n') + 1
}

// cutPiece hands on all of a begun line but its last byte, in whose place the LF goes.
func (l *lines) cutPiece(ctx context.Context) error {
	if !l.long {
		l.long = true
		l.count.oversize.Add(1)
	}
	if !l.piece {
		l.piece = true
		l.count.in.Add(1)
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
func (l *lines) handOn(ctx context.Context, end int) error {
	for l.from < end {
		batch := l.buf.bytes[l.from:end]
		n, dropped, err := write(ctx, l.to, batch)
		if n > 0 {
			done := l.whole
			if l.from+n < l.cut {
				done = countLines(batch[:n])
			}
			lost := min(uint64(max(dropped, 0)), done)
			l.count.written.Add(done - lost)
			if lost > 0 {
				l.count.drop(CauseDiskFull, lost)
			}
			l.from += n
			l.whole -= done
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			return errNothingDone
		}
	}
	return nil
}

var errNothingDone = errors.New("the destination has taken nothing and not said why")

// write is Destination.Write, with the lines that were dropped where the destination says it.
func write(ctx context.Context, to Destination, batch []byte) (n, dropped int, err error) {
	if a, ok := to.(Appender); ok {
		n, dropped, err = a.Append(ctx, batch)
	} else {
		n, err = to.Write(ctx, batch)
	}
	return min(n, len(batch)), dropped, err
}

// compact moves the begun line to the front.
func (l *lines) compact() {
	if l.from == 0 {
		return
	}
	copy(l.buf.bytes, l.buf.bytes[l.from:l.end])
	l.end -= l.from
	l.from, l.cut = 0, 0
	if l.end == 0 && l.size() > flowBuffer {
		l.release()
	}
}

// idle gives memory back while there is nothing to be read. A begun line stays.
func (l *lines) idle() {
	switch {
	case l.cut > 0 || l.buf == nil:
	case l.end == 0:
		l.release()
	case l.end <= maxTail && l.size() >= baseBuffer:
		small := &buffer{bytes: make([]byte, (l.end+512)&^511)}
		copy(small.bytes, l.buf.bytes[:l.end])
		l.buf.release()
		l.buf = small
	}
}

// finish hands on what is left at the end of the source. A line that was begun gets its LF here.
func (l *lines) finish(ctx context.Context) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	if l.end == 0 {
		l.release()
		return nil
	}
	l.buf.bytes[l.end] = '\n'
	l.end++
	l.cut, l.whole, l.long = l.end, 1, false
	l.count.in.Add(1)
	l.count.unterminated.Add(1)
	err := l.flush(ctx)
	if err == nil {
		l.release()
	}
	return err
}

// drop gives up what is held, for a cause that is counted. A begun line counts as one.
func (l *lines) drop(why Cause) {
	n := l.whole
	if l.end > l.cut {
		if n++; !l.piece {
			l.count.in.Add(1)
		}
	}
	l.count.drop(why, n)
	l.long = false
	l.release()
}

// release gives the buffer back, with what is in it.
func (l *lines) release() {
	if l.buf != nil {
		l.buf.release()
		l.buf = nil
	}
	l.from, l.cut, l.end, l.whole, l.piece = 0, 0, 0, 0, false
}
