package rotation

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"
)

// Sizes of a [Reader], in bytes.
const (
	defaultMaxLine = 1 << 20
	readSize       = 64 << 10
)

// PollEach is how often it is worth asking a [Reader] for more where it has returned io.EOF.
const PollEach = 200 * time.Millisecond

// seenSize is how much of what was returned a [Reader] keeps, to see whether it is still there.
const seenSize = 4 << 10

// mostWaiting bounds the files that others have put in the place of the one that is read.
const mostWaiting = 16

// displacedFor is how long a file that others have put another one in the place of is read on: so
// long a [File] may take to notice that, and longer.
const displacedFor = 2 * lookEach

// ReaderOptions are those of a [Reader]. All but Path may be zero.
type ReaderOptions struct {
	Path string // of the active file
	// Since leaves out backups that ended before, by their names. Lines of others are not looked at.
	Since time.Time
	// Follow reads on when others write: io.EOF is then no end, and Next may be called again.
	Follow bool
	// MaxLine is how many bytes of a line are returned at once; 0 is 1 MiB.
	MaxLine int
}

// Line is a line or, where it is longer than MaxLine, a part of one.
type Line struct {
	Text []byte // without its LF; valid until the next call
	More bool   // the line goes on in the next Line
	Open bool   // it has no LF: its file ends within it
}

// ReaderStats say what a [Reader] has met.
type ReaderStats struct {
	Lines     uint64 // that were returned
	Missed    int    // backups, at least, that were removed before they could be read
	Truncated int    // times that others cut the active file off
	Replaced  int    // times that others removed the active file or put another one in its place
	// Unread names backups that could not be read, or not to their end, and why; the first 16 of them.
	Unread []error
}

// Reader reads the lines of a file and of its backups, plain or compressed, oldest first, while a
// [File] of this or of another process writes and rotates them. Each line is returned once and in
// order, also when its file is renamed, compressed or removed meanwhile. Lines are missing where a
// backup is removed before it is begun, which is counted as Missed; where others cut the active
// file off before all of it was read, which is counted as Truncated; and where they put other files
// in its place twice within [PollEach], or before its end was reached. It opens files to read them
// alone, takes no lock and follows no symbolic link in the directory. Memory is bounded by MaxLine.
//
// A line is returned once its LF is there. What stands behind the last LF is returned too, as Open,
// when its file is at its end for good; without Follow that is also the active file.
//
// It is for one goroutine, and starts none.
type Reader struct {
	o     ReaderOptions
	names naming
	cur   *source // nil between two files
	last  int64   // stamp of the last backup that is done with
	final bool    // without Follow: the file that is open is the last
	ended bool

	buf        []byte
	start, end int  // what was read and not returned yet
	seen       int  // so much of that has no LF
	within     bool // the last Line has More

	// expected was returned already from behind the end of a file that was cut off: when it comes
	// again it is left out.
	expected  []byte
	displaced time.Time // since when another file is at the path of this one
	waiting   []*source // those others, open, in their order
	tailing   bool      // the end was reached, so that others may have had the time to change what was read
	stats     ReaderStats
}

// NewReader begins to read. Without Follow there must be something to read: the error is
// fs.ErrNotExist where neither the file nor a backup is there, and fs.ErrPermission where it may
// not be read.
func NewReader(o ReaderOptions) (*Reader, error) {
	if err := (Options{Path: o.Path}).Validate(); err != nil {
		return nil, err
	}
	if o.MaxLine < 0 {
		return nil, fmt.Errorf("maxLine: %d is negative; set a value >= 0", o.MaxLine)
	}
	if o.MaxLine == 0 {
		o.MaxLine = defaultMaxLine
	}
	r := &Reader{o: o, names: namesOf(filepath.Base(o.Path)), last: -1}
	d, err := r.list()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if o.Follow {
			return r, nil
		}
		return nil, err
	case err != nil:
		return nil, err
	}
	defer d.close()
	for _, b := range d.backups {
		if !o.Since.IsZero() && b.stamp < o.Since.UnixMilli() {
			r.last = b.stamp
		}
	}
	if err := r.next(); err != nil {
		return nil, err
	}
	if r.cur == nil && !o.Follow && len(d.backups) == 0 {
		return nil, &fs.PathError{Op: "open", Path: o.Path, Err: fs.ErrNotExist}
	}
	return r, nil
}

// Close lets the open file go.
func (r *Reader) Close() error {
	r.ended = true
	for _, s := range r.waiting {
		s.f.Close()
	}
	r.waiting = nil
	if r.cur == nil {
		return nil
	}
	err := r.cur.f.Close()
	r.cur = nil
	return err
}

