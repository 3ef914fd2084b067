package spool_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// numbered returns lines with the numbers in [from, to).
func numbered(from, to int) []byte {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %07d %s\n", i, strings.Repeat("x", 280))
	}
	return []byte(b.String())
}

// collector receives lines over TCP at a fixed address.
type collector struct {
	t    testing.TB
	addr string
	mu   sync.Mutex
	l    net.Listener
	conn []net.Conn
	got  []string
	lost []string      // markers of dropped lines
	more chan struct{} // one slot
	done sync.WaitGroup
}

// newCollector returns a collector that is not listening yet.
func newCollector(t testing.TB) *collector {
	c := &collector{t: t, addr: accesslogtest.FreeAddress(t), more: make(chan struct{}, 1)}
	t.Cleanup(c.stop)
	return c
}

// start makes the collector listen and read lines.
func (c *collector) start() {
	l, err := net.Listen("tcp", c.addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.l = l
	c.mu.Unlock()
	c.done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			c.conn = append(c.conn, conn)
			c.mu.Unlock()
			c.done.Go(func() {
				defer conn.Close()
				in := bufio.NewReaderSize(conn, 64<<10)
				for {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					c.mu.Lock()
					if strings.HasPrefix(line, "# ") {
						c.lost = append(c.lost, line)
					} else {
						c.got = append(c.got, line)
					}
					c.mu.Unlock()
					select {
					case c.more <- struct{}{}:
					default:
					}
				}
			})
		}
	})
}

// missing returns the number of lines that markers have reported.
func (c *collector) missing() (n uint64) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, line := range c.lost {
		var lines uint64
		if _, err := fmt.Sscanf(line, "# %d lines (", &lines); err != nil || !strings.Contains(line, " were dropped from ") {
			c.t.Errorf("marker %q: %v", line, err)
		}
		n += lines
	}
	return n
}

// leave stops the collector like a server shutdown: it closes its side, and reads until the other
// side is closed too.
func (c *collector) leave() {
	c.mu.Lock()
	if c.l != nil {
		c.l.Close()
	}
	for _, conn := range c.conn {
		conn.(*net.TCPConn).CloseWrite()
	}
	c.conn = nil
	c.mu.Unlock()
	c.done.Wait()
}

func (c *collector) stop() {
	c.mu.Lock()
	if c.l != nil {
		c.l.Close()
	}
	for _, conn := range c.conn {
		conn.Close()
	}
	c.mu.Unlock()
	c.done.Wait()
}

// await waits until the collector has received a line.
func (c *collector) await(last string) {
	c.t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		c.mu.Lock()
		n := len(c.got)
		ok := n > 0 && c.got[n-1] == last
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-c.more:
		case <-timeout:
			c.t.Fatalf("the collector has %d lines, but not %.20q", n, last)
		}
	}
}

// check requires all lines in [0, n) in order, and returns the number of repetitions.
func (c *collector) check(n int) (repeated int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	next := 0
	for _, line := range c.got {
		var i int
		if _, err := fmt.Sscanf(line, "line %d ", &i); err != nil || line != string(numbered(i, i+1)) {
			c.t.Fatalf("partial line %.60q", line)
		}
		switch {
		case i > next:
			c.t.Fatalf("got line %d, want %d", i, next)
		case i < next:
			repeated += 1
			if i+repeatedMost < next {
				c.t.Fatalf("line %d is repeated after %d", i, next)
			}
		default:
			next++
		}
	}
	if next != n {
		c.t.Fatalf("%d lines of %d", next, n)
	}
	return repeated
}

// repeatedMost exceeds the capacity of all kernel buffers.
const repeatedMost = 100_000

// runner runs until a context ends.
type runner interface{ Run(context.Context) error }

// run starts r. stop ends it; the end of the test does too.
func run(t testing.TB, r runner) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func newForwarder(t testing.TB, opts spool.ForwarderOptions) *spool.Forwarder {
	t.Helper()
	f, err := spool.NewForwarder(opts)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t testing.TB, d accesslog.Destination, batch []byte) {
	t.Helper()
	if n, err := d.Write(context.Background(), batch); err != nil || n != len(batch) {
		t.Fatalf("Write: %d of %d bytes, %v", n, len(batch), err)
	}
}

func spoolDir(t testing.TB) string { return filepath.Join(t.TempDir(), "spool") }

// TestForwardInOrder checks that lines arrive at the collector once, in order, and are counted.
func TestForwardInOrder(t *testing.T) {
	c := newCollector(t)
	c.start()
	f := newForwarder(t, spool.ForwarderOptions{Address: c.addr, Spool: spool.Options{Dir: spoolDir(t)}})
	run(t, f)
	const n = 20_000
	for i := 0; i < n; i += 100 {
		write(t, f, numbered(i, i+100))
	}
	c.await(string(numbered(n-1, n)))
	if repeated := c.check(n); repeated > 0 {
		t.Errorf("%d lines were repeated", repeated)
	}
	s := accesslogtest.Until(t, f, "all acknowledged", func(s accesslog.Stats) bool { return s.Written == n })
	if s.In != n || s.Repeated != 0 || s.Health != "" || s.Dropped != nil {
		t.Errorf("%+v", s)
	}
}

// TestForwardCollectorAwayAndBack checks that lines wait on disk while the collector is down, and
// arrive in order afterwards, followed by lines from memory.
func TestForwardCollectorAwayAndBack(t *testing.T) {
	c := newCollector(t)
	c.start()
	f := newForwarder(t, spool.ForwarderOptions{Address: c.addr, Spool: spool.Options{Dir: spoolDir(t)}})
	run(t, f)
	const n = 60_000
	sent := 0
	send := func(to int) {
		for ; sent < to; sent += 100 {
			write(t, f, numbered(sent, sent+100))
		}
	}
	send(n / 3)
	accesslogtest.Until(t, f, "acknowledged", func(s accesslog.Stats) bool { return s.Written > 0 })
	c.leave()
	send(2 * n / 3) // 6 MB, more than the memory limit
	accesslogtest.Until(t, f, "spooled", func(s accesslog.Stats) bool {
		return s.Spooled > 0 && s.Written+s.Spooled == uint64(sent)
	})
	if s := f.Stats(); !strings.Contains(s.Health, c.addr) || s.SpoolBytes == 0 {
		t.Errorf("%+v", s)
	}
	c.start()
	send(n)
	c.await(string(numbered(n-1, n)))
	repeated := c.check(n)
	s := accesslogtest.Until(t, f, "all acknowledged", func(s accesslog.Stats) bool {
		return s.Written == n && s.Spooled == 0
	})
	if uint64(repeated) > s.Repeated || s.Dropped != nil {
		t.Errorf("%d repeated, %+v", repeated, s)
	}
}
