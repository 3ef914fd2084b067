package forward

import (
	"net"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// datagrams sends and receives on a connected socket. The system calls never block, and are made as
// such: the runtime need not be told, which would wake its monitor for each of them.
type datagrams struct {
	conn *net.UDPConn
	raw  syscall.RawConn

	in      []byte // of the reader
	n       int
	failed  syscall.Errno
	receive func(uintptr) bool

	mu    sync.Mutex
	out   [maxAsked]byte
	size  int
	errno syscall.Errno
	send  func(uintptr)
}

func newDatagrams(conn *net.UDPConn) (*datagrams, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	d := &datagrams{conn: conn, raw: raw}
	d.receive = func(fd uintptr) bool {
		for {
			n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&d.in[0])), uintptr(len(d.in)),
				unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
			switch errno {
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				return false
			}
			d.n, d.failed = int(n), errno
			return true
		}
	}
	d.send = func(fd uintptr) {
		_, _, d.errno = syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&d.out)), uintptr(d.size),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	}
	return d, nil
}

// read waits for a datagram. It reports whether that was longer than b. An error of the network
// does not end the use of the socket.
func (d *datagrams) read(b []byte) (n int, cut bool, err error) {
	d.in = b
	if err := d.raw.Read(d.receive); err != nil {
		return 0, false, net.ErrClosed
	}
	if d.failed != 0 {
		return 0, false, d.failed
	}
	return min(d.n, len(b)), d.n > len(b), nil
}

// write sends a datagram, or drops it where there is no room: it is a datagram, and is sent again.
func (d *datagrams) write(b []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.size = copy(d.out[:], b)
	if err := d.raw.Control(d.send); err != nil {
		return err
	}
	if d.errno != 0 && d.errno != unix.EAGAIN && d.errno != unix.EINTR {
		return d.errno
	}
	return nil
}

// Close ends read.
func (d *datagrams) Close() error { return d.conn.Close() }
