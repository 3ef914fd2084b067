package receive

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/rotation"
)

// patience is the maximum time to wait for an event.
const patience = 2 * time.Minute

// receiver is a running receiver.
type receiver struct {
	*Receiver
	t     testing.TB
	net   string
	addr  string
	stop  context.CancelFunc
	ended chan error
}

func listenTCP(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// receive runs a receiver until the end of the test, or until end is called.
func receive(t testing.TB, o Options) *receiver {
	t.Helper()
	if o.Listener == nil {
		o.Listener = listenTCP(t)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	out := &receiver{Receiver: r, t: t, net: o.Listener.Addr().Network(), addr: o.Listener.Addr().String(), stop: stop,
		ended: make(chan error, 1)}
	go func() { out.ended <- r.Run(ctx) }()
	t.Cleanup(out.end)
	return out
}

// end stops the receiver and waits for it. A second call does nothing.
func (r *receiver) end() {
	r.stop()
	if err, ok := <-r.ended; ok {
		close(r.ended)
		if err != nil {
			r.t.Error(err)
		}
	}
}

func (r *receiver) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial(r.net, r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

func send(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// exactlyOnce checks that the lines "conn number filler" of conns connections are present once
// each, in order, and nothing else.
func exactlyOnce(t testing.TB, got string, conns, each int) {
	t.Helper()
	next := make([]int, conns)
	for line := range strings.Lines(got) {
		conn, _, _ := strings.Cut(line, " ")
		c, err := strconv.Atoi(conn)
		if err != nil || c < 0 || c >= conns || line != accesslogtest.Line(c, next[c]) {
			t.Fatalf("line %.80q is not the next one", line)
		}
		next[c]++
	}
	for c, n := range next {
		if n != each {
			t.Fatalf("%d lines of connection %d are there, want %d", n, c, each)
		}
	}
}

// flood sends lines over a connection and waits until the receiver closes its side.
func flood(t testing.TB, c net.Conn, id, each int) {
	var b bytes.Buffer
	for n := range each {
		b.WriteString(accesslogtest.Line(id, n))
		if b.Len() > 60_000+id*17 || n == each-1 {
			if _, err := c.Write(b.Bytes()); err != nil {
				t.Error(err)
				return
			}
			b.Reset()
		}
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, c)
}

func (r *receiver) balance() {
	r.t.Helper()
	s := r.Stats()
	done := s.Written + s.Spooled
	for _, n := range s.Dropped {
		done += n
	}
	if s.In != done || s.InFlight != 0 {
		r.t.Errorf("in = written + spooled + dropped + in flight does not hold at the end: %+v", s)
	}
}

// Test1ManyConnections (case 1) uses 64 connections and files of 1 MB: every line is stored once
// and whole, and no file is too large.
func Test1ManyConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "access.log")
	f := accesslogtest.OpenFile(t,
		rotation.Options{Path: path, Limits: rotation.Limits{MaxFileSize: 1}, Sync: rotation.SyncNever})
	r := receive(t, Options{To: f})
	conns, each := 64, 3000
	if testing.Short() {
		each = 600
	}
	var wg sync.WaitGroup
	for id := range conns {
		c := r.dial()
		wg.Go(func() { flood(t, c, id, each) })
	}
	wg.Wait()
	r.end()
	r.balance()
	if s := r.Stats(); s.In != uint64(conns*each) || s.Written != s.In || s.Accepted != uint64(conns) ||
		s.Connections != 0 {
		t.Errorf("stats %+v", s)
	}
	exactlyOnce(t, accesslogtest.Stored(t, path), conns, each)
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if st, err := e.Info(); err != nil || st.Size() > 1<<20 {
			t.Errorf("%s: %v, %v", e.Name(), st.Size(), err)
		}
	}
	if len(entries) < each/60 {
		t.Errorf("only %d files", len(entries))
	}
}

// Test13HalfLine (case 13) checks that a sender that stops within a line blocks no other sender,
// and that its line stays whole.
func Test13HalfLine(t *testing.T) {
	to := &accesslogtest.Collector{}
	r := receive(t, Options{To: &locked{to: to}})
	a, b := r.dial(), r.dial()
	send(t, a, "the first half, ")
	flood(t, b, 1, 2000)
	accesslogtest.Eventually(t, "the flood is stored", func() bool { return r.Stats().Written == 2000 })
	send(t, a, "the second half\n")
	accesslogtest.Eventually(t, "the line is stored", func() bool { return r.Stats().Written == 2001 })
	a.Close()
	r.end()
	r.balance()
	if got := to.String(); !strings.HasSuffix(got, "the first half, the second half\n") {
		t.Errorf("stored: %.100q", got[len(got)-100:])
	}
}

// Test14Unterminated (case 14) checks that a partial line before FIN or RST is stored with an LF,
// and is not joined with the next line of another sender.
func Test14Unterminated(t *testing.T) {
	for _, how := range []string{"FIN", "RST"} {
		t.Run(how, func(t *testing.T) {
			to := &accesslogtest.Collector{}
			r := receive(t, Options{To: &locked{to: to}})
			a, b := r.dial(), r.dial()
			send(t, a, "whole\nhalf")
			accesslogtest.Eventually(t, "the partial line is read", func() bool { return r.Stats().BytesIn == 10 })
			if how == "RST" {
				if err := a.(*net.TCPConn).SetLinger(0); err != nil {
					t.Fatal(err)
				}
			}
			a.Close()
			accesslogtest.Eventually(t, "the partial line is stored", func() bool { return r.Stats().Written == 2 })
			send(t, b, "other\n")
			accesslogtest.Eventually(t, "the other line is stored", func() bool { return r.Stats().Written == 3 })
			b.Close()
			r.end()
			if s := r.Stats(); s.Unterminated != 1 || s.In != 3 || to.String() != "whole\nhalf\nother\n" {
				t.Errorf("stored %q, stats %+v", to.String(), s)
			}
		})
	}
}

// locked makes a destination safe for concurrent use.
type locked struct {
	mu sync.Mutex
	to accesslog.Destination
}

func (l *locked) Write(ctx context.Context, batch []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(ctx, batch)
}

// TestHostileBytes checks that a receiver stores any data unchanged.
func TestHostileBytes(t *testing.T) {
	for name, in := range map[string]string{
		"16 MiB without LF": strings.Repeat("x", 16<<20),
		"NUL":               "a\x00b\n\x00\n",
		"not UTF-8":         "\xff\xfe\xc3\x28\n",
		"CR":                "with\r\nand\rwithout\n",
		"empty lines":       "\n\n\n",
		"octet counting":    "5 hello6 world!\n",
	} {
		t.Run(name, func(t *testing.T) {
			to := &accesslogtest.Collector{}
			r := receive(t, Options{To: &locked{to: to}})
			c := r.dial()
			send(t, c, in)
			c.Close()
			accesslogtest.Eventually(t, "the connection has ended", func() bool {
				s := r.Stats()
				return s.Accepted == 1 && s.Connections == 0
			})
			r.end()
			r.balance()
			want, oversize, unterminated := accesslogtest.Naive([]byte(in), accesslog.DefaultMaxLine)
			if s := r.Stats(); to.String() != string(want) || s.Oversize != oversize || s.Unterminated != unterminated {
				t.Errorf("%d bytes are stored, want %d; stats %+v", to.Len(), len(want), s)
			}
		})
	}
}

// TestMaxConns checks that connections beyond the limit are closed at once and counted, that others
// are unaffected, and that freed slots are used.
func TestMaxConns(t *testing.T) {
	to := &accesslogtest.Collector{}
	r := receive(t, Options{To: &locked{to: to}, MaxConns: 3})
	var in []net.Conn
	for range 3 {
		c := r.dial()
		send(t, c, "in\n")
		in = append(in, c)
	}
	accesslogtest.Eventually(t, "three connections are accepted", func() bool { return r.Stats().Written == 3 })
	for range 20 {
		c := r.dial()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a connection beyond the limit is not closed")
		}
	}
	if s := r.Stats(); s.Refused != 20 || s.Connections != 3 {
		t.Errorf("stats %+v", s)
	}
	in[0].Close()
	accesslogtest.Eventually(t, "one connection has ended", func() bool { return r.Stats().Connections == 2 })
	send(t, r.dial(), "later\n")
	accesslogtest.Eventually(t, "the free slot is used", func() bool { return r.Stats().Written == 4 })
}

