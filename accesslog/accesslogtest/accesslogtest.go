// Package accesslogtest supports tests of packages that handle access-log lines.
package accesslogtest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// Naive returns the expected output for an input: its lines, each with an LF, split into pieces of
// max bytes.
func Naive(input []byte, max int) (stored []byte, oversize, unterminated uint64) {
	for len(input) > 0 {
		line, rest, ended := bytes.Cut(input, []byte{'\n'})
		if input = rest; !ended {
			unterminated++
		}
		if len(line) > max {
			oversize++
		}
		for len(line) > max {
			stored = append(append(stored, line[:max]...), '\n')
			line = line[max:]
		}
		stored = append(append(stored, line...), '\n')
	}
	return stored, oversize, unterminated
}

// OpenFile opens a rotated file and runs it until the end of the test.
func OpenFile(t testing.TB, o rotation.Options) *rotation.File {
	t.Helper()
	f, err := rotation.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
		f.Close()
	})
	return f
}

// Stored returns the content of all files of a path, oldest first.
func Stored(t testing.TB, path string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	active := ""
	for _, e := range entries { // sorted by name, and so by time
		if filepath.Ext(e.Name()) != filepath.Ext(path) {
			continue // the lock file
		}
		b, err := os.ReadFile(filepath.Join(filepath.Dir(path), e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() == filepath.Base(path) {
			active = string(b)
			continue
		}
		all.Write(b)
	}
	return all.String() + active
}

// Line returns line n of connection c.
func Line(c, n int) string {
	return fmt.Sprintf("%d %d %s\n", c, n, strings.Repeat("x", 280))
}

// UsedCPU returns the CPU time of the process.
func UsedCPU(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Until waits for a state of the counters.
func Until(t testing.TB, f interface{ Stats() accesslog.Stats }, what string,
	ok func(accesslog.Stats) bool) accesslog.Stats {
	t.Helper()
	var s accesslog.Stats
	Eventually(t, what, func() bool {
		s = f.Stats()
		Balance(t, s)
		return ok(s)
	})
	return s
}

// Eventually polls until holds returns true. In a synctest bubble, time is fake.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	const patience = 2 * time.Minute
	late, tick := time.After(patience), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// Balance checks the guarantee of [accesslog.Stats].
func Balance(t testing.TB, s accesslog.Stats) {
	t.Helper()
	sum := s.Written + s.Spooled + s.InFlight
	for _, n := range s.Dropped {
		sum += n
	}
	if s.In != sum {
		t.Errorf("in %d, but the sum is %d: %+v", s.In, sum, s)
	}
}

// FreeAddress returns a local TCP address without a listener. Its port is below the ports that
// systems choose themselves: otherwise, another process could get it before the test uses it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 16000+rand.IntN(7000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Collector is an [accesslog.Destination] that records all lines.
type Collector struct {
	bytes.Buffer
	Batches int
	// Part, if set, returns how much of a batch is accepted, and the error.
	Part func(batch []byte) (int, error)
}

// Write implements [accesslog.Destination].
func (c *Collector) Write(_ context.Context, batch []byte) (int, error) {
	c.Batches++
	n, err := len(batch), error(nil)
	if c.Part != nil {
		n, err = c.Part(batch)
	}
	c.Buffer.Write(batch[:n])
	return n, err
}
