package forward

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/dns/table"
)

// TestSocketsAreMarked: all sockets to servers carry the mark, which exempts them from
// redirections.
func TestSocketsAreMarked(t *testing.T) {
	const mark = 0x4e53
	f, err := New(Options{Servers: echoServer(t), Mark: mark})
	if err != nil {
		if !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Errorf("the error does not name the capability: %v", err)
		}
		t.Skipf("marks cannot be set here: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	<-f.Started()
	done := make(loopback, 1)
	for i := range 40 {
		m := message(t, fmt.Sprintf("n%d.example.org", i))
		var q table.Query
		q.Read(m)
		if f.Ask(&q, m, ReplyTo{Via: done, Max: 1232}) {
			<-done
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, u := range f.set.servers[0].sockets {
		if u == nil {
			continue
		}
		n++
		if got := markOf(t, u.io.conn); got != mark {
			t.Errorf("a socket to a server has the mark %#x, want %#x", got, mark)
		}
	}
	if n == 0 {
		t.Error("there are no sockets")
	}
}

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
