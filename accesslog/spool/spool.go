package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// segment is a file of records. All fields except first are guarded by the lock of the backlog.
type segment struct {
	first, last  uint64 // line numbers, without gaps; last is first-1 for an empty segment
	size         int64  // bytes of complete records
	since, until time.Time
	sealed       bool // closed for writing
	bad          bool // damaged: the file is kept when its lines are finished
	// file is open for reading, so that the lines survive the removal of the directory. Nil: too many
	// files are open.
	file *os.File
}

// maxOpen is the number of segments of a spool that stay open. Most spools have fewer.
const maxOpen = 256

// spool manages the segments of a directory. The list is guarded by the lock of the backlog. Fields
// of the spiller and of the reader are used only by them, without the lock.
type spool struct {
	opts  Options
	segs  []*segment // oldest first
	bytes int64      // of segs

	use sync.Mutex // guards dir, which only the spiller replaces
	dir *spoolDir

	// Fields of the spiller.
	out    *os.File
	outSeg *segment   // segment of out
	opened int        // files of segments
	before *spoolDir  // directory that had the segments to move; nil: none
	moving []*segment // to be copied into dir
	moveAt time.Time  // no move before this time after a failure

	// Fields of the reader. inLast is the last line before inOff.
	in     *os.File
	inOwn  bool // the reader closes in
	inSeg  *segment
	inOff  int64
	inLast uint64
}

// found describes the content of a spool when it was opened.
type found struct {
	done  uint64 // last finished line
	last  uint64 // highest line number
	lines uint64 // unfinished lines
	bytes int64  // bytes of unfinished records, including headers
	notes []error
}

// maxBad is the number of damaged segments to keep for analysis.
const maxBad = 2

