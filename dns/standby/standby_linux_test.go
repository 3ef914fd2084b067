package standby_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/dns"
	"github.com/nearside-mesh/nearside/dns/standby"
)

func do(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// query is a query for "a." with an ID.
func query(id uint16) []byte {
	m := binary.BigEndian.AppendUint16(nil, id)
	return append(m, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 1, 0, 1)
}

// server has the sockets of a server that does not read them, and the copies of its holder.
type server struct {
	t *testing.T
	dns.Sockets
	files map[string]*os.File
	watch *standby.Watch
	now   time.Time
}

func newServer(t *testing.T, at string) *server {
	s := &server{t: t, files: map[string]*os.File{}, watch: standby.New(standby.HungAfter), now: time.Unix(1e9, 0)}
	do(t, s.Complete(t.Context(), netip.MustParseAddrPort(at), 1))
	t.Cleanup(func() { _ = s.Close() })
	list, err := s.Files()
	do(t, err)
	for i, f := range list {
		s.files[[]string{"udp", "tcp"}[i]] = f
		t.Cleanup(func() { _ = f.Close() })
	}
	return s
}

// look looks until a time has passed.
func (s *server) look(over time.Duration) {
	for end := s.now.Add(over); s.now.Before(end); {
		s.now = s.now.Add(s.watch.Look(s.now, s.files))
	}
}

func (s *server) client(to string) *net.UDPConn {
	s.t.Helper()
	port := s.UDP[0].LocalAddr().(*net.UDPAddr).Port
	c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(to), Port: port})
	do(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends queries.
func (s *server) ask(c *net.UDPConn, ids ...uint16) {
	s.t.Helper()
	for _, id := range ids {
		_, err := c.Write(query(id))
		do(s.t, err)
	}
}

// replies returns the IDs of the replies that have arrived. Each must be SERVFAIL.
func (s *server) replies(c *net.UDPConn) (ids []uint16) {
	s.t.Helper()
	raw, err := c.SyscallConn()
	do(s.t, err)
	for {
		b, n := make([]byte, 512), 0
		var got error
		do(s.t, raw.Control(func(fd uintptr) { n, _, got = unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT) }))
		if got != nil {
			return ids
		}
		if want := query(0); n < len(want) || b[2] != 0x81 || b[3]&15 != 2 || !slices.Equal(b[12:len(want)], want[12:]) {
			s.t.Fatalf("reply %x", b[:n])
		}
		ids = append(ids, binary.BigEndian.Uint16(b))
	}
}

// TestHung checks that queries of a server that does not read get SERVFAIL within 3.5 s, and soon
// afterwards at once.
func TestHung(t *testing.T) {
	for at, to := range map[string]string{"127.0.0.1:0": "127.0.0.1", "[::1]:0": "::1", "0.0.0.0:0": "127.0.0.2",
		"[::]:0": "::1"} {
		s := newServer(t, at)
		c := s.client(to)
		s.look(5 * time.Second)
		s.ask(c, 1, 2)
		s.look(standby.HungAfter - time.Second/4)
		if got := s.replies(c); got != nil {
			t.Fatalf("%s: answered too early: %v", at, got)
		}
		s.ask(c, 3)
		s.look(1500 * time.Millisecond)
		if got := s.replies(c); !slices.Equal(got, []uint16{1, 2, 3}) {
			t.Fatalf("%s: answered %v", at, got)
		}
		s.ask(c, 4)
		s.look(60 * time.Millisecond)
		if got := s.replies(c); !slices.Equal(got, []uint16{4}) {
			t.Errorf("%s: answered %v at once", at, got)
		}
		if hung, n := s.watch.Hung(); !hung || n != 4 {
			t.Errorf("%s: hung %t, %d answers", at, hung, n)
		}
		s.look(11 * time.Second)
		if hung, _ := s.watch.Hung(); hung {
			t.Errorf("%s: hung without queries", at)
		}
	}
}

