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

// numbered returns lines with the numbers from up to to.
func numbered(from, to int) []byte {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %07d %s\n", i, strings.Repeat("x", 280))
	}
	return []byte(b.String())
}

// collector takes lines over TCP at an address that stays the same.
type collector struct {
	t    testing.TB
	addr string
	mu   sync.Mutex
	l    net.Listener
	conn []net.Conn
	got  []string
	more chan struct{} // one slot
	done sync.WaitGroup
}

// newCollector makes one that is not there yet.
func newCollector(t testing.TB) *collector {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{t: t, addr: l.Addr().String(), more: make(chan struct{}, 1)}
	l.Close()
	t.Cleanup(c.stop)
	return c
}

// start lets it listen and read lines.
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
					c.got = append(c.got, line)
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

// leave ends it as a server does that is stopped: it ends its side, and reads on until the other
// side is ended too.
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

// await waits until the collector has a line.
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

// check wants all lines from 0 to n in order, and returns how many were there more than once.
func (c *collector) check(n int) (repeated int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	next := 0
	for _, line := range c.got {
		var i int
		if _, err := fmt.Sscanf(line, "line %d ", &i); err != nil || line != string(numbered(i, i+1)) {
			c.t.Fatalf("cut line %.60q", line)
		}
		switch {
		case i > next:
			c.t.Fatalf("line %d comes where %d is missing", i, next)
		case i < next:
			repeated += 1
			if i+repeatedMost < next {
				c.t.Fatalf("line %d comes again after %d", i, next)
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

// repeatedMost is more than all buffers of a kernel hold.
const repeatedMost = 100_000

// runner is what runs until a context ends.
type runner interface{ Run(context.Context) error }

// run runs something until the function that it returns is called, at the latest at the end of the
// test.
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

// TestForwardInOrder: what is written comes to the collector, once and in order, and is counted.
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
		t.Errorf("%d lines are repeated", repeated)
	}
	s := accesslogtest.Until(t, f, "all acknowledged", func(s accesslog.Stats) bool { return s.Written == n })
	if s.In != n || s.Repeated != 0 || s.Health != "" || s.Dropped != nil {
		t.Errorf("%+v", s)
	}
}

// TestForwardCollectorAwayAndBack: while the collector is away lines wait on the disk and writing
// goes on; then they come in order, those that came in memory meanwhile behind them.
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
	send(2 * n / 3) // 6 MB, more than memory
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
