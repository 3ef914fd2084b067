package spool_test

import (
	"bufio"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// TestForwardNeverRead checks that a collector that accepts connections but never reads does not
// block writers, other forwarders, or shutdown.
func TestForwardNeverRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	good := newCollector(t)
	good.start()
	memory := spool.NewMemory(1 << 20)
	deaf := newForwarder(t, spool.ForwarderOptions{Address: l.Addr().String(),
		Spool: spool.Options{Dir: spoolDir(t), Memory: memory}})
	stop := run(t, deaf)
	f := newForwarder(t,
		spool.ForwarderOptions{Address: good.addr, Spool: spool.Options{Dir: spoolDir(t), Memory: memory}})
	run(t, f)
	const n = 100_000 // 30 MB, more than the kernel's buffers
	for i := 0; i < n; i += 100 {
		write(t, deaf, numbered(i, i+100))
		if i%1000 == 0 {
			write(t, f, numbered(i/10, i/10+100))
		}
	}
	good.await(string(numbered(n/10-1, n/10)))
	good.check(n / 10)
	s := accesslogtest.Until(t, deaf, "all lines on disk", func(s accesslog.Stats) bool {
		return s.Spooled > n/4 && s.InFlight == 0
	})
	if s.Dropped != nil {
		t.Errorf("%+v", s)
	}
	stop()
	if s := deaf.Stats(); s.InFlight != 0 || s.Written+s.Spooled != n {
		t.Errorf("%+v", s)
	}
}

// TestForwardReset resets a connection. Only lines in the buffer of the collector's kernel may be
// lost; later lines arrive in order, and repeated lines are counted.
func TestForwardReset(t *testing.T) {
	c := newCollector(t)
	l, err := net.Listen("tcp", c.addr)
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan int, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			first <- 0
			return
		}
		in, n := bufio.NewReaderSize(conn, 4096), 0
		for ; n < 5000; n++ {
			if _, err := in.ReadString('\n'); err != nil {
				break
			}
		}
		conn.(*net.TCPConn).SetLinger(0) // RST
		l.Close()
		conn.Close()
		first <- n
	}()
	f := newForwarder(t, spool.ForwarderOptions{Address: c.addr, Spool: spool.Options{Dir: spoolDir(t)}})
	run(t, f)
	const n = 50_000
	for i := 0; i < n; i += 100 {
		write(t, f, numbered(i, i+100))
	}
	if got := <-first; got != 5000 {
		t.Fatalf("%d lines before the reset", got)
	}
	c.start()
	s := accesslogtest.Until(t, f, "acknowledged", func(s accesslog.Stats) bool { return s.Written == n })
	c.leave()
	if s.Dropped != nil {
		t.Errorf("%+v", s)
	}
	if len(c.got) > 0 {
		from := n - len(c.got)
		for i, line := range c.got {
			if line != string(numbered(from+i, from+i+1)) {
				t.Fatalf("line %d of the second connection is %.20q, not %d", i, line, from+i)
			}
		}
		if repeated := max(0, 5000-from); s.Repeated < uint64(repeated) {
			t.Errorf("%d lines were repeated, %+v", repeated, s)
		}
	}
}

// TestForwardOptions checks that invalid options are refused with the field, its value, and a
// remedy.
func TestForwardOptions(t *testing.T) {
	for _, opts := range []spool.ForwarderOptions{
		{}, {Address: "host"}, {Address: ":1"}, {Address: "host:0"}, {Address: "host:99999"},
		{Address: away, Spool: spool.Options{MaxBytes: -1}},
		{Address: away, Spool: spool.Options{MaxAge: -1}},
		{Address: away, Spool: spool.Options{OnFull: "drop"}},
		{Address: away, Spool: spool.Options{MaxMemory: 1}},
	} {
		if _, err := spool.NewForwarder(opts); err == nil {
			t.Errorf("%+v is accepted", opts)
		}
	}
}

// TestForwardMemoryAlone checks that without a directory, lines wait in memory, the oldest are
// dropped, and remaining lines are dropped at the end.
func TestForwardMemoryAlone(t *testing.T) {
	f := newForwarder(t, spool.ForwarderOptions{Address: away, Dial: noDial})
	stop := run(t, f)
	const n = 30_000
	for i := 0; i < n; i += 100 {
		write(t, f, numbered(i, i+100))
	}
	s := f.Stats()
	accesslogtest.Balance(t, s)
	if s.Dropped[accesslog.CauseSpoolFull] < n/3 || s.InFlight < 10_000 {
		t.Errorf("%+v", s)
	}
	stop()
	if s = f.Stats(); s.InFlight != 0 || s.Dropped[accesslog.CauseStopped] == 0 {
		t.Errorf("%+v", s)
	}
	accesslogtest.Balance(t, s)
}

// TestForwardLongLines checks that lines up to 1 MiB arrive whole, and longer ones in pieces.
func TestForwardLongLines(t *testing.T) {
	c := newCollector(t)
	c.start()
	f := newForwarder(t, spool.ForwarderOptions{Address: c.addr, Spool: spool.Options{Dir: spoolDir(t)}})
	run(t, f)
	long := make([]byte, 5<<20)
	for i := range long {
		long[i] = 'a'
	}
	long[1<<20], long[1<<20+100], long[len(long)-1] = '\n', '\n', '\n'
	write(t, f, long)
	s := accesslogtest.Until(t, f, "acknowledged", func(s accesslog.Stats) bool { return s.InFlight+s.Spooled == 0 })
	write(t, f, []byte("end\n"))
	c.await("end\n")
	bytes := 0
	for _, line := range c.got {
		bytes += len(line)
	}
	if s.Oversize != 3 || bytes != len(long)+3+4 || len(c.got) != 7 {
		t.Errorf("%d bytes in %d lines, %+v", bytes, len(c.got), s)
	}
}

// batch contains 64 KiB of lines of 300 bytes.
var batch = numbered(0, 218)

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSpoolAppend measures the CPU time of appending to a spool, relative to plain files of
// the same size.
func BenchmarkSpoolAppend(b *testing.B) {
	dir := b.TempDir()
	var plain, spooled time.Duration
	rounds := 0
	const n = 4096
	for b.Loop() {
		rounds++
		begin := cpuTime(b)
		var file *os.File
		for i := range n {
			if i%128 == 0 { // the size of a segment
				file.Close()
				os.Remove(dir + "/plain.1")
				os.Rename(dir+"/plain", dir+"/plain.1")
				var err error
				if file, err = os.OpenFile(dir+"/plain", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := file.Write(batch); err != nil {
				b.Fatal(err)
			}
		}
		file.Close()
		os.Remove(dir + "/plain")
		os.Remove(dir + "/plain.1")
		middle := cpuTime(b)
		if err := spool.AppendRecords(spool.Options{Dir: dir + "/s"}, batch, n); err != nil {
			b.Fatal(err)
		}
		plain, spooled = plain+middle-begin, spooled+cpuTime(b)-middle
	}
	b.ReportMetric(float64(spooled)/float64(plain), "cpu-ratio")
	b.ReportMetric(float64(spooled.Nanoseconds())/float64(rounds*n), "cpu-ns/batch")
}
