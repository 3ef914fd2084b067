package fifo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// pipeSize is the requested capacity of a FIFO in bytes.
const pipeSize = 1 << 20

// fifo is the reading end of a FIFO. Whole lines are removed only after delivery, and partial lines
// stay in it, so the next process finds the unfinished lines of a killed one.
//
// It has no writing end, so poll(2) reports whether a process has one.
type fifo struct {
	fd       int
	dev, ino uint64
	capacity int
	copies   *scratch
	l        accesslog.Lines
	pending  int  // bytes at the front that are in l, but not removed yet
	peeked   int  // bytes seen by the last peek
	seen     bool // the last step saw all data
	left     int  // bytes in the FIFO after the last complete read
	ended    bool // it had no writer at that time
	exact    int  // bytes to read regardless of line ends; 0: whole lines

	note      *note // nil: a kill may duplicate lines
	recovered bool  // the note of the previous process was handled
}

// openFIFO opens a FIFO for reading. It does not wait for a writer.
func openFIFO(dir int, name string) (*fifo, error) {
	fd, err := openNoFollow(dir, name)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		unix.Close(fd)
		return nil, fmt.Errorf("%s is not a FIFO", name)
	}
	f := &fifo{fd: fd, dev: uint64(st.Dev), ino: st.Ino}
	// The kernel limits the total size of an unprivileged user's pipes. A smaller FIFO works with more
	// reads.
	for size := pipeSize; size >= 64<<10; size /= 4 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size); !errors.Is(err, unix.EPERM) &&
			!errors.Is(err, unix.EBUSY) {
			break
		}
	}
	f.capacity, err = unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	if err != nil || f.capacity <= 0 {
		f.capacity = 4096
	}
	// If a reader opens the FIFO before any writer, poll(2) reports no POLLHUP until a writer has
	// opened and closed it.
	if w, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC,
		0); err == nil {
		unix.Close(w)
	}
	return f, nil
}

// openNoFollow opens a name for reading without waiting and without following symbolic links.
func openNoFollow(dir int, name string) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return -1, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return fd, nil
	}
}

func (f *fifo) close() {
	f.l.Release()
	f.note.close()
	unix.Close(f.fd)
}

