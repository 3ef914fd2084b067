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

// pipe is one FIFO with whoever reads it.
type pipe struct {
	ps    *Pipes
	name  string
	path  string
	gate  *gate
	count accesslog.Counters // what comes in
	// left is how much was in the FIFO when it was last read to the end, and ended whether it had no
	// writer then. They tell news from what epoll says of an old state.
	left  atomic.Int64
	ended atomic.Bool
	busy  atomic.Bool // a goroutine attends to it

	// guarded by Pipes.mu
	owner  string
	labels map[string]string
	wanted bool
	want   Pipe // what Set has asked for last; without a path none has

	mu      sync.Mutex // held while it is read; guards what follows
	cur     *fifo      // nil once removed
	old     []*fifo    // without a name, but with a writer
	rest    []*leftover
	err     error // of reading
	holdErr error
	removed bool
}

// turn reads what is there, about limit bytes of each source at most, and returns how much that
// was.
func (p *pipe) turn(ctx context.Context, limit int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed || p.gate.destination() == nil {
		return 0
	}
	moved := 0
	p.err = nil
	keepRest := p.rest[:0]
	for _, r := range p.rest {
		n, gone, err := r.drain(ctx, limit)
		moved += n
		if err != nil {
			p.err = err
		}
		if !gone {
			keepRest = append(keepRest, r)
		}
	}
	p.rest = keepRest
	keepOld := p.old[:0]
	for _, f := range p.old {
		written := f.written()
		n, err := f.drain(ctx, limit)
		moved += n
		if err == nil && !written && f.size() == 0 {
			p.ps.poll.remove(f.fd)
			f.close()
			continue
		}
		keepOld = append(keepOld, f)
	}
	p.old = keepOld
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

// news reports whether the FIFO has changed since it was last read to the end.
func (p *pipe) news() bool {
	if !p.mu.TryLock() {
		return true // somebody reads: whoever attends looks after him
	}
	defer p.mu.Unlock()
	if p.removed || len(p.rest) > 0 || len(p.old) > 0 {
		return !p.removed
	}
	return int64(p.cur.size()) != p.left.Load() || !p.cur.written() != p.ended.Load()
}

// attend reads the FIFO until nothing comes any more, with rests, so that few lines do not cost a
// wake-up each. It then waits for epoll to say that there is more.
func (p *pipe) attend(ctx context.Context) {
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
		if p.gate.idle() || p.filling() { // what may wait is best kept where it outlives this process
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

// nextRest is how long the FIFO may stay unread so that it gets half full at most.
func (p *pipe) nextRest(moved int, last, took time.Duration) time.Duration {
	p.mu.Lock()
	half := p.cur.capacity / 2
	p.mu.Unlock()
	fill := time.Duration(float64(last+took) * float64(half) / float64(moved))
	return max(min(fill, p.ps.opts.Rest), time.Millisecond)
}

// pause waits, to the next multiple of the rest where it is a whole one, so that many FIFOs share a
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

// full reports whether the FIFO has so much in it that it cannot wait.
func (p *pipe) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.removed && p.gate.destination() != nil && p.cur.size() > p.cur.capacity/2
}

// filling reports whether the FIFO has to be read though its destination takes no lines.
func (p *pipe) filling() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.removed && p.cur.size() >= p.cur.capacity/4
}

func (p *pipe) waitsForReopen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.removed && len(p.rest) > 0
}

// removable reports whether nobody wants the FIFO and nobody writes it.
func (p *pipe) removable() bool {
	p.ps.mu.Lock()
	wanted := p.wanted
	p.ps.mu.Unlock()
	if wanted {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.removed && len(p.rest) == 0 && len(p.old) == 0 && p.cur.size() == 0 && !p.cur.written()
}

// stats returns the counts and the state.
func (p *pipe) stats(s Status) Status {
	s.Stats = p.gate.state(p.count.Stats())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed {
		return s
	}
	s.Size, s.Waiting, s.Writer = p.cur.capacity, p.cur.size(), p.cur.written()
	switch {
	case p.holdErr != nil:
		s.Health = fmt.Sprintf("nobody holds the FIFO while the agent is away: %v", p.holdErr)
	case p.err != nil:
		s.Health = fmt.Sprintf("the FIFO cannot be read: %v", p.err)
	case s.Health == "" && len(p.rest) > 0:
		s.Health = "its process writes into a file that was in the place of the FIFO; have it open its logs anew"
	case s.Health == "" && p.gate.destination() == nil:
		s.Health = "nobody has said where its lines go; they wait in the FIFO"
	}
	return s
}

// poller says which FIFOs have news, by an epoll of its own. A FIFO that is not armed costs neither
// this process nor the writer anything.
type poller struct {
	fd   int
	file *os.File // the epoll, as something that Go's poller waits for
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

// arm makes wait return a FIFO that gets news, at once where it is not empty or has no writer; or
// not.
func (l *poller) arm(fd int, on bool) {
	events := uint32(unix.EPOLLET)
	if on {
		events |= unix.EPOLLIN
	}
	_ = unix.EpollCtl(l.fd, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// wait calls fn with each descriptor that has news, until stop.
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
