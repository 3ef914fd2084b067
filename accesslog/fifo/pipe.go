package fifo

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
)

// pipe is one named FIFO and its state.
type pipe struct {
	ps   *Pipes
	name string
	path string
	gate *gate
	// dirChanges is the value of Pipes.dirChanges when the pipe was made.
	dirChanges uint64
	count      accesslog.Counters // received lines
	// left is the number of bytes after the last complete read, and ended whether there was no writer
	// then. They distinguish changes from repeated epoll events.
	left  atomic.Int64
	ended atomic.Bool
	busy  atomic.Bool // a goroutine reads it

	// guarded by Pipes.mu
	owner  string
	labels map[string]string
	wanted bool
	want   Pipe // last argument of Set; an empty path: none
	link   string

	mu        sync.Mutex // held during reads; guards the fields below
	cur       *fifo      // nil after removal
	old       []*fifo    // unlinked FIFOs that still have a writer
	leftovers []*leftover
	err       error // of reading
	holdErr   error
	removed   bool
}

// turn reads about limit bytes of each source at most, and returns the number of bytes removed.
func (p *pipe) turn(ctx context.Context, limit int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed || p.gate.destination() == nil {
		return 0
	}
	moved := 0
	p.err = nil
	leftovers := p.leftovers[:0]
	for _, r := range p.leftovers {
		n, gone, err := r.drain(ctx, limit)
		moved += n
		if err != nil {
			p.err = err
		}
		if !gone {
			leftovers = append(leftovers, r)
		}
	}
	p.leftovers = leftovers
	old := p.old[:0]
	for _, f := range p.old {
		hasWriter := f.hasWriter()
		n, err := f.drain(ctx, limit)
		moved += n
		if err == nil && !hasWriter && f.size() == 0 {
			p.ps.poll.remove(f.fd)
			f.close()
			continue
		}
		old = append(old, f)
	}
	p.old = old
	n, err := 0, p.cur.recover(p.gate.destination())
	if err == nil {
		n, err = p.cur.drain(ctx, limit)
	}
	moved += n
	if err != nil {
		p.err = err
	}
	p.left.Store(int64(p.cur.left))
	p.ended.Store(p.cur.ended)
	return moved
}

// changed reports whether the FIFO has changed since the last complete read.
func (p *pipe) changed() bool {
	if !p.mu.TryLock() {
		return true // a read is running; its goroutine handles the change
	}
	defer p.mu.Unlock()
	if p.removed || len(p.leftovers) > 0 || len(p.old) > 0 {
		return !p.removed
	}
	return int64(p.cur.size()) != p.left.Load() || !p.cur.hasWriter() != p.ended.Load()
}

// serve reads the FIFO until no more data arrives. It pauses between reads, so that few lines do
// not cost a wake-up each. Then epoll reports new data.
func (p *pipe) serve(ctx context.Context) {
	wait := p.ps.opts.Rest
	p.mu.Lock()
	if !p.removed {
		p.ps.poll.arm(p.cur.fd, false)
	}
	p.mu.Unlock()
	for {
		if !p.pause(ctx, wait) {
			p.busy.Store(false)
			return
		}
		began := time.Now()
		moved := 0
		// if the destination is blocked, data is safer in the FIFO, which survives this process
		if p.gate.idle() || p.filling() {
			moved = p.turn(ctx, pipeSize)
		}
		switch {
		case moved > 0:
			wait = p.nextRest(moved, wait, time.Since(began))
		case p.waitsForReopen():
			wait = p.ps.opts.Rest
		case p.removable():
			if !p.pause(ctx, p.ps.opts.Linger) || p.ps.remove(p) {
				p.busy.Store(false)
				return
			}
			wait = p.ps.opts.Rest
			if p.removable() {
				continue
			}
			fallthrough
		default:
			p.busy.Store(false)
			p.mu.Lock()
			if !p.removed {
				p.ps.poll.arm(p.cur.fd, true)
			}
			p.mu.Unlock()
			return
		}
	}
}

