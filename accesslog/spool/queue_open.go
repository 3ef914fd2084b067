package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
	"github.com/nearside-mesh/nearside/rotation/dirs"
)

// QueuedFile returns the path of the file whose lines are in a queue's directory, or "".
func QueuedFile(dir string) string {
	d, err := openSpoolDir(dir)
	if err != nil {
		return ""
	}
	defer d.close()
	b, err := d.read(queuedFileName, unix.PathMax)
	if err != nil {
		return ""
	}
	return string(b)
}

// load opens the segments of an earlier process. It removes a partial line at their ends.
func (q *Queue) load() (notes []error, err error) {
	names, err := q.dir.names()
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, name := range names {
		if n, ok := segmentNumber(name, linesSuffix); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	first, at, err := q.cursor.read()
	if err != nil && len(numbers) > 0 {
		notes = append(notes, fmt.Errorf("lines may be written to the file twice: %w", err))
	}
	for _, n := range numbers {
		f, err := q.dir.open(segmentName(n, linesSuffix), unix.O_RDWR)
		if err != nil {
			return notes, err
		}
		seg, err := newLineSegment(n, f)
		if err != nil {
			return notes, err
		}
		q.segs = append(q.segs, seg)
		if n < first {
			seg.moved = time.Now()
			continue
		}
		if n > first {
			at = 0
		}
		moved, err := seg.count(at)
		if err != nil {
			return notes, err
		}
		if n == first {
			q.at, q.moved = min(at, seg.size), moved
		}
	}
	return notes, nil
}

// count counts the lines of a segment and those before an offset, and cuts a partial line.
func (s *lineSegment) count(at int64) (before uint64, err error) {
	buf := make([]byte, moveBytes)
	var off, whole int64
	for {
		n, err := s.f.ReadAt(buf, off)
		b := buf[:n]
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			whole = off + int64(i) + 1
		}
		if off < at {
			before += accesslog.CountLines(b[:min(int64(n), at-off)])
		}
		s.lines += accesslog.CountLines(b)
		off += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if s.size = whole; whole < off {
		return before, s.f.Truncate(whole)
	}
	return before, nil
}

// Restore skips lines that an earlier process had written to the file when it was killed. stored is
// [rotation.File.Recover] of the file.
func (q *Queue) Restore(stored func(p rotation.Extent, front []byte) int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	extents := q.cursor.found
	q.cursor.found = nil
	seg, at := q.first()
	if seg == nil || len(extents) == 0 || seg.number != q.cursor.segment {
		return nil
	}
	front, err := q.read(seg, at, seg.size)
	if err != nil {
		return err
	}
	for _, p := range extents { // the last range may not be written yet
		if n := stored(p, front); n > 0 {
			n = bytes.LastIndexByte(front[:n], '\n') + 1
			q.at += int64(n)
			q.moved += accesslog.CountLines(front[:n])
			break
		}
	}
	q.cursor.set(seg.number, q.at)
	return nil
}

// reopen opens or creates the directory at the path if it is another one, the cursor, and the
// segments that are not in the directory. It copies the lines of these. The caller has the turn,
// and q.mu is held.
func (q *Queue) reopen() error {
	dir, c, segs := q.dir, q.cursor, q.segs
	result, err := dir.Compare()
	if err != nil {
		return err
	}
	next := dir
	if result == dirs.Other {
		if next, err = dir.reopen(); err != nil {
			return err
		}
	}
	if err = q.use(next); err == nil {
		if q.segs, err = q.copies(segs, next != dir); err != nil { // the old files stay in use
			q.cursor.f.Close()
			q.dir, q.cursor, q.segs = dir, c, segs
		}
	}
	if err != nil {
		if next != dir {
			next.close()
		}
		return err
	}
	for i, s := range segs {
		if s != q.segs[i] {
			s.f.Close()
		}
	}
	q.cursor.set(c.segment, c.at)
	c.f.Close()
	if next != dir {
		dir.close()
	}
	q.dirty = true
	return nil
}

// copies returns segments in the directory: copies of all, or of those that were removed from it.
func (q *Queue) copies(segs []*lineSegment, all bool) (out []*lineSegment, err error) {
	var created []*lineSegment
	for _, old := range segs {
		seg := old
		if all || isRemoved(old.f) {
			if seg, err = q.create(old.number); err != nil {
				break
			}
			created = append(created, seg)
			seg.size, seg.lines, seg.moved = old.size, old.lines, old.moved
			if _, err = io.Copy(seg.f, io.NewSectionReader(old.f, 0, old.size)); err != nil {
				break
			}
		}
		out = append(out, seg)
	}
	if err == nil {
		return out, nil
	}
	for _, s := range created {
		err = errors.Join(err, q.dir.remove(segmentName(s.number, linesSuffix)))
		s.f.Close()
	}
	return nil, err
}

// Close syncs and closes the files. Lines stay on disk. Put fails afterwards.
func (q *Queue) Close() error {
	<-q.turn
	defer func() { q.turn <- struct{}{} }()
	q.mu.Lock()
	if changed, _ := q.changed(); changed {
		_ = q.reopen() // else the lines stay in the directory that was moved
	}
	q.mu.Unlock()
	err := q.Sync()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.close()
	return err
}

// Remove closes the queue and removes its directory. Call it when no lines are left.
func (q *Queue) Remove() error {
	<-q.turn
	defer func() { q.turn <- struct{}{} }()
	q.mu.Lock()
	defer q.mu.Unlock()
	var err error
	for _, s := range q.segs {
		err = errors.Join(err, q.dir.remove(segmentName(s.number, linesSuffix)))
	}
	err = errors.Join(err, q.dir.remove(lineCursorName), q.dir.remove(queuedFileName), q.dir.destroy())
	q.close()
	return err
}

// close closes the files. q.mu is held.
func (q *Queue) close() {
	for _, s := range q.segs {
		s.f.Close()
	}
	if q.dir != nil {
		q.cursor.f.Close()
		q.dir.close()
	}
	q.dir, q.segs, q.at, q.moved, q.buf = nil, nil, 0, 0, nil
}

// Lines returns the number of lines that wait, their bytes, and the age of the segment with the
// oldest one.
func (q *Queue) Lines(now time.Time) (lines uint64, size int64, age time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.segs {
		if !s.moved.IsZero() {
			continue
		}
		if lines == 0 && s.lines > 0 {
			age = now.Sub(time.UnixMicro(int64(s.number))) // #nosec G115 -- at most MaxNumber
		}
		lines += s.lines
		size += s.size
	}
	if lines -= q.moved; lines == 0 {
		age = 0
	}
	return lines, size - q.at, max(age, 0)
}
