package spool

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// SetUserTimeout sets TCP_USER_TIMEOUT to takeTimeout, so that a connection breaks if the peer
// acknowledges or accepts no data for that time.
func SetUserTimeout(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(takeTimeout.Milliseconds()))
	})
	if err == nil {
		err = failed
	}
	return err
}

// unacknowledged returns how many written bytes the peer's kernel has not acknowledged.
func unacknowledged(conn net.Conn) (int64, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0, nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var failed error
	if err := raw.Control(func(fd uintptr) { n, failed = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil {
		return 0, err
	}
	return int64(n), failed
}
