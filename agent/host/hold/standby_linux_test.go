package hold

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/dns/standby"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var aQuery = []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 1, 0, 1}

// TestHungAgent: while a connected agent does not read its DNS socket, the holder answers SERVFAIL.
func TestHungAgent(t *testing.T) {
	run, log := t.TempDir(), &lines{}
	serving(t, run, ServeOptions{Stay: true, hung: 20 * time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil))})
	k := Open(Options{Dir: run})
	f, addr := udpSocket(t)
	hold(t, k, "dns/here/udp/a/0", f)
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if _, err := c.Write(aQuery); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 100)
		if n, err := c.Read(b); err != nil || n < 12 || b[1] != 7 || b[3]&15 != 2 {
			t.Fatalf("%x, %v", b[:n], err)
		}
	}
	until(t, "the log says so", func() bool {
		return strings.Contains(log.String(), "the agent does not read DNS queries")
	})
	end(k)
}

// TestServedBy: only sockets that a connected agent has passed for reading are examined, because
// otherwise queries wait for the next agent.
func TestServedBy(t *testing.T) {
	s := &server{held: map[string]*os.File{}, found: map[string]bool{}, served: map[string]*net.UnixConn{}}
	defer s.closeAll()
	f, addr := udpSocket(t)
	agent, other := &net.UnixConn{}, &net.UnixConn{}
	do := func(c *net.UnixConn, op byte, files ...*os.File) {
		t.Helper()
		_, give, err := s.answer(c, append([]byte{version, op}, "dns/here/udp/a/0"...), files)
		if give.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hung := func(want bool) {
		t.Helper()
		if _, err := c.Write(aQuery); err != nil {
			t.Fatal(err)
		}
		w := standby.New(0)
		for range 3 {
			s.look(w)
		}
		if got, _ := w.Hung(); got != want {
			t.Errorf("hung: %t", got)
		}
	}
	do(agent, opHold, f)
	hung(true)
	s.left(other)
	hung(true)
	s.left(agent)
	hung(false)
	do(other, opTake) // the next agent does not read it yet
	hung(false)
	if f, err = duplicate(s.held["dns/here/udp/a/0"]); err != nil {
		t.Fatal(err)
	}
	do(other, opHold, f)
	hung(true)
	do(other, opRelease)
	hung(false)
}
