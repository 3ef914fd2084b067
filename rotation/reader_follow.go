package rotation

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// checkActive runs at the end of the active file. It checks whether the file is still active, and
// whether it was replaced. It reports whether there may be more to read at once.
func (r *Reader) checkActive() (more bool, err error) {
	s := r.cur
	if more, err := r.checkTruncated(); more || err != nil {
		return more, err
	}
	d, err := openToRead(r.o.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // the directory is gone, but the file may still be written to
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
	case len(newer) > 0: // the writer has rotated, so this file is complete
	case !there:
		return false, nil // there is no new file yet, so this one may still be written to
	case s.stamp >= 0:
	default:
		// Another process has replaced the file, which its writer notices after a while.
		if r.displaced.IsZero() {
			r.displaced = time.Now()
		}
		r.await(d, st)
		if waited := time.Since(r.displaced); waited < displacedFor || waited < 2*displacedFor && st.Size == 0 {
			return false, nil
		}
	}
	r.displaced = time.Time{}
	s.complete = true // the writer has closed the file
	return true, nil
}

// await opens the file that another process has put at the path, unless it is already open. It may
// be replaced again before the reader gets to it.
func (r *Reader) await(d *listing, st unix.Stat_t) {
	if n := len(r.waiting); n > 0 && r.waiting[n-1].is(st) {
		return
	}
	s, err := d.openRead(r.names.base)
	if err != nil {
		return // the next check retries
	}
	r.stats.Replaced++
	if len(r.waiting) == maxWaiting {
		r.waiting[0].f.Close()
		r.waiting = append(r.waiting[:0], r.waiting[1:]...)
		r.stats.Missed++
	}
	r.waiting = append(r.waiting, s)
}

// checkRewritten detects that the lines returned last are no longer in the file, because another
// process has truncated it and it has grown again. The reader continues at the end of the unchanged
// part, or at the beginning of the file.
func (r *Reader) checkRewritten() error {
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
		return nil // later bytes are read again anyway
	}
	r.stats.Truncated++
	if s.off = begin + int64(bytes.LastIndexByte(seen[:same], '\n')+1); s.off == begin {
		s.off = 0
	}
	r.start, r.end, r.seen, r.within, r.expected = 0, 0, 0, false, nil
	return nil
}

// after returns the backups later than stamp. backups must be sorted.
func after(backups []backup, stamp int64) []backup {
	for i := range backups {
		if backups[i].stamp > stamp {
			return backups[i:]
		}
	}
	return nil
}

// checkTruncated detects that the file is shorter than the data read from it. A writer truncates
// partial lines and writes them again; other processes may truncate the whole file. It reports
// whether there is more to read.
func (r *Reader) checkTruncated() (more bool, err error) {
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
		r.reread() // a partial line was removed; none of it was returned
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

// finish closes the current file after it was read.
func (r *Reader) finish() {
	if r.cur.stamp >= 0 {
		r.last = r.cur.stamp
	}
	r.cur.f.Close()
	r.cur, r.expected, r.tailing = nil, nil, false
	r.start, r.end, r.seen, r.within = 0, 0, 0, false
}

// maxListings limits how often the directory is listed again because a backup was removed before it
// could be opened.
const maxListings = 100

// next opens the next file: a waiting replacement, else the next backup, else the active file. cur
// stays nil if there is none.
func (r *Reader) next() error {
	if len(r.waiting) > 0 {
		r.cur = r.waiting[0]
		r.waiting = append(r.waiting[:0], r.waiting[1:]...)
		return nil
	}
	for range maxListings {
		d, err := r.list()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		retry, err := r.nextIn(d)
		d.close()
		if err != nil || !retry {
			return err
		}
	}
	return nil
}

// nextIn opens the next file of one listing. It reports whether the directory must be listed again.
func (r *Reader) nextIn(d *listing) (retry bool, err error) {
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
	// The file may have become a backup since the directory was listed.
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
