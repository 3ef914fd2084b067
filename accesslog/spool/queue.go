package spool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
	"github.com/nearside-mesh/nearside/rotation/dirs"
)

// ErrQueueFull means that a [Queue] has reached its size limit.
var ErrQueueFull = errors.New("the spool has reached its size limit")

// QueueOptions configures a [Queue]. Dir and File are required.
type QueueOptions struct {
	File     string        // path of the file of the lines; see [QueuedFile]
	Dir      string        // used only by the queue; it is created
	Roots    []string      // see [Options]
	MaxBytes int64         // size of the files; 0: 1 GiB
	Sync     rotation.Sync // when written lines are synced; each second needs calls of [Queue.Sync]
}

// Queue holds whole lines on disk, in order, until they are moved to their file. Unlike a
// [Backlog], it has no lines in memory: Put returns when the lines are in a file, so that the
// process may be killed at any time.
//
// The lines are in numbered segments. The cursor file has the position of the first line that was
// not moved, and the extents of the write that is moving lines. All files stay open, so that lines
// survive the removal of the directory.
//
// Put is safe for concurrent use. One goroutine calls Move and Sync.
type Queue struct {
	opts QueueOptions
	turn chan struct{} // holds a token while nothing writes

	mu     sync.Mutex // held for moments; guards the fields below
	dir    *spoolDir
	cursor *cursor
	segs   []*lineSegment // oldest first; never empty after the first Put
	at     int64          // offset in the first segment that is not moved
	moved  uint64         // lines before at
	dirty  bool
	buf    []byte // of Move
}

// lineSegment is a file of lines.
type lineSegment struct {
	number   uint64 // microseconds since 1970 when it was created, increased if necessary
	f        *os.File
	dev, ino uint64
	size     int64 // of whole lines
	lines    uint64
	torn     bool // bytes after size must be removed
	moved    time.Time
}

// Names and sizes of files.
const (
	linesSuffix      = ".lines"
	lineCursorName   = "position"
	queuedFileName   = "path"
	lineSegmentBytes = 1 << 20 // less in a small queue, more in a large one
	// maxLineSegments bounds the number of open files.
	maxLineSegments = 128
	moveBytes       = accesslog.BaseBuffer
	// movedLinger is how long moved lines stay on disk. The writer of a FIFO may be killed after Put
	// and before it removes the lines from the FIFO. Then its note refers to these lines.
	movedLinger = time.Second
)

// OpenQueue opens or creates a queue. Damage is logged by the caller with the notes.
func OpenQueue(opts QueueOptions) (q *Queue, notes []error, err error) {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = defaultSpoolBytes
	}
	q = &Queue{opts: opts, turn: make(chan struct{}, 1)}
	q.turn <- struct{}{}
	dir, err := openSpoolDir(opts.Dir, opts.Roots...)
	if err != nil {
		return nil, nil, err
	}
	if err := q.use(dir); err != nil {
		dir.close()
		return nil, nil, err
	}
	if notes, err = q.load(); err != nil {
		q.close()
		return nil, nil, err
	}
	return q, notes, nil
}

// use opens or creates the cursor in a directory, and makes both those of the queue.
func (q *Queue) use(dir *spoolDir) error {
	c, err := openCursor(dir)
	if err != nil {
		return err
	}
	if err := dir.replace(queuedFileName, queuedFileName+".tmp", []byte(q.opts.File), false); err != nil {
		c.f.Close()
		return err
	}
	q.dir, q.cursor = dir, c
	return nil
}