// TestServerReads checks that a server that reads, if only slowly, keeps its queries.
func TestServerReads(t *testing.T) {
	s := newServer(t, "127.0.0.1:0")
	c, b := s.client("127.0.0.1"), make([]byte, 512)
	s.ask(c, 1)
	for id := uint16(2); id < 100; id++ { // one query always waits
		s.look(standby.HungAfter - time.Second/2)
		s.ask(c, id)
		n, _, err := s.UDP[0].ReadFromUDP(b)
		do(t, err)
		if got := binary.BigEndian.Uint16(b); n == 0 || got != id-1 {
			t.Fatalf("the server reads query %d, want %d", got, id-1)
		}
	}
	if got := s.replies(c); got != nil {
		t.Errorf("answered %v", got)
	}
}

// TestSlowAgain checks that a server that was too slow once keeps its queries as soon as it reads.
func TestSlowAgain(t *testing.T) {
	s := newServer(t, "127.0.0.1:0")
	c, b := s.client("127.0.0.1"), make([]byte, 512)
	s.ask(c, 1)
	s.look(4 * time.Second)
	s.ask(c, 2)
	s.look(100 * time.Millisecond)
	if got := s.replies(c); !slices.Equal(got, []uint16{1, 2}) {
		t.Fatalf("answered %v", got)
	}
	s.ask(c, 3)
	s.now = s.now.Add(s.watch.Look(s.now, s.files))
	for id := uint16(3); id < 20; id++ {
		do(t, s.UDP[0].SetReadDeadline(time.Now().Add(10*time.Second)))
		_, _, err := s.UDP[0].ReadFromUDP(b)
		do(t, err)
		if got := binary.BigEndian.Uint16(b); got != id {
			t.Fatalf("the server reads query %d, want %d", got, id)
		}
		s.look(50 * time.Millisecond)
		s.ask(c, id+1)
		s.look(time.Second)
	}
	if got := s.replies(c); got != nil {
		t.Errorf("answered %v", got)
	}
	s.look(1500 * time.Millisecond)
	if got := s.replies(c); !slices.Equal(got, []uint16{20}) {
		t.Errorf("answered %v after the server has stopped again", got)
	}
}

// TestNoQueries checks that messages without a query get no reply, which two servers could exchange
// forever.
func TestNoQueries(t *testing.T) {
	s := newServer(t, "127.0.0.1:0")
	c := s.client("127.0.0.1")
	reply := query(7)
	reply[2] |= 0x80
	for _, m := range [][]byte{reply, {}, {1}, make([]byte, 5000)} {
		_, err := c.Write(m)
		do(t, err)
	}
	s.ask(c, 8)
	s.look(5 * time.Second)
	if got := s.replies(c); !slices.Equal(got, []uint16{8}) {
		t.Errorf("answered %v", got)
	}
}

// TestConnections checks that connections that the server does not accept are closed.
func TestConnections(t *testing.T) {
	s := newServer(t, "127.0.0.1:0")
	for range 3 {
		c, err := net.Dial("tcp", s.TCP[0].Addr().String())
		do(t, err)
		defer c.Close()
		_, err = c.Write([]byte("x"))
		do(t, err)
		s.look(3500 * time.Millisecond)
		do(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Fatalf("the connection is open: %v", err)
		}
	}
	c, err := net.Dial("tcp", s.TCP[0].Addr().String())
	do(t, err)
	defer c.Close()
	s.look(time.Second / 100)
	mine, err := s.TCP[0].Accept()
	do(t, err)
	s.look(3500 * time.Millisecond)
	_, err = mine.Write([]byte("y"))
	do(t, err, mine.Close())
	if n, err := c.Read(make([]byte, 1)); n != 1 {
		t.Errorf("the server's connection is closed: %v", err)
	}
}

// TestGone checks that sockets that are no longer served are not read.
func TestGone(t *testing.T) {
	s := newServer(t, "127.0.0.1:0")
	c := s.client("127.0.0.1")
	s.ask(c, 1)
	s.look(5 * time.Second)
	s.replies(c)
	files := s.files
	s.files = nil
	s.look(time.Second)
	if hung, _ := s.watch.Hung(); hung {
		t.Error("hung without sockets")
	}
	s.ask(c, 2)
	s.look(time.Minute)
	s.files = files
	s.look(time.Second)
	if got := s.replies(c); got != nil {
		t.Errorf("answered %v", got)
	}
}