// openSpool opens a directory and reads its state. Damage is reported in notes, not as an error.
func openSpool(opts Options) (_ *spool, was found, err error) {
	dir, err := openSpoolDir(opts.Dir, opts.Roots...)
	if err != nil {
		return nil, was, err
	}
	s := &spool{opts: opts, dir: dir}
	defer func() {
		if err != nil {
			dir.close()
		}
	}()
	names, err := dir.names()
	if err != nil {
		return nil, was, err
	}
	content, err := dir.read(cursorName, int64(cursorSize)+1)
	if err == nil {
		was.done, err = parseCursor(content)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		was.notes = append(was.notes, fmt.Errorf("lines may be sent to the collector twice: %w", err))
	}
	var firsts []uint64
	for _, name := range names {
		if first, ok := segmentNumber(name, segmentSuffix); ok {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	was.last = was.done
	for i, first := range firsts {
		var next uint64
		if i+1 < len(firsts) {
			next = firsts[i+1]
		}
		seg, err := s.inspect(first, next)
		if err != nil {
			was.notes = append(was.notes, err)
		}
		if seg == nil {
			continue
		}
		was.last = max(was.last, seg.last)
		if seg.last <= was.done {
			s.dispose(seg)
			continue
		}
		s.keepOpen(seg)
		s.segs = append(s.segs, seg)
		s.bytes += seg.size
		was.lines += seg.last - max(was.done, seg.first-1)
	}
	for i, seg := range s.segs[:max(0, len(s.segs)-1)] {
		seg.until = s.segs[i+1].since
	}
	s.boundTimes(time.Now())
	was.bytes = s.bytes
	return s, was, dir.remove(cursorTempName)
}

// boundTimes moves times in the future to now, so that lines that were spooled while the clock was
// wrong expire.
func (s *spool) boundTimes(now time.Time) {
	for _, seg := range s.segs {
		if seg.since.After(now) {
			seg.since = now
		}
		if seg.until.After(now) {
			seg.until = now
		}
	}
}

// inspect reads the state of an existing segment. Its last line is known from the next segment, or
// from the headers.
func (s *spool) inspect(first, next uint64) (*segment, error) {
	name := segmentName(first, segmentSuffix)
	f, err := s.dir.open(name, unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	seg := &segment{first: first, last: first - 1, size: st.Size(), sealed: true}
	var b [recordHeader]byte
	for off := int64(0); ; {
		n, err := f.ReadAt(b[:], off)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, s.dir.failed("read", name, err)
		}
		h, err := parseHeader(b[:n])
		end := off + recordHeader + int64(h.length)
		whole := err == nil && h.first == seg.last+1
		if whole && off == 0 {
			seg.since = h.at
			// A line has at least one byte
			if next > h.last && next-first <= uint64(seg.size) { // #nosec G115 -- sizes are not negative
				seg.last = next - 1
				return seg, nil
			}
		}
		if whole && end <= seg.size {
			seg.last, seg.until, off = h.last, h.at, end
			continue
		}
		if off == seg.size && off > 0 {
			return seg, nil
		}
		torn := whole || n < recordHeader || b == [recordHeader]byte{}
		left := seg.size - off
		switch seg.size = off; {
		case !torn:
			seg.bad = true
			err = fmt.Errorf("%s is damaged at byte %d: %d bytes are lost, and the file is kept as %s",
				f.Name(), off, left, badSuffix)
		case left == 0:
			err = nil
		default:
			err = errors.Join(fmt.Errorf("%s ends in the middle of a record: the last %d bytes are lost", f.Name(), left),
				f.Truncate(off))
		}
		if off == 0 { // no complete record
			s.dispose(seg)
			return nil, err
		}
		return seg, err
	}
}

// dispose removes the file of a segment, or renames a damaged one.
func (s *spool) dispose(seg *segment) error {
	name := segmentName(seg.first, segmentSuffix)
	if seg.file != nil {
		seg.file.Close()
		seg.file = nil
		s.opened--
	}
	if !seg.bad {
		return s.dir.remove(name)
	}
	if err := unix.Renameat(s.dir.fd(), name, s.dir.fd(), segmentName(seg.first, badSuffix)); err != nil &&
		!errors.Is(err, unix.ENOENT) {
		return s.dir.failed("rename", name, err)
	}
	names, err := s.dir.names()
	var bad []string
	for _, name := range names {
		if _, ok := segmentNumber(name, badSuffix); ok {
			bad = append(bad, name)
		}
	}
	slices.Sort(bad)
	for _, name := range bad[:max(0, len(bad)-maxBad)] {
		err = errors.Join(err, s.dir.remove(name))
	}
	return err
}

// keepOpen opens the file of a segment for reading. Only the spiller calls it.
func (s *spool) keepOpen(seg *segment) {
	if s.opened >= maxOpen {
		return
	}
	f, err := s.dir.open(segmentName(seg.first, segmentSuffix), unix.O_RDONLY)
	if err == nil {
		seg.file = f
		s.opened++
	}
}

// closeFiles closes the files of all segments.
func (s *spool) closeFiles() {
	for _, seg := range s.segs {
		if seg.file != nil {
			seg.file.Close()
			seg.file = nil
		}
	}
}

// directory returns the directory. The caller closes the embedded Dir.
func (s *spool) directory() *spoolDir {
	s.use.Lock()
	defer s.use.Unlock()
	s.dir.Retain()
	return s.dir
}

// read returns the first record of a segment with lines after the given one. size is the size of
// the segment, and file its open file, if any. Only the reader calls it.
func (s *spool) read(seg *segment, file *os.File, size int64, after uint64) (*Record, error) {
	if s.inSeg != seg || s.inLast > after || file != nil && s.in != file {
		s.endRead()
		in := file
		if file == nil {
			dir := s.directory()
			defer dir.Dir.Close()
			var err error
			if in, err = dir.open(segmentName(seg.first, segmentSuffix), unix.O_RDONLY); err != nil {
				return nil, err
			}
		}
		s.in, s.inOwn, s.inSeg, s.inOff, s.inLast = in, file == nil, seg, 0, seg.first-1
	}
	var b [recordHeader]byte
	for {
		if s.inOff+recordHeader > size {
			return nil, errDamaged
		}
		if _, err := s.in.ReadAt(b[:], s.inOff); err != nil {
			return nil, err
		}
		h, err := parseHeader(b[:])
		if err != nil {
			return nil, err
		}
		end := s.inOff + recordHeader + int64(h.length)
		if end > size || h.first != s.inLast+1 {
			return nil, errDamaged
		}
		if h.last > after {
			buf := make([]byte, recordHeader+h.length)
			if _, err := s.in.ReadAt(buf, s.inOff); err != nil {
				return nil, err
			}
			r, err := h.open(buf)
			if err != nil {
				return nil, err
			}
			s.inOff, s.inLast = end, h.last
			return r, nil
		}
		s.inOff, s.inLast = end, h.last
	}
}

// endRead closes the reader's file.
func (s *spool) endRead() {
	if s.in != nil && s.inOwn {
		s.in.Close()
	}
	s.in, s.inSeg = nil, nil
}

// accepts reports whether a record may be appended to a segment.
func (s *spool) accepts(seg *segment, r *Record) bool {
	return !seg.sealed && seg.last+1 == r.First && seg.size < s.opts.segmentSize() &&
		(s.opts.MaxAge == 0 || r.At.Sub(seg.since) < s.opts.MaxAge/8)
}

// create creates a segment for a record, and returns the previous file. Only the spiller calls it.
func (s *spool) create(r *Record) (seg *segment, before *os.File, err error) {
	name := segmentName(r.First, segmentSuffix)
	f, err := s.dir.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if errors.Is(err, fs.ErrExist) { // a finished segment that is no longer listed
		if err = s.dir.remove(name); err == nil {
			f, err = s.dir.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	seg = &segment{first: r.First, last: r.First - 1, since: r.At, until: r.At}
	s.keepOpen(seg)
	before, s.out, s.outSeg = s.out, f, seg
	return seg, before, nil
}

// append writes a record at an offset of the current segment. It truncates a partial write; if that
// fails too, the segment is unusable. Only the spiller calls it.
func (s *spool) append(r *Record, at int64) (usable bool, err error) {
	r.seal()
	if _, err = s.out.WriteAt(r.buf, at); err == nil {
		return true, nil
	}
	return s.out.Truncate(at) == nil, err
}

// isDiskFull reports whether an error means that the disk or quota is full.
func isDiskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// isTransient reports whether an error is unrelated to the file.
func isTransient(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) ||
		errors.Is(err, unix.EINTR)
}
