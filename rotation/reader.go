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

// Sizes of a [Reader] in bytes.
const (
	defaultMaxLine = 1 << 20
	readSize       = 64 << 10
)

// PollEach is a useful interval for calls of [Reader.Next] after io.EOF.
const PollEach = 200 * time.Millisecond

// seenSize is the number of returned bytes that a [Reader] remembers, to detect rewritten files.
const seenSize = 4 << 10

// maxWaiting limits the replacements of the active file that wait to be read.
const maxWaiting = 16

// displacedFor is how long a file is read after another process has replaced it. A [File] may take
// almost that long to detect the replacement.
const displacedFor = 2 * checkEach

// ReaderOptions configures a [Reader]. Only Path is required.
type ReaderOptions struct {
	Path string // of the active file
	// Since skips backups that ended before this time, according to their names.
	Since time.Time
	// Follow waits for new lines: Next may be called again after io.EOF.
	Follow bool
	// MaxLine is the maximum length of a returned line in bytes; 0: 1 MiB.
	MaxLine int

	partBytes int // of [Parts]; 0: partSize
}

// Line is a line, or a piece of a line longer than MaxLine.
type Line struct {
	Text []byte // without LF; valid until the next call
	More bool   // the line continues in the next Line
	Open bool   // the file ends within the line
}

// ReaderStats describes the input of a [Reader].
type ReaderStats struct {
	Lines     uint64 // returned lines
	Missed    int    // minimum number of backups removed before they could be read
	Truncated int    // times other processes truncated the active file
	Replaced  int    // times other processes removed or replaced the active file
	// Unread lists the first 16 errors of backups that could not be read completely.
	Unread []error
}

// Reader reads the lines of a file and of its backups, plain or compressed, oldest first, while a
// [File] of any process writes and rotates them. It returns each line once and in order, even if
// its file is renamed, compressed, or removed in the meantime. Lines are missing if a backup is
// removed before it is opened (counted as Missed), if another process truncates the active file
// before it was read (counted as Truncated), or if other processes replace the file twice within
// [PollEach] or before its end was reached. Reader opens files only for reading, takes no locks,
// and follows no symbolic links in the directory. Its memory is bounded by MaxLine.
//
// A line is returned when its LF is present. Data after the last LF is returned as Open when its
// file is complete; without Follow, this includes the active file.
//
// It is not safe for concurrent use, and starts no goroutines.
type Reader struct {
	o     ReaderOptions
	names naming
	cur   *source // nil between two files
	last  int64   // timestamp of the last finished backup
	final bool    // without Follow: the open file is the last one
	ended bool

	buf        []byte
	start, end int  // unreturned data
	seen       int  // bytes of it without an LF
	within     bool // the last Line has More

	// expected holds returned bytes that the writer has truncated. They are skipped when they are
	// written again.
	expected  []byte
	displaced time.Time // when another file was first seen at the path
	waiting   []*source // replacements, open, in order
	tailing   bool      // the end was reached, so the file may have been rewritten
	stats     ReaderStats
}

// NewReader returns a reader. Without Follow, the error is fs.ErrNotExist if there is neither a
// file nor a backup, and fs.ErrPermission if it must not be read.
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

// Close closes all open files.
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

// Stats returns the current counters.
func (r *Reader) Stats() ReaderStats { return r.stats }

// Next returns the next line. The error is io.EOF if there is none, which may change with Follow,
// or an error of the active file. Unreadable backups are skipped and listed in Stats.
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
			more, err := r.checkActive()
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
		if line, ok := r.lastLine(); ok {
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
		return Line{}, false // compare must run first
	}
	unread := r.buf[r.start:r.end]
	if i := bytes.IndexByte(unread[r.seen:], '\n'); i >= 0 && r.seen+i <= r.o.MaxLine {
		n := r.seen + i
		return r.emit(unread[:n], n+1, false), true
	}
	r.seen = len(unread)
	if len(unread) > r.o.MaxLine {
		return r.emit(unread[:r.o.MaxLine], r.o.MaxLine, true), true
	}
	return Line{}, false
}

// emit returns text as a line and removes n bytes from the buffer.
func (r *Reader) emit(text []byte, n int, more bool) Line {
	r.start += n
	r.seen, r.within = 0, more
	if !more {
		r.stats.Lines++
	}
	return Line{Text: text, More: more}
}

// lastLine returns the data after the last LF of a complete file.
func (r *Reader) lastLine() (Line, bool) {
	r.compare(true)
	if r.start == r.end && !r.within {
		return Line{}, false
	}
	line := r.emit(r.buf[r.start:r.end], r.end-r.start, false)
	line.Open = true
	return line, true
}

// fill reads more data into the buffer.
func (r *Reader) fill() (int, error) {
	if r.cur.atEnd() {
		return 0, io.EOF // keep the returned data in the buffer for checkTruncated
	}
	if r.tailing {
		r.tailing = false
		if err := r.checkRewritten(); err != nil {
			return 0, err
		}
	}
	if len(r.buf)-r.end < readSize/2 {
		seen := min(r.start, seenSize)
		unread := r.buf[r.start-seen : r.end]
		size := len(r.buf)
		for size < len(unread)+readSize {
			size = max(2*size, readSize)
		}
		next := r.buf
		if size > len(r.buf) {
			next = make([]byte, size)
		}
		r.end = copy(next, unread)
		r.buf, r.start = next, seen
	}
	n, err := r.cur.read(r.buf[r.end:])
	r.end += n
	r.compare(false)
	return n, err
}

// offset returns the file offset of the first unreturned byte.
func (r *Reader) offset() int64 {
	return r.cur.off - int64(r.end-r.start)
}

// reread discards the data after the last LF, because it may be truncated before the next read.
func (r *Reader) reread() {
	r.cur.off = r.offset()
	r.end, r.seen, r.tailing = r.start, 0, true
}

// compare skips bytes that were returned before the writer truncated and rewrote them.
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

// unread records an error of a backup.
func (r *Reader) unread(err error) {
	if len(r.stats.Unread) < 16 {
		r.stats.Unread = append(r.stats.Unread, err)
	}
}
