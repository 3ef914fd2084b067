package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// segment is a file of records. All but first change under the lock of the backlog.
type segment struct {
	first, last  uint64 // lines, without a gap; last is first-1 while there are none
	size         int64  // bytes of whole records
	since, until time.Time
	sealed       bool // nothing is appended any more
	bad          bool // damaged: the file is kept once the lines before the damage are done with
}

// spool is the segments of a directory. The list is guarded by the lock of the backlog. What is
// marked as the writer's or the reader's is theirs alone and used without it.
type spool struct {
	opts  Options
	dir   *spoolDir
	segs  []*segment // oldest first
	bytes int64      // of segs

	// The writer's.
	out    *os.File
	outSeg *segment // out is its file

	// The reader's: the file, and the last line before the offset.
	in     *os.File
	inSeg  *segment
	inOff  int64
	inLast uint64
}

// found is what a spool had when it was opened.
type found struct {
	done  uint64 // lines up to here are done with
	last  uint64 // the highest number in use
	lines uint64 // that wait
	bytes int64  // of these, headers included
	notes []error
}

// keptBad is how many damaged segments are kept for whoever wants to look at them.
const keptBad = 2

// openSpool opens a directory and finds out what waits in it. Damage is noted and is no error.
func openSpool(opts Options) (_ *spool, was found, err error) {
	dir, err := openSpoolDir(opts.Dir)
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
		was.notes = append(was.notes, fmt.Errorf("lines that the collector has already may be sent to it again: %w", err))
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
		s.segs = append(s.segs, seg)
		s.bytes += seg.size
		was.lines += seg.last - max(was.done, seg.first-1)
	}
	for i, seg := range s.segs[:max(0, len(s.segs)-1)] {
		seg.until = s.segs[i+1].since
	}
	was.bytes = s.bytes
	return s, was, dir.remove(cursorTempName)
}

// inspect looks at a segment that was left behind. The last line is known from the next segment,
// and else from the headers.
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
			// Lines are no more than bytes.
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
			err = fmt.Errorf("%s is damaged at byte %d: %d bytes are not sent, the file is kept as %s",
				f.Name(), off, left, badSuffix)
		case left == 0:
			err = nil
		default:
			err = errors.Join(fmt.Errorf("%s ends in the middle of a record: its last %d bytes are not sent", f.Name(), left),
				f.Truncate(off))
		}
		if off == 0 { // no record at all
			s.dispose(seg)
			return nil, err
		}
		return seg, err
	}
}

// dispose removes the file of a segment, or puts a damaged one aside.
func (s *spool) dispose(seg *segment) error {
	name := segmentName(seg.first, segmentSuffix)
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
	for _, name := range bad[:max(0, len(bad)-keptBad)] {
		err = errors.Join(err, s.dir.remove(name))
	}
	return err
}

// read returns the first record of a segment that has lines behind after. It is the reader's. size
// is that of the segment.
func (s *spool) read(seg *segment, size int64, after uint64) (*Record, error) {
	if s.inSeg != seg || s.inLast > after {
		s.endRead()
		f, err := s.dir.open(segmentName(seg.first, segmentSuffix), unix.O_RDONLY)
		if err != nil {
			return nil, err
		}
		s.in, s.inSeg, s.inOff, s.inLast = f, seg, 0, seg.first-1
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

// endRead closes what the reader has open.
func (s *spool) endRead() {
	if s.in != nil {
		s.in.Close()
	}
	s.in, s.inSeg = nil, nil
}

// accepts reports whether a record may be appended to a segment.
func (s *spool) accepts(seg *segment, r *Record) bool {
	return !seg.sealed && seg.last+1 == r.First && seg.size < s.opts.segmentSize() &&
		(s.opts.MaxAge == 0 || r.At.Sub(seg.since) < s.opts.MaxAge/8)
}

// create makes the file of a new segment, and returns the one that was written to. It is the
// writer's.
func (s *spool) create(r *Record) (seg *segment, before *os.File, err error) {
	name := segmentName(r.First, segmentSuffix)
	f, err := s.dir.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if errors.Is(err, fs.ErrExist) { // of this number, but not in the list: nothing that waits
		if err = s.dir.remove(name); err == nil {
			f, err = s.dir.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	seg = &segment{first: r.First, last: r.First - 1, since: r.At, until: r.At}
	before, s.out, s.outSeg = s.out, f, seg
	return seg, before, nil
}

// append writes a record behind what the segment that is written to has. What is written in part is
// cut off; where that fails too, the segment must not be appended to any more. It is the writer's.
func (s *spool) append(r *Record, at int64) (usable bool, err error) {
	r.seal()
	if _, err = s.out.WriteAt(r.buf, at); err == nil {
		return true, nil
	}
	return s.out.Truncate(at) == nil, err
}

// isDiskFull reports whether an error goes away with more space.
func isDiskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// isPassing reports whether an error says nothing about the file.
func isPassing(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) ||
		errors.Is(err, unix.EINTR)
}
