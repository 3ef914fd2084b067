package rotation

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// look is what the active file's reader does at its end: it finds out whether the file is active
// still, and what came in its place. It reports whether there may be more to read at once.
func (r *Reader) look() (more bool, err error) {
	s := r.cur
	if more, err := r.lookForCut(); more || err != nil {
		return more, err
	}
	d, err := openToRead(r.o.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // the directory is gone, and what is open may be written on
	}
	if err != nil {
		return false, err
	}
	defer d.close()
	st, err := d.stat(r.names.base)
	switch {
	case err == nil && s.is(st):
		r.displaced = time.Time{}
		return false, nil
	case err != nil && !isGone(err):
		return false, err
	}
	there := err == nil && uint32(st.Mode)&unix.S_IFMT == unix.S_IFREG
	backups, err := d.scanTwice()
	if err != nil {
		return false, err
	}
	newer := after(backups, r.last)
	if s.stamp < 0 {
		s.stamp = d.find(s, newer)
	}
	if s.stamp >= 0 {
		newer = after(backups, s.stamp)
	}
	switch {
	case !r.o.Follow:
	case len(newer) > 0: // the writer has gone on, however this file was taken away
	case !there:
		return false, nil // no other file is begun, so this one is written still
	case s.stamp >= 0:
	default:
		// Others have replaced it, and its writer notices that only after a while.
		if r.displaced.IsZero() {
			r.displaced = time.Now()
		}
		r.await(d, st)
		if waited := time.Since(r.displaced); waited < displacedFor || waited < 2*displacedFor && st.Size == 0 {
			return false, nil
		}
	}
	r.displaced = time.Time{}
	s.complete = true // nobody writes it any more: what is in it now is all
	return true, nil
}

// await opens the file that others have put at the path, unless that is done: they may put another
// one there before it is begun.
func (r *Reader) await(d *listing, st unix.Stat_t) {
	if n := len(r.waiting); n > 0 && r.waiting[n-1].is(st) {
		return
	}
	s, err := d.openRead(r.names.base)
	if err != nil {
		return // it is looked at again
	}
	r.stats.Replaced++
	if len(r.waiting) == mostWaiting {
		r.waiting[0].f.Close()
		r.waiting = append(r.waiting[:0], r.waiting[1:]...)
		r.stats.Missed++
	}
	r.waiting = append(r.waiting, s)
}

// lookForOther notices that what was returned last is no longer in the file: others have cut it
// off, and it has grown again. It is read on from the end of what is still there; that is its
// beginning where nothing is.
func (r *Reader) lookForOther() error {
	s := r.cur
	if s.zip != nil || r.start == 0 {
		return nil
	}
	begin := s.off - int64(r.end)
	seen := make([]byte, r.end)
	n, err := s.f.ReadAt(seen, begin)
	if err != nil && !errors.Is(err, io.EOF) {
		return &fs.PathError{Op: "read", Path: s.f.Name(), Err: err}
	}
	same := 0
	for same < n && seen[same] == r.buf[same] {
		same++
	}
	if same >= r.start {
		return nil // what was not returned yet is read anew anyway
	}
	r.stats.Truncated++
	if s.off = begin + int64(bytes.LastIndexByte(seen[:same], '\n')+1); s.off == begin {
		s.off = 0
	}
	r.start, r.end, r.seen, r.within, r.expected = 0, 0, 0, false, nil
	return nil
}

// after returns the backups, sorted by stamp, that are later than one.
func after(backups []backup, stamp int64) []backup {
	for i := range backups {
		if backups[i].stamp > stamp {
			return backups[i:]
		}
	}
	return nil
}

// lookForCut notices that the file is shorter than what was read of it. A writer cuts off what it
// could not write whole, and writes it again; others cut off everything. It reports whether there
// is more to read.
func (r *Reader) lookForCut() (more bool, err error) {
	s := r.cur
	var st unix.Stat_t
	if err := unix.Fstat(int(s.f.Fd()), &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: s.f.Name(), Err: err}
	}
	at := r.offset()
	switch {
	case st.Size >= s.off:
		return st.Size > s.off, nil
	case st.Size >= at:
		r.reread() // half of a line is gone, of which nothing was returned
		return st.Size > at, nil
	}
	gone := at - st.Size
	s.off = st.Size
	r.expected = nil
	if st.Size > 0 && gone <= int64(r.start) {
		r.expected = append([]byte(nil), r.buf[int64(r.start)-gone:r.start]...)
	} else {
		r.stats.Truncated++
	}
	r.start, r.end, r.seen, r.within = 0, 0, 0, false
	return false, nil
}

// finish closes a file that was read.
func (r *Reader) finish() {
	if r.cur.stamp >= 0 {
		r.last = r.cur.stamp
	}
	r.cur.f.Close()
	r.cur, r.expected, r.tailing = nil, nil, false
	r.start, r.end, r.seen, r.within = 0, 0, 0, false
}

// mostRetries bounds how often the directory is listed again because a backup was gone when it was
// to be opened.
const mostRetries = 100

// next opens the file that follows: the one that others have put in the place of the last one, else
// the backup that follows that or, where there is none, the active file. It opens none when there
// is none.
func (r *Reader) next() error {
	if len(r.waiting) > 0 {
		r.cur = r.waiting[0]
		r.waiting = append(r.waiting[:0], r.waiting[1:]...)
		return nil
	}
	for range mostRetries {
		d, err := r.list()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		again, err := r.nextIn(d)
		d.close()
		if err != nil || !again {
			return err
		}
	}
	return nil
}

// nextIn is next in one listing of the directory. It reports whether another one is to be made.
func (r *Reader) nextIn(d *listing) (again bool, err error) {
	if newer := after(d.backups, r.last); len(newer) > 0 {
		b := newer[0]
		s, err := d.openBackup(b)
		switch {
		case err == nil:
			r.cur = s
			return false, nil
		case isGone(err):
			r.stats.Missed++
		default:
			r.unread(err)
		}
		r.last = b.stamp
		return true, nil
	}
	s, err := d.openRead(r.names.base)
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// What was active when the directory was listed may be a backup by now.
	now, err := d.scanTwice()
	if err != nil {
		s.f.Close()
		return false, err
	}
	if newer := after(now, r.last); len(newer) > 0 {
		if s.stamp = d.find(s, newer); s.stamp < 0 {
			s.f.Close()
			return true, nil
		}
	}
	r.cur = s
	return false, nil
}