// Put appends whole lines, completely or not at all, and returns how many bytes are stored. The
// extent of the write goes to the note of the context, see [rotation.WithNote].
func (q *Queue) Put(ctx context.Context, batch []byte) (int, error) {
	if len(batch) == 0 {
		return 0, nil
	}
	if batch[len(batch)-1] != '\n' {
		return 0, errUnterminated
	}
	select {
	case <-q.turn:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() { q.turn <- struct{}{} }()
	seg, err := q.tail(int64(len(batch)))
	if err != nil {
		return 0, err
	}
	p := rotation.Extent{Dev: seg.dev, Ino: seg.ino, Offset: seg.size, Length: len(batch)}
	rotation.Note(ctx, p)
	if _, err := seg.f.WriteAt(batch, seg.size); err != nil {
		seg.torn = seg.f.Truncate(seg.size) != nil
		p.Length = 0
		rotation.Note(ctx, p)
		return 0, err
	}
	if q.opts.Sync == rotation.SyncEachBatch {
		if err := rotation.SyncFile(seg.f); err != nil {
			return 0, errors.Join(err, seg.f.Truncate(seg.size))
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	seg.size += int64(len(batch))
	seg.lines += accesslog.CountLines(batch)
	q.dirty = true
	return len(batch), nil
}

// Fits returns an error if the queue has no space for n bytes.
func (q *Queue) Fits(n int, now time.Time) error {
	q.sweep(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.disk()+int64(n) > q.opts.MaxBytes {
		return ErrQueueFull
	}
	return nil
}

// tail returns the segment for the next lines. The caller has the turn.
func (q *Queue) tail(more int64) (*lineSegment, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dir == nil {
		return nil, ErrClosed
	}
	if q.disk()+more > q.opts.MaxBytes {
		return nil, ErrQueueFull
	}
	var last *lineSegment
	if n := len(q.segs); n > 0 {
		last = q.segs[n-1]
		if isRemoved(last.f) {
			if err := q.reopen(); err != nil {
				return nil, err
			}
			last = q.segs[n-1]
		}
		if last.torn {
			if err := last.f.Truncate(last.size); err != nil {
				return nil, err
			}
			last.torn = false
		}
	}
	if last != nil && last.size < max(min(lineSegmentBytes, q.opts.MaxBytes/8), q.opts.MaxBytes/maxLineSegments) {
		return last, nil
	}
	number := uint64(max(time.Now().UnixMicro(), 1)) // #nosec G115 -- positive
	if last != nil {
		number = max(number, last.number+1)
	}
	seg, err := q.create(number)
	if err != nil {
		return nil, err
	}
	q.segs = append(q.segs, seg)
	return seg, nil
}

func (q *Queue) create(number uint64) (*lineSegment, error) {
	f, err := q.dir.open(segmentName(number, linesSuffix), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return nil, err
	}
	return newLineSegment(number, f)
}

func newLineSegment(number uint64, f *os.File) (*lineSegment, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, err
	}
	return &lineSegment{number: number, f: f, dev: uint64(st.Dev), ino: st.Ino, size: st.Size}, nil
}

// disk returns the size of all segments.
func (q *Queue) disk() (n int64) {
	for _, s := range q.segs {
		n += s.size
	}
	return n
}

// Move passes the oldest lines, about 64 KiB, to a function that returns how many bytes it has
// stored. more reports whether lines are left. Lines that cannot be read are skipped and lost.
func (q *Queue) Move(ctx context.Context, to func(context.Context, []byte) (int, error)) (lines, lost uint64,
	more bool, err error) {
	q.sweep(time.Now())
	q.mu.Lock()
	seg, at := q.first()
	if seg == nil {
		q.mu.Unlock()
		return 0, 0, false, nil
	}
	size := seg.size
	q.mu.Unlock()
	batch, err := q.read(seg, at, size)
	if err != nil {
		if isTransient(err) {
			return 0, 0, true, err
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		lost = seg.lines - q.moved
		q.at, q.moved = seg.size, seg.lines
		return 0, lost, true, nil
	}
	n, err := to(rotation.WithNote(ctx, func(p rotation.Extent) { q.cursor.moving(seg.number, at, p) }), batch)
	q.mu.Lock()
	defer q.mu.Unlock()
	lines = accesslog.CountLines(batch[:n])
	q.at += int64(n)
	q.moved += lines
	q.cursor.set(seg.number, q.at)
	seg, _ = q.first()
	return lines, 0, seg != nil, err
}

// first returns the first segment with lines to move, and their offset. q.mu is held.
func (q *Queue) first() (*lineSegment, int64) {
	for i, s := range q.segs {
		switch {
		case !s.moved.IsZero():
			continue
		case q.at < s.size:
			return s, q.at
		case i == len(q.segs)-1:
			return nil, 0 // the tail, which may grow
		}
		s.moved, q.at, q.moved = time.Now(), 0, 0
		q.cursor.set(q.segs[i+1].number, 0)
	}
	return nil, 0
}

// read returns whole lines of a segment from an offset. The result is valid until the next call.
// The error io.EOF means that the file is shorter than its lines.
func (q *Queue) read(seg *lineSegment, at, size int64) ([]byte, error) {
	want := min(size-at, moveBytes)
	for {
		if int64(cap(q.buf)) < want {
			q.buf = make([]byte, want)
		}
		b := q.buf[:want]
		if _, err := seg.f.ReadAt(b, at); err != nil {
			return nil, err
		}
		if n := bytes.LastIndexByte(b, '\n') + 1; n > 0 {
			return b[:n], nil
		}
		if want == size-at {
			return nil, io.EOF // the file was replaced by other bytes
		}
		want = min(2*want, size-at)
	}
}

// sweep removes the files of segments that were moved some time ago.
func (q *Queue) sweep(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.segs) > 0 && !q.segs[0].moved.IsZero() && now.Sub(q.segs[0].moved) >= movedLinger {
		_ = q.dir.remove(segmentName(q.segs[0].number, linesSuffix)) // else the next process removes it
		q.segs[0].f.Close()
		q.segs = q.segs[1:]
	}
}

// Recover returns how much of front is stored in an extent of this queue; see
// [rotation.File.Recover].
func (q *Queue) Recover(p rotation.Extent, front []byte) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.Length <= 0 || p.Length > maxPayload || p.Offset < 0 || p.Before < 0 || p.Before > maxPayload {
		return 0
	}
	for _, s := range q.segs {
		if s.dev == p.Dev && s.ino == p.Ino && p.Offset <= s.size {
			stored := make([]byte, min(int64(p.Length)+1, s.size-p.Offset))
			n, _ := s.f.ReadAt(stored, p.Offset) // less is stored then
			done, _ := rotation.Recovered(stored[:n], p, front)
			return done
		}
	}
	return 0
}

// Sync syncs written lines, unless each batch or none is synced. It also recreates the directory,
// the cursor, and segments that were removed or replaced.
func (q *Queue) Sync() error {
	err := q.checkFiles()
	q.mu.Lock()
	dirty := q.dirty
	q.dirty = false
	var f *os.File
	if n := len(q.segs); n > 0 {
		f = q.segs[n-1].f
	}
	q.mu.Unlock()
	if dirty && f != nil && q.opts.Sync != rotation.SyncNever {
		if e := rotation.SyncFile(f); !errors.Is(e, os.ErrClosed) { // closed: its lines are copied or moved
			err = errors.Join(err, e)
		}
	}
	return err
}

// checkFiles recreates what another process has removed or replaced.
func (q *Queue) checkFiles() error {
	q.mu.Lock()
	changed, err := q.changed()
	q.mu.Unlock()
	if !changed || err != nil {
		return err
	}
	<-q.turn
	defer func() { q.turn <- struct{}{} }()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reopen()
}

// changed reports whether another process has removed or replaced the directory or a file of the
// queue. q.mu is held.
func (q *Queue) changed() (bool, error) {
	if q.dir == nil {
		return false, nil
	}
	result, err := q.dir.Compare()
	return result == dirs.Other || isRemoved(q.cursor.f) ||
		slices.ContainsFunc(q.segs, func(s *lineSegment) bool { return isRemoved(s.f) }), err
}

// isRemoved reports whether an open file has no name any more.
func isRemoved(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
}
