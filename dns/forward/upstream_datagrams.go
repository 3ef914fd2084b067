package forward

import (
	"net"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// datagrams sends and receives on a connected socket. It uses raw system calls that never block.
// Ordinary system calls would wake the runtime's monitor thread each time.
type datagrams struct {
	conn *net.UDPConn
	raw  syscall.RawConn

	in      []byte // buffer of the reader
	n       int
	failed  syscall.Errno
	receive func(uintptr) bool

	mu    sync.Mutex
	out   [maxQueryLen]byte
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

// read waits for a datagram, and reports whether it was longer than b. The socket is usable after
// a network error.
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

// write sends a datagram. If the socket buffer is full, it drops the datagram, which is then
// repeated like a lost one.
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

// Close closes the socket, which ends read.
func (d *datagrams) Close() error { return d.conn.Close() }
