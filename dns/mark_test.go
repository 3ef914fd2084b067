package dns

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// markOf returns the mark of a socket.
func markOf(t *testing.T, c *net.UDPConn) (mark uint32) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if cerr := raw.Control(func(fd uintptr) {
		var n int
		n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK)
		mark = uint32(n)
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return mark
}
