package agenttest

import (
	"net"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// FreePort returns a TCP port of 127.0.0.1 that the test and its children can listen on. Until the
// test ends, a socket that does not listen keeps it from all processes that take any free port.
// Connections are refused until something listens.
func FreePort(t testing.TB) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	Do(t, os.NewSyscallError("socket", err))
	t.Cleanup(func() { _ = unix.Close(fd) })
	// Others may bind the port if they set the option too, as Envoy and Go do before they listen.
	Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := unix.Getsockname(fd)
	Do(t, err)
	return at.(*unix.SockaddrInet4).Port
}

// FreeAddress returns an address with a [FreePort].
func FreeAddress(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t)))
}
