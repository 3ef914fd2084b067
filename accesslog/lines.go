package accesslog

import (
	"bytes"
	"context"
	"errors"
)

// Sizes in bytes.
const (
	BaseBuffer = 64 << 10   // buffer of an active source
	FlowBuffer = 256 << 10  // buffer of a source that fills the base buffer
	Quantum    = FlowBuffer // maximum size of a batch, except for a longer single line
	maxTail    = 16 << 10   // maximum partial line that an idle source keeps in a separate buffer
	// DefaultMaxLine is the default maximum length of a line in bytes.
	DefaultMaxLine = 1 << 20
)

// ErrPending means that Fill was called before earlier lines were flushed.
var ErrPending = errors.New("earlier lines are not flushed yet")

// Lines splits the data of one source into lines and passes whole lines to a destination. A partial
// line stays in the buffer until the rest arrives. A line longer than Max is split into pieces that
// each end in LF. It is not safe for concurrent use.
//
// A caller alternates Fill and Flush, calls Idle when there is nothing to read, and Finish at the
// end of the source.
type Lines struct {
	To      Destination // may be replaced between calls
	Count   *Counters
	Max     int      // maximum bytes of a line without LF; 0: DefaultMaxLine
	Buffers *Buffers // shared by several sources; nil: unshared buffers without a limit

	buf   *buffer // nil while there is no data
	small *buffer // for the partial line of an idle source; nil: none yet
	from  int     // end of flushed lines
	cut   int     // end of whole lines
	end   int     // end of data
	whole uint64  // lines between from and cut
	fast  bool    // the source fills its buffer
	long  bool    // a piece of the current line was already flushed
	piece bool    // a piece of the partial line was counted, but could not be flushed
}

// Fill calls read once with free buffer space and returns its result. It returns ErrPending while
// there are unflushed lines.
func (l *Lines) Fill(read func([]byte) (int, error)) (int, error) {
	if l.cut > 0 || l.piece {
		return 0, ErrPending
	}
	l.grow()
	free := l.buf.bytes[l.end:]
	n, err := read(free)
	if n <= 0 {
		if l.end == 0 {
			l.Release()
		}
		return 0, err
	}
	l.Count.BytesIn.Add(uint64(n))
	if i := bytes.LastIndexByte(free[:n], '\n'); i >= 0 {
		l.cut = l.end + i + 1
		l.whole = CountLines(free[:i+1])
		l.Count.In.Add(l.whole)
		l.long = false
	}
	l.end += n
	if n == len(free) {
		l.fast = true
	} else if n < BaseBuffer/2 {
		l.fast = false
	}
	return n, err
}

var newline = []byte{'\n'}

// CountLines returns the number of LFs in a batch.
func CountLines(batch []byte) uint64 { return uint64(bytes.Count(batch, newline)) } // #nosec G115 -- not negative

// Held returns the number of buffered bytes.
func (l *Lines) Held() int { return l.end }

// Ready returns the number of buffered bytes in whole lines.
func (l *Lines) Ready() int { return l.cut }

// ExpectMuch lets the next Fill use a large buffer: one large read costs less than several small
// ones.
func (l *Lines) ExpectMuch() { l.fast = true }

// Flows reports whether the next Fill uses a large buffer.
func (l *Lines) Flows() bool { return l.fast && l.Size() < min(FlowBuffer, l.longest()+1) }

// grow allocates a buffer, or a larger one for a source that fills it. Afterwards at least one byte
// is free.
func (l *Lines) grow() {
	want := BaseBuffer
	if l.fast {
		want = FlowBuffer
	}
	want = min(want, l.longest()+1)
	if l.Size() < want && !l.resize(want) && l.Size() < BaseBuffer {
		l.resize(min(BaseBuffer, want))
	}
}

// longest returns the maximum length of a line without its LF.
func (l *Lines) longest() int {
	if l.Max <= 0 {
		return DefaultMaxLine
	}
	return l.Max
}

// Size returns the size of the buffer in bytes.
func (l *Lines) Size() int {
	if l.buf == nil {
		return 0
	}
	return len(l.buf.bytes)
}