// TestUnixSocket receives lines over a Unix socket.
func TestUnixSocket(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	to := &accesslogtest.Collector{}
	r := receive(t, Options{Listener: l, To: &locked{to: to}})
	c := r.dial()
	send(t, c, "one\ntwo")
	c.Close()
	accesslogtest.Eventually(t, "the lines are stored", func() bool { return r.Stats().Written == 2 })
	r.end()
	if to.String() != "one\ntwo\n" {
		t.Errorf("stored %q", to.String())
	}
}

// TestListenerCloses checks that Run fails if another caller closes the listener, and that open
// connections are served to their end.
func TestListenerCloses(t *testing.T) {
	l := listenTCP(t)
	r, err := New(Options{Listener: l, To: &locked{to: &accesslogtest.Collector{}}})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := r.Run(context.Background()); err == nil {
		t.Error("no error")
	}
}

// TestReceiverOptions checks that invalid options are refused with a remedy.
func TestReceiverOptions(t *testing.T) {
	l := listenTCP(t)
	defer l.Close()
	for name, o := range map[string]Options{
		"maxConnections: -1 is negative; set a value >= 0": {MaxConns: -1},
		"maxLine: -1 is negative; set a value >= 0":        {MaxLine: -1},
		"memory: -1 is negative; set a value >= 0":         {Memory: -1},
		"drain: -1ns is negative; set a value >= 0":        {Drain: -1},
	} {
		o.Listener, o.To = l, &accesslogtest.Collector{}
		if _, err := New(o); err == nil || err.Error() != name {
			t.Errorf("%v, want %s", err, name)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("no error without listener and destination")
	}
}
