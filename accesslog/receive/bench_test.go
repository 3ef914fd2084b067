package receive

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/rotation"
)

// benchLines is one write of a sender: 512 lines of 300 bytes.
var benchLines = bytes.Repeat([]byte(strings.Repeat("x", 299)+"\n"), 512)

// BenchmarkReceive receives lines of 300 bytes from 8 connections into a file that is rotated at
// 100 MB. The CPU time includes the senders, which are the same in both benchmarks.
func BenchmarkReceive(b *testing.B) {
	f := accesslogtest.OpenFile(b, rotation.Options{Path: filepath.Join(b.TempDir(), "logs", "access.log"),
		Limits: rotation.Limits{MaxFileSize: 100, MaxFiles: 1}})
	r := receive(b, Options{To: f})
	load(b, r.addr, func() uint64 { return r.Stats().Written })
}

// BenchmarkWritePerLine is the baseline of BenchmarkReceive: one write per line.
func BenchmarkWritePerLine(b *testing.B) {
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "access.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	l := listenTCP(b)
	var conns sync.WaitGroup
	var mu sync.Mutex
	var output uint64
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				in := bufio.NewReaderSize(c, 64<<10)
				for {
					line, err := in.ReadSlice('\n')
					if err != nil {
						return
					}
					mu.Lock()
					output++
					if _, err := f.Write(line); err != nil {
						b.Error(err)
					}
					mu.Unlock()
				}
			})
		}
	})
	load(b, l.Addr().String(), func() uint64 { mu.Lock(); defer mu.Unlock(); return output })
	l.Close()
	conns.Wait()
}

// load sends 512 lines b.N times and waits until they are written.
func load(b *testing.B, addr string, output func() uint64) {
	const conns = 8
	b.SetBytes(int64(len(benchLines)))
	b.ResetTimer()
	before := accesslogtest.UsedCPU(b)
	var wg sync.WaitGroup
	for id := range conns {
		wg.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			for range (b.N + id) / conns {
				if _, err := c.Write(benchLines); err != nil {
					b.Error(err)
				}
			}
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				b.Error(err)
			}
			_, _ = io.Copy(io.Discard, c)
		})
	}
	wg.Wait()
	sent := uint64(b.N) * 512
	for output() < sent && !b.Failed() {
		<-time.After(time.Millisecond)
	}
	b.ReportMetric(float64(accesslogtest.UsedCPU(b)-before)/float64(sent), "cpu-ns/line")
}

// BenchmarkQuietBesideFlood measures the time until a line of a connection with 10 lines per second
// is in the file, while 63 other connections flood.
func BenchmarkQuietBesideFlood(b *testing.B) {
	path := filepath.Join(b.TempDir(), "logs", "access.log")
	f := accesslogtest.OpenFile(b, rotation.Options{Path: path, Limits: rotation.Limits{MaxFileSize: 100, MaxFiles: 1}})
	r := receive(b, Options{To: &stamped{File: f, seen: make(chan time.Time, 1)}})
	stop := r.flood(63)
	quiet := r.dial()
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	var waits []time.Duration
	for b.Loop() {
		<-pace.C
		begin := time.Now()
		send(b, quiet, quietLine)
		waits = append(waits, (<-r.opts.To.(*stamped).seen).Sub(begin))
	}
	stop()
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
}

const quietLine = "a quiet line\n"

// stamped records when the quiet line was written.
type stamped struct {
	*rotation.File
	seen chan time.Time
}

func (s *stamped) Append(ctx context.Context, batch []byte) (int, int, error) {
	n, dropped, err := s.File.Append(ctx, batch)
	if len(batch) == len(quietLine) {
		s.seen <- time.Now()
	}
	return n, dropped, err
}