// size returns the number of bytes in the FIFO.
func (f *fifo) size() int {
	n, err := unix.IoctlGetInt(f.fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// hasWriter reports whether a process has the FIFO open for writing.
func (f *fifo) hasWriter() bool {
	p := []unix.PollFd{{Fd: int32(f.fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, 0)
		if !errors.Is(err, unix.EINTR) {
			return p[0].Revents&unix.POLLHUP == 0
		}
	}
}

// drain delivers about limit bytes at most and returns the number of bytes removed. A partial line
// whose writer is gone gets an LF.
func (f *fifo) drain(ctx context.Context, limit int) (int, error) {
	moved := 0
	for {
		n, err := f.step(ctx)
		moved += n
		if err != nil || n == 0 || f.seen {
			if err == nil {
				var m int
				m, err = f.endHalfLine(ctx)
				moved += m
			}
			f.l.Idle()
			return moved, err
		}
		if moved >= limit {
			f.left, f.ended = f.size(), !f.hasWriter()
			return moved, nil
		}
	}
}

// step reads once, delivers the lines, and removes them. It sets seen if it read all data.
func (f *fifo) step(ctx context.Context) (int, error) {
	f.pending = 0
	size := f.size()
	if f.seen = size == 0; f.seen {
		return 0, nil
	}
	if size >= accesslog.BaseBuffer {
		f.l.ExpectMuch()
	}
	aligned := f.l.Held() == 0 // the batch starts at the front of the FIFO
	if _, err := f.l.Fill(f.peek); err != nil && !errors.Is(err, accesslog.ErrPending) {
		return 0, err
	}
	f.seen = f.peeked >= size
	if f.pending == 0 {
		return 0, nil
	}
	if f.note != nil && aligned && f.l.Ready() <= accesslog.Quantum {
		ctx = rotation.WithNote(ctx, f.note.set)
		defer f.note.clear() // clear only after the lines are removed
	}
	if err := f.l.Flush(ctx); err != nil {
		return 0, err
	}
	return f.pending, f.take(f.pending)
}

// peek copies whole lines from the front without removing them. If there is none and the line is
// long, it copies the available part.
func (f *fifo) peek(buf []byte) (int, error) {
	if f.exact > 0 && len(buf) > f.exact {
		buf = buf[:f.exact]
	}
	n, err := f.copies.peek(f.fd, buf)
	if f.peeked = max(n, 0); n <= 0 || err != nil {
		return 0, err
	}
	if f.exact == 0 {
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			n = i + 1
		} else if size := f.size(); n < len(buf) && size < f.capacity/4 && (size <= n || n < f.copies.size/2) {
			return 0, nil // a short line whose rest will come: a full FIFO holds at least half of its capacity
		}
	}
	f.pending = n
	return n, nil
}

// endHalfLine delivers a partial line whose writer is gone.
func (f *fifo) endHalfLine(ctx context.Context) (int, error) {
	n := f.size()
	f.left, f.ended = n, !f.hasWriter()
	if n == 0 && f.l.Held() == 0 || !f.ended || f.size() != n {
		return 0, nil // a writer exists, or wrote in the meantime
	}
	f.left = 0
	// No other process reads, so nothing was written since the first check, and no writer exists to
	// complete these bytes.
	moved := 0
	defer func() { f.exact = 0 }()
	for moved < n {
		f.exact = n - moved
		m, err := f.step(ctx)
		if err != nil {
			return moved, err
		}
		if m == 0 {
			return moved, fmt.Errorf("the FIFO had %d bytes, of which %d could be read", n, moved)
		}
		moved += m
	}
	return moved, f.l.Finish(ctx)
}

// take removes n bytes from the front.
func (f *fifo) take(n int) error {
	for n > 0 {
		m, err := unix.Splice(f.fd, nil, f.copies.null, nil, n, unix.SPLICE_F_NONBLOCK)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("take %d bytes out of a FIFO: %w", n, err)
		case m == 0:
			return errors.New("a FIFO has less in it than was read; another process reads it")
		}
		n -= int(m)
	}
	return nil
}

// scratch is a pipe used to copy the front of a FIFO without removing it.
type scratch struct {
	mu         sync.Mutex
	r, w, null int
	size       int // capacity of the pipe, in whole pages
}

func newScratch() (*scratch, error) {
	null, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/null: %w", err)
	}
	s := &scratch{null: null}
	if err := s.open(); err != nil {
		unix.Close(null)
		return nil, err
	}
	return s, nil
}

func (s *scratch) open() error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	s.r, s.w = p[0], p[1]
	_, _ = unix.FcntlInt(uintptr(s.w), unix.F_SETPIPE_SZ, accesslog.FlowBuffer) // a smaller one works too
	s.size, _ = unix.FcntlInt(uintptr(s.w), unix.F_GETPIPE_SZ, 0)
	return nil
}

func (s *scratch) close() {
	unix.Close(s.r)
	unix.Close(s.w)
	unix.Close(s.null)
}

// peek copies data from the front of a FIFO without removing it.
func (s *scratch) peek(fd int, buf []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int64
	for {
		var err error
		n, err = unix.Tee(fd, s.w, len(buf), unix.SPLICE_F_NONBLOCK)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("copy from a FIFO: %w", err)
		}
		break
	}
	for got := 0; got < int(n); {
		m, err := unix.Read(s.r, buf[got:n])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || m <= 0 {
			return 0, errors.Join(fmt.Errorf("read the copy of a FIFO: %w", err), s.renew())
		}
		got += m
	}
	return int(n), nil
}

// renew replaces the pipe, which may contain data after a failed read.
func (s *scratch) renew() error {
	unix.Close(s.r)
	unix.Close(s.w)
	return s.open()
}
