package presence

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Exits waits for the end of any number of processes, in one goroutine. It is safe for concurrent
// use.
type Exits struct {
	poll *os.File // an epoll instance, itself in the poller of the runtime

	mu      sync.Mutex
	next    int32
	watched map[int32]watched // by the data of the epoll event
}

type watched struct {
	pidfd *os.File
	ended func()
}

// NewExits returns an Exits. It fails if the kernel refuses an epoll instance, for example because
// of a limit on open files.
func NewExits() (*Exits, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("fcntl: %w", err)
	}
	return &Exits{poll: os.NewFile(uintptr(fd), "epoll"), watched: map[int32]watched{}}, nil
}

// Add makes [Exits.Run] call ended once when the process of a pidfd has ended. The caller must
// not close the pidfd before.
func (x *Exits) Add(pidfd *os.File, ended func()) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.next++
	id := x.next
	err := x.control(func(poll int) error {
		return unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, int(pidfd.Fd()),
			&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: id})
	})
	if err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	x.watched[id] = watched{pidfd, ended}
	return nil
}

// control calls do with the descriptor of the epoll instance.
func (x *Exits) control(do func(poll int) error) error {
	raw, err := x.poll.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := raw.Control(func(fd uintptr) { result = do(int(fd)) }); err != nil {
		return err
	}
	return result
}

// Run reports the ends of processes until ctx ends. Then x is closed.
func (x *Exits) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = x.poll.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	defer x.poll.Close()
	raw, err := x.poll.SyscallConn()
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	events := make([]unix.EpollEvent, 64)
	for ctx.Err() == nil {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		for _, e := range events[:max(n, 0)] {
			x.end(e.Fd)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("epoll: %w", err)
		}
	}
	return nil
}

// end reports the end of one process.
func (x *Exits) end(id int32) {
	x.mu.Lock()
	p, ok := x.watched[id]
	delete(x.watched, id)
	if ok {
		_ = x.control(func(poll int) error { return unix.EpollCtl(poll, unix.EPOLL_CTL_DEL, int(p.pidfd.Fd()), nil) })
	}
	x.mu.Unlock()
	if ok {
		p.ended()
	}
}
