package forward

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dial opens a socket to a server, in its network.
func (f *Forwarder) dial(ctx context.Context, sv *server, network string) (net.Conn, error) {
	n := sv.origin.network()
	if n == nil {
		return f.dialer.DialContext(ctx, network, sv.addr.String())
	}
	file, err := n.network.Connect(network, sv.addr)
	if err != nil {
		return nil, err
	}
	defer file.Close() // net.FileConn duplicates it
	if network == "tcp" {
		ctx, cancel := context.WithTimeout(ctx, f.timing.dial)
		defer cancel()
		if err := connected(ctx, file); err != nil {
			return nil, os.NewSyscallError("connect", err)
		}
	}
	return net.FileConn(file)
}

// connected waits until a connection is established, has failed, or ctx ends.
func connected(ctx context.Context, f *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool { // calls again whenever the socket is writable
		var code int
		if code, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); failed != nil {
			return true
		}
		if code != 0 {
			failed = syscall.Errno(code)
			return true
		}
		_, failed = unix.Getpeername(int(fd))
		if errors.Is(failed, unix.ENOTCONN) {
			failed = nil
			return false
		}
		return true
	})
	return errors.Join(err, failed)
}
