package pods

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// socketMode lets every user of a pod connect. Other users cannot reach the directory.
const socketMode = 0o666

// listener passes on the connections to one socket of each pod.
type listener struct {
	addr  net.Addr
	conns chan net.Conn
	ended chan struct{}
	end   func() // closes ended
	stop  func() // stops all sockets
}

func newListener(dir string, stop func()) *listener {
	l := &listener{stop: stop, addr: &net.UnixAddr{Name: dir, Net: "unix"}, conns: make(chan net.Conn),
		ended: make(chan struct{})}
	l.end = sync.OnceFunc(func() { close(l.ended) })
	return l
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.ended:
		return nil, net.ErrClosed
	case c := <-l.conns:
		return c, nil
	}
}

// Close implements net.Listener. It ends all listeners, because they end together.
func (l *listener) Close() error { l.stop(); return nil }

// Addr implements net.Listener. It is the directory of all pods.
func (l *listener) Addr() net.Addr { return l.addr }

// socket is one listening socket in the directory of a pod.
type socket struct {
	l    net.Listener
	ino  uint64
	done chan struct{} // closed when the socket stops accepting
	end  func()

	mu    sync.Mutex
	conns map[*access.PodConn]struct{} // nil: closed
}

// stopAccepting leaves open connections to their server.
func (s *socket) stopAccepting() { s.end() }

// close also closes the connections.
func (s *socket) close() {
	s.stopAccepting()
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for c := range conns {
		c.UnixConn.Close()
	}
}

// path returns the path of a socket of a pod.
func (p *Pods) path(x *pod, i int) string { return filepath.Join(p.o.Dir, x.who.UID, p.o.Sockets[i]) }

// open opens the sockets of a pod that are not open, or whose files were removed.
func (p *Pods) open(x *pod) error {
	var errs []error
	for i, name := range p.o.Sockets {
		if s := x.sockets[i]; s != nil && inodeOf(x.dir, name) == s.ino {
			continue
		} else if s != nil {
			s.stopAccepting()
		}
		s, err := p.listen(x, i)
		if err != nil {
			errs = append(errs, fmt.Errorf("its socket %s: %w", name, err))
			continue
		}
		p.mu.Lock()
		x.sockets[i] = s
		p.mu.Unlock()
		p.accepts.Go(func() { p.accept(p.listeners[i], s, x.who) })
	}
	return errors.Join(errs...)
}

// inodeOf returns the inode of the socket of a name, or 0.
func inodeOf(dir *os.File, name string) uint64 {
	var st unix.Stat_t
	if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return 0
	}
	return st.Ino
}

// listen takes a socket of a pod from the holder, or makes a new one.
func (p *Pods) listen(x *pod, i int) (*socket, error) {
	name := p.o.Sockets[i]
	s := &socket{done: make(chan struct{}), conns: map[*access.PodConn]struct{}{}}
	if p.o.Holder != nil {
		s.l = p.o.Holder.Take(p.path(x, i))
	}
	if s.l == nil {
		l, err := makeSocket(x.dir, name)
		if err != nil {
			return nil, err
		}
		s.l = l
		if p.o.Holder != nil {
			p.o.Holder.Add(p.path(x, i), l)
		}
	}
	s.ino = inodeOf(x.dir, name)
	s.end = sync.OnceFunc(func() { close(s.done); s.l.Close() })
	return s, nil
}

// makeSocket makes a listening socket in an open directory. It gets its name when it listens and
// has its mode, so no peer is refused in between.
func makeSocket(dir *os.File, name string) (*net.UnixListener, error) {
	fd, temp := int(dir.Fd()), "."+name+".new"
	if err := unix.Unlinkat(fd, temp, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		cerr := raw.Control(func(s uintptr) { err = syscall.Fchmod(int(s), 0o600) }) // inherited by the file
		return errors.Join(cerr, err)
	}}
	// The path has few bytes, and leads to the open directory.
	at := fmt.Sprintf("/proc/self/fd/%d/%s", fd, temp)
	l, err := lc.Listen(context.Background(), "unix", at)
	if err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			err = errno // without the path of the descriptor
		}
		return nil, fmt.Errorf("listen: %w; let the agent's user write to the directory", err)
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false)
	if err = os.Chmod(at, socketMode); err == nil {
		err = unix.Renameat(fd, temp, fd, name)
	}
	if err != nil {
		ul.Close()
		_ = unix.Unlinkat(fd, temp, 0)
		return nil, err
	}
	return ul, nil
}

// retryAccept is the time before another attempt to accept connections.
const retryAccept = 100 * time.Millisecond

// accept passes the connections of a socket to a listener until the socket or the listener ends.
func (p *Pods) accept(to *listener, s *socket, who *access.Pod) {
	for {
		c, err := s.l.Accept()
		if err != nil {
			select {
			case <-s.done:
				return
			case <-time.After(retryAccept): // such as EMFILE
				continue
			}
		}
		conn := s.track(c.(*net.UnixConn), who, p.o.Conns)
		if conn == nil {
			c.Close()
			continue
		}
		select {
		case to.conns <- conn:
		case <-to.ended:
			conn.Close()
		case <-s.done:
			conn.Close()
		}
	}
}

// track returns the connection as that of a pod, or nil if the pod has too many or is gone.
func (s *socket) track(c *net.UnixConn, who *access.Pod, most int) *access.PodConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil || len(s.conns) >= most {
		return nil
	}
	conn := &access.PodConn{UnixConn: c, Pod: who}
	conn.Closed = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
	}
	s.conns[conn] = struct{}{}
	return conn
}
