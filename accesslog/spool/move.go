package spool

import (
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/rotation/dirs"
)

// checkEach is the interval of checks of the directory.
const checkEach = 500 * time.Millisecond

// checkDirectory compares the directory at the path with the open one. If it is another one,
// checkDirectory opens or creates it, and schedules the move of all segments into it. Only the
// spiller calls it.
func (b *Backlog) checkDirectory() {
	result, err := b.spool.dir.Compare()
	if result == dirs.Other {
		err = b.replaceDirectory()
	}
	if err == nil && result != dirs.Same {
		b.dirChanges.Add(1)
	}
	if err != nil || len(b.spool.moving) == 0 {
		b.noteMove(err)
	}
}

// noteMove records and logs the state of a move.
func (b *Backlog) noteMove(err error) {
	b.mu.Lock()
	known := err == nil && b.moveErr == nil || err != nil && b.moveErr != nil && err.Error() == b.moveErr.Error()
	b.moveErr = err
	b.mu.Unlock()
	if !known && err != nil {
		b.log.Error("spool: the directory cannot be used", "error", err)
	}
}

// replaceDirectory continues in the directory that is at the path now.
func (b *Backlog) replaceDirectory() error {
	s := b.spool
	next, err := s.dir.reopen()
	if err != nil {
		return err
	}
	if err := s.setAside(next); err != nil {
		next.close()
		return err
	}
	s.use.Lock()
	b.mu.Lock()
	before := s.dir
	s.dir, s.moving = next, append([]*segment(nil), s.segs...)
	b.saved, b.dirDirty = math.MaxUint64, true // the new directory has no cursor
	b.mu.Unlock()
	s.use.Unlock()
	if s.before != nil {
		s.before.close()
	}
	s.before, s.moveAt = before, time.Time{}
	before.unlock() // it may be the next directory again
	b.log.Warn("spool: the directory was removed or replaced; it was opened again", "dir", s.opts.Dir,
		"segments", len(s.moving))
	notify(b.unsynced)
	return nil
}

// setAside renames segments of another spool, which the directory had before, so that no file is
// overwritten.
func (s *spool) setAside(next *spoolDir) error {
	names, err := next.names()
	for _, name := range names {
		first, ok := segmentNumber(name, segmentSuffix)
		if !ok || s.has(next, name) {
			continue
		}
		if e := unix.Renameat(next.fd(), name, next.fd(), segmentName(first, foreignSuffix)); e != nil {
			err = errors.Join(err, next.failed("rename", name, e))
		}
	}
	return err
}

// has reports whether a file of a directory is a segment of this spool.
func (s *spool) has(dir *spoolDir, name string) bool {
	var st unix.Stat_t
	if unix.Fstatat(dir.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	for _, seg := range s.segs {
		var own unix.Stat_t
		if seg.file != nil && unix.Fstat(int(seg.file.Fd()), &own) == nil && own.Dev == st.Dev && own.Ino == st.Ino {
			return true
		}
	}
	return false
}

// moveAll moves the remaining segments, up to the first failure.
func (b *Backlog) moveAll() {
	b.spool.moveAt = time.Time{}
	for n := -1; n != len(b.spool.moving); {
		n = len(b.spool.moving)
		b.moveOne()
	}
}

// moveOne moves a segment into the directory. It repeats a failed move later. Only the spiller
// calls it.
func (b *Backlog) moveOne() {
	s := b.spool
	if len(s.moving) == 0 || time.Now().Before(s.moveAt) {
		return
	}
	seg := s.moving[0]
	b.mu.Lock()
	finished := !slices.Contains(s.segs, seg)
	b.mu.Unlock()
	if !finished {
		switch err := b.move(seg); {
		case errors.Is(err, errSegmentGone):
			b.mu.Lock()
			b.damaged(seg, err)
			b.mu.Unlock()
		case err != nil:
			s.moveAt = time.Now().Add(checkEach)
			b.noteMove(err)
			return
		}
	}
	_ = s.before.remove(segmentName(seg.first, segmentSuffix)) // else it stays in a directory without use
	if s.moving = s.moving[1:]; len(s.moving) == 0 {
		_ = errors.Join(s.before.remove(cursorName), s.before.remove(lockName)) // the same
		s.before.close()
		s.before = nil
		b.noteMove(nil)
	}
}

// errSegmentGone means that a segment was removed that was not open.
var errSegmentGone = errors.New("its file was removed with its directory")

// move copies a segment from its open file into the directory.
func (b *Backlog) move(seg *segment) error {
	s, name := b.spool, segmentName(seg.first, segmentSuffix)
	if s.has(s.dir, name) {
		return nil
	}
	from := seg.file
	if from == nil {
		f, err := s.before.open(name, unix.O_RDONLY)
		if err != nil {
			return errSegmentGone
		}
		defer f.Close()
		from = f
	}
	to, err := s.dir.open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.NewSectionReader(from, 0, seg.size))
	if err = errors.Join(err, to.Sync()); err != nil {
		return errors.Join(err, to.Close(), s.dir.remove(name))
	}
	var read *os.File
	if seg.file != nil {
		if read, err = s.dir.open(name, unix.O_RDONLY); err != nil {
			return errors.Join(err, to.Close(), s.dir.remove(name))
		}
	}
	b.mu.Lock()
	seg.file, read = read, seg.file
	if seg == s.outSeg {
		s.out, to = to, s.out
		b.out = s.out
	}
	b.mu.Unlock()
	if read != nil {
		read.Close()
	}
	return to.Close()
}
