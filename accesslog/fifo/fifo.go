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

// pipeSize is what a FIFO is made to hold, where the kernel lets it.
const pipeSize = 1 << 20

// fifo is the reading end of a FIFO. Whole lines are taken out of it only after they have been
// handed on, and a begun one stays in it: what this process has not finished when it is killed, the
// next one finds.
//
// It has no writing end of its own, so poll(2) says whether any process has one.
type fifo struct {
	fd       int
	dev, ino uint64
	capacity int
	copies   *scratch
	l        accesslog.Lines
	pending  int  // bytes at the front that l has, and that are not taken out yet
	peeked   int  // bytes that the last peek has seen
	seen     bool // all that was there has been seen by the last step
	left     int  // bytes that were in it when it was last read to the end
	ended    bool // it had no writer then
	exact    int  // bytes that are read without regard to the ends of lines; 0: none

	note      *note // nil: what was being written at a kill is written again
	recovered bool  // the note of an earlier process is done with
}

// openFIFO opens the FIFO of a name for reading. It never waits for a writer.
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
	// An unprivileged user has a limit for all of his pipes together. One that is smaller works too,
	// with more reads.
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
	// poll(2) shows no POLLHUP to a reader that has opened while nobody wrote, until a writer has come
	// and gone.
	if w, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC,
		0); err == nil {
		unix.Close(w)
	}
	return f, nil
}

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

// size returns how many bytes are in it.
func (f *fifo) size() int {
	n, err := unix.IoctlGetInt(f.fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// written reports whether a process has it open for writing.
func (f *fifo) written() bool {
	p := []unix.PollFd{{Fd: int32(f.fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, 0)
		if !errors.Is(err, unix.EINTR) {
			return p[0].Revents&unix.POLLHUP == 0
		}
	}
}

// drain hands on what is in it, about limit bytes at most, and returns how many bytes it has taken
// out. A half line whose writer is gone gets its LF.
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
			f.left, f.ended = f.size(), !f.written()
			return moved, nil
		}
	}
}

// step reads once, hands on, and takes out what was handed on. It notes whether it has seen all
// that there was.
func (f *fifo) step(ctx context.Context) (int, error) {
	f.pending = 0
	size := f.size()
	if f.seen = size == 0; f.seen {
		return 0, nil
	}
	if size >= accesslog.BaseBuffer {
		f.l.ExpectMuch()
	}
	aligned := f.l.Held() == 0 // what is handed on is the front of the FIFO
	if _, err := f.l.Fill(f.peek); err != nil && !errors.Is(err, accesslog.ErrHeld) {
		return 0, err
	}
	f.seen = f.peeked >= size
	if f.pending == 0 {
		return 0, nil
	}
	if f.note != nil && aligned && f.l.Ready() <= accesslog.Quantum {
		ctx = rotation.WithNote(ctx, f.note.set)
		defer f.note.clear() // only now is the front another one
	}
	if err := f.l.Flush(ctx); err != nil {
		return 0, err
	}
	return f.pending, f.take(f.pending)
}

// peek copies what is at the front, without taking it out: whole lines, or where there is none and
// the line is long, the part of it that is there.
func (f *fifo) peek(room []byte) (int, error) {
	if f.exact > 0 && len(room) > f.exact {
		room = room[:f.exact]
	}
	n, err := f.copies.peek(f.fd, room)
	if f.peeked = max(n, 0); n <= 0 || err != nil {
		return 0, err
	}
	if f.exact == 0 {
		if i := bytes.LastIndexByte(room[:n], '\n'); i >= 0 {
			n = i + 1
		} else if size := f.size(); n < len(room) && size < f.capacity/4 && (size <= n || n < f.copies.size/2) {
			return 0, nil // the line is not long, and the rest of it is to come: a full FIFO holds at least half of its capacity
		}
	}
	f.pending = n
	return n, nil
}

// endHalfLine hands on what a writer has left behind that ended within a line.
func (f *fifo) endHalfLine(ctx context.Context) (int, error) {
	n := f.size()
	f.left, f.ended = n, !f.written()
	if n == 0 && f.l.Held() == 0 || !f.ended || f.size() != n {
		return 0, nil // one who writes, or wrote meanwhile
	}
	f.left = 0
	// Nobody else reads, so nothing was written since the first look: at the second nobody was there
	// to go on with these bytes.
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

// scratch is a pipe that the front of a FIFO is copied to and read from.
type scratch struct {
	mu         sync.Mutex
	r, w, null int
	size       int // bytes that fit into it, if it takes whole pages
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

// peek reads what is at the front of a FIFO and leaves it there.
func (s *scratch) peek(fd int, room []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int64
	for {
		var err error
		n, err = unix.Tee(fd, s.w, len(room), unix.SPLICE_F_NONBLOCK)
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
		m, err := unix.Read(s.r, room[got:n])
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

// renew replaces a scratch that may have something left in it.
func (s *scratch) renew() error {
	unix.Close(s.r)
	unix.Close(s.w)
	return s.open()
}
