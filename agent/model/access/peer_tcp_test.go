package access_test

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// TestOwnerOverLoopback distinguishes users of one loopback address.
func TestOwnerOverLoopback(t *testing.T) {
	uids := []int{os.Getuid()}
	if os.Getuid() == 0 {
		uids = append(uids, 54321) // only root can switch to another user
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "127.9.9.9:0", "[::]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Logf("no %s here: %v", addr, err)
			continue
		}
		defer l.Close()
		for _, uid := range uids {
			to := strings.Replace(l.Addr().String(), "[::]", "127.0.0.1", 1)
			c, peer := connect(t, l, to, uid)
			if strings.HasPrefix(peer.Owner(), "address ") {
				t.Skip("this kernel does not say whose a TCP socket is")
			}
			if want := fmt.Sprintf("uid %d over TCP", uid); peer.Owner() != want {
				t.Errorf("%s: owner %q, want %q", addr, peer.Owner(), want)
			}
			if !strings.HasPrefix(peer.String(), "address ") || peer.Root() || peer.Local {
				t.Errorf("%s: the peer is %s", addr, peer)
			}
			c.Close()
		}
	}
}

// connect dials as a user. It returns the connection, and the peer that the other end sees.
func connect(t *testing.T, l net.Listener, to string, uid int) (net.Conn, access.Peer) {
	t.Helper()
	dialed := make(chan net.Conn)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with its credentials
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			t.Error(errno)
		}
		c, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
		}
		dialed <- c
	}()
	c := <-dialed
	if c == nil {
		t.FailNow()
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := access.PeerOf(s, false)
	if err != nil {
		t.Fatal(err)
	}
	return c, p
}

func BenchmarkPeerOverLoopback(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		if p, _ := access.PeerOf(s, false); !strings.HasPrefix(p.Owner(), "uid ") {
			b.Fatal(p.Owner())
		}
	}
}