// nextRest returns how long the FIFO may stay unread before it is half full.
func (p *pipe) nextRest(moved int, last, busy time.Duration) time.Duration {
	p.mu.Lock()
	half := p.cur.capacity / 2
	p.mu.Unlock()
	fill := time.Duration(float64(last+busy) * float64(half) / float64(moved))
	return max(min(fill, p.ps.opts.Rest), time.Millisecond)
}

// pause waits for d. The default pause ends at a multiple of Rest, so that many FIFOs share a
// wake-up.
func (p *pipe) pause(ctx context.Context, d time.Duration) bool {
	if d == p.ps.opts.Rest {
		now := time.Now()
		d = now.Truncate(d).Add(d).Sub(now)
	}
	if p.full() {
		d = 0
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// full reports whether the FIFO is more than half full.
func (p *pipe) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.removed && p.gate.destination() != nil && p.cur.size() > p.cur.capacity/2
}

// filling reports whether the FIFO must be read although its destination is blocked.
func (p *pipe) filling() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.removed && p.cur.size() >= p.cur.capacity/4
}

func (p *pipe) waitsForReopen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.removed && len(p.leftovers) > 0
}

// removable reports whether the FIFO is unwanted, empty, and without a writer.
func (p *pipe) removable() bool {
	p.ps.mu.Lock()
	wanted := p.wanted
	p.ps.mu.Unlock()
	if wanted {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.removed && len(p.leftovers) == 0 && len(p.old) == 0 && p.cur.size() == 0 && !p.cur.hasWriter()
}

// stats adds the counters and the state to s.
func (p *pipe) stats(s Status) Status {
	s.Stats = p.gate.state(p.count.Stats())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed {
		return s
	}
	s.Size, s.Waiting, s.Writer = p.cur.capacity, p.cur.size(), p.cur.hasWriter()
	switch {
	case p.holdErr != nil:
		s.Health = fmt.Sprintf("no process holds the FIFO while the agent is down: %v", p.holdErr)
	case p.err != nil:
		s.Health = fmt.Sprintf("cannot read the FIFO: %v", p.err)
	case s.Health == "" && len(p.leftovers) > 0:
		s.Health = "its process writes to a file that was found in place of the FIFO; make the process reopen its logs"
	case s.Health == "" && p.gate.destination() == nil:
		s.Health = "no destination is known; lines wait in the FIFO"
	}
	return s
}

// poller reports FIFOs with new data, using a separate epoll. A FIFO that is not armed causes no
// cost for this process or the writer.
type poller struct {
	fd   int
	file *os.File // the epoll descriptor, registered with Go's poller
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make an epoll: %w", err)
	}
	return &poller{fd: fd, file: os.NewFile(uintptr(fd), "epoll")}, nil
}

func (l *poller) add(fd int) error {
	return unix.EpollCtl(l.fd, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)})
}

func (l *poller) remove(fd int) { _ = unix.EpollCtl(l.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// arm enables or disables events for a FIFO. An enabled FIFO is reported at once if it is not empty
// or has no writer.
func (l *poller) arm(fd int, on bool) {
	events := uint32(unix.EPOLLET)
	if on {
		events |= unix.EPOLLIN
	}
	_ = unix.EpollCtl(l.fd, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// wait calls fn with each descriptor that has an event, until stop is called.
func (l *poller) wait(fn func(fd int)) error {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	var events [64]unix.EpollEvent
	for {
		n := 0
		var failed error
		err := raw.Read(func(uintptr) bool {
			n, failed = unix.EpollWait(l.fd, events[:], 0)
			if failed == unix.EINTR {
				n, failed = 0, nil
			}
			return n > 0 || failed != nil
		})
		if err != nil || failed != nil {
			return failed
		}
		for _, e := range events[:n] {
			fn(int(e.Fd))
		}
	}
}

// stop ends wait.
func (l *poller) stop() { _ = l.file.SetReadDeadline(time.Unix(1, 0)) }
