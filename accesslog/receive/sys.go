package receive

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// unread returns the number of bytes of a connection in the kernel.
func unread(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// acceptOne accepts a pending connection, or returns nil.
func acceptOne(raw syscall.RawConn) net.Conn {
	fd := -1
	if err := raw.Control(func(l uintptr) {
		for {
			var err error
			fd, _, err = unix.Accept4(int(l), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if err != unix.EINTR && err != unix.ECONNABORTED {
				return
			}
		}
	}); err != nil || fd < 0 {
		return nil
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close() // FileConn duplicates the descriptor
	c, err := net.FileConn(f)
	if err != nil {
		return nil
	}
	return c
}