// resize moves the data to a buffer of another size. It returns false if the memory limit is
// reached.
func (l *Lines) resize(size int) bool {
	next := l.Buffers.take(size)
	if next == nil {
		return false
	}
	if l.buf != nil {
		copy(next.bytes, l.buf.bytes[:l.end])
		l.releaseBuffer()
	}
	l.buf = next
	return true
}

// Flush writes whole lines to the destination, and a piece of a line that fills the buffer. After
// an error the rest stays buffered for the next call.
func (l *Lines) Flush(ctx context.Context) error {
	for l.from < l.cut {
		if err := l.write(ctx, l.from+batchSize(l.buf.bytes[l.from:l.cut])); err != nil {
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

// batchSize returns the number of bytes of whole lines for one batch.
func batchSize(lines []byte) int {
	if len(lines) <= Quantum {
		return len(lines)
	}
	if n := bytes.LastIndexByte(lines[:Quantum], '\n') + 1; n > 0 {
		return n
	}
	return bytes.IndexByte(lines, '\n') + 1
}

// cutPiece flushes a partial line except for its last byte, whose position the LF takes.
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
	saved := l.buf.bytes[last]
	l.buf.bytes[last] = '\n'
	l.cut, l.whole = l.end, 1
	err := l.write(ctx, l.end)
	if l.from == 0 { // a line is written whole or not at all
		l.buf.bytes[last], l.cut, l.whole = saved, 0, 0
		return err
	}
	l.buf.bytes[0] = saved
	l.from, l.cut, l.end, l.piece = 0, 0, 1, false
	return err
}

// write passes the lines up to end to the destination.
func (l *Lines) write(ctx context.Context, end int) error {
	for l.from < end {
		batch := l.buf.bytes[l.from:end]
		n, dropped, err := Deliver(ctx, l.To, batch)
		if n > 0 {
			done := l.whole
			if l.from+n < l.cut {
				done = CountLines(batch[:n])
			}
			l.Count.Delivered(done, dropped)
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

// ErrNothingDone means that a destination accepted nothing and returned no error.
var ErrNothingDone = errors.New("the destination accepted no lines and returned no error")

// Deliver calls Append if the destination has it, else Write.
func Deliver(ctx context.Context, to Destination, batch []byte) (n, dropped int, err error) {
	if a, ok := to.(Appender); ok {
		n, dropped, err = a.Append(ctx, batch)
	} else {
		n, err = to.Write(ctx, batch)
	}
	return min(n, len(batch)), dropped, err
}

// compact moves the partial line to the start of the buffer.
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

// Idle releases memory while there is nothing to read. A partial line is kept.
func (l *Lines) Idle() {
	switch {
	case l.cut > 0 || l.buf == nil:
	case l.end == 0:
		l.Release()
	case l.end <= maxTail && l.Size() >= BaseBuffer:
		small := l.small
		if l.small = nil; small == nil || len(small.bytes) <= l.end {
			small = &buffer{bytes: make([]byte, (l.end+512)&^511)}
		}
		copy(small.bytes, l.buf.bytes[:l.end])
		l.buf.release()
		l.buf = small
	}
}

// maxSmall is the size up to which a source keeps its buffer for partial lines, so that a source
// with much data does not allocate one after each read.
const maxSmall = 2 << 10

// releaseBuffer releases the buffer, or keeps it for the next partial line.
func (l *Lines) releaseBuffer() {
	if n := len(l.buf.bytes); l.buf.of == nil && n <= maxSmall && l.small == nil {
		l.small = l.buf
	} else {
		l.buf.release()
	}
	l.buf = nil
}

// Finish flushes the remaining data at the end of the source. A partial line gets an LF.
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

// Drop discards the buffered data and counts it as dropped. A partial line counts as one.
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

// Release discards the buffered data and releases the buffer.
func (l *Lines) Release() {
	if l.buf != nil {
		l.releaseBuffer()
	}
	l.from, l.cut, l.end, l.whole, l.piece = 0, 0, 0, 0, false
}