// Stats returns what was met so far.
func (r *Reader) Stats() ReaderStats { return r.stats }

// Next returns the next line. The error is io.EOF where there is none now, which with Follow may
// change, or says that the active file cannot be read. A backup that cannot be read is left out,
// and in the Stats.
func (r *Reader) Next() (Line, error) {
	for !r.ended {
		if r.cur == nil {
			if err := r.next(); err != nil {
				return Line{}, err
			}
			if r.cur == nil {
				r.ended = !r.o.Follow
				return Line{}, io.EOF
			}
		}
		if line, ok := r.take(); ok {
			return line, nil
		}
		n, err := r.fill()
		if n > 0 {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			if r.cur.stamp < 0 {
				return Line{}, err
			}
			if !r.cur.failed {
				r.unread(err)
			}
			r.cur.failed, r.cur.complete = true, true
		}
		if !r.cur.complete {
			more, err := r.look()
			if err != nil {
				return Line{}, err
			}
			if more {
				continue
			}
			if r.o.Follow {
				r.reread()
				return Line{}, io.EOF
			}
			r.cur.complete, r.final = true, true
		}
		if line, ok := r.rest(); ok {
			return line, nil
		}
		r.finish()
		r.ended = r.final
	}
	return Line{}, io.EOF
}

// take returns the next line of the buffer.
func (r *Reader) take() (Line, bool) {
	if r.expected != nil {
		return Line{}, false // what comes is compared first
	}
	unread := r.buf[r.start:r.end]
	if i := bytes.IndexByte(unread[r.seen:], '\n'); i >= 0 && r.seen+i <= r.o.MaxLine {
		n := r.seen + i
		return r.give(unread[:n], n+1, false), true
	}
	r.seen = len(unread)
	if len(unread) > r.o.MaxLine {
		return r.give(unread[:r.o.MaxLine], r.o.MaxLine, true), true
	}
	return Line{}, false
}

// give returns the bytes of a line and takes n from the buffer.
func (r *Reader) give(text []byte, n int, more bool) Line {
	r.start += n
	r.seen, r.within = 0, more
	if !more {
		r.stats.Lines++
	}
	return Line{Text: text, More: more}
}

// rest returns what stands behind the last LF of a file that is at its end.
func (r *Reader) rest() (Line, bool) {
	r.compare(true)
	if r.start == r.end && !r.within {
		return Line{}, false
	}
	line := r.give(r.buf[r.start:r.end], r.end-r.start, false)
	line.Open = true
	return line, true
}

// fill reads more into the buffer.
func (r *Reader) fill() (int, error) {
	if r.cur.atEnd() {
		return 0, io.EOF // and what was returned stays in the buffer; see lookForCut
	}
	if r.tailing {
		r.tailing = false
		if err := r.lookForOther(); err != nil {
			return 0, err
		}
	}
	if len(r.buf)-r.end < readSize/2 {
		kept := min(r.start, seenSize)
		unread := r.buf[r.start-kept : r.end]
		size := len(r.buf)
		for size < len(unread)+readSize {
			size = max(2*size, readSize)
		}
		next := r.buf
		if size > len(r.buf) {
			next = make([]byte, size)
		}
		r.end = copy(next, unread)
		r.buf, r.start = next, kept
	}
	n, err := r.cur.read(r.buf[r.end:])
	r.end += n
	r.compare(false)
	return n, err
}

// offset is where in the file what was read but not returned begins.
func (r *Reader) offset() int64 {
	return r.cur.off - int64(r.end-r.start)
}

// reread forgets what stands behind the last LF, for it may be cut off before it is read the next
// time.
func (r *Reader) reread() {
	r.cur.off = r.offset()
	r.end, r.seen, r.tailing = r.start, 0, true
}

// compare leaves out what was returned before the file was cut off and is written again.
func (r *Reader) compare(end bool) {
	if r.expected == nil {
		return
	}
	unread := r.buf[r.start:r.end]
	switch {
	case len(unread) >= len(r.expected):
		if bytes.HasPrefix(unread, r.expected) {
			r.start += len(r.expected)
		}
	case bytes.HasPrefix(r.expected, unread):
		if !end {
			return
		}
		r.start = r.end
	}
	r.expected, r.seen = nil, 0
}

// unread notes a backup that cannot be read.
func (r *Reader) unread(err error) {
	if len(r.stats.Unread) < 16 {
		r.stats.Unread = append(r.stats.Unread, err)
	}
}
