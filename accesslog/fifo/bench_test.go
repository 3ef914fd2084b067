package fifo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/rotation"
)

const benchWriterVariable = "ACCESSLOG_BENCH_WRITER"

// benchSeconds is the duration of one measurement.
const benchSeconds = 5

// BenchmarkFIFO measures the CPU time of reading a FIFO into a file that is rotated at 100 MB and
// synced each second. A process writes lines of 300 bytes like an Envoy: 64 KiB at a time, in
// writes of 4 KiB. The name of a sub-benchmark is the number of lines per second.
func BenchmarkFIFO(b *testing.B) {
	for _, rate := range []int{500, 4000, 50000} {
		b.Run(fmt.Sprint(rate), func(b *testing.B) {
			f, err := rotation.Open(rotation.Options{Path: filepath.Join(b.TempDir(), "logs", "access.log"),
				Limits: rotation.Limits{MaxFileSize: 100, MaxFiles: 1}})
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error)
			go func() { ended <- f.Run(ctx) }()
			defer func() { cancel(); <-ended }()
			dir := pipeDir(b)
			ps, stop := startPipes(b, Options{Dir: dir, Group: -1})
			defer stop()
			path := filepath.Join(dir, "a")
			setOne(b, ps, path, f)
			measureFIFO(b, rate, path, func() uint64 { return ps.Stats()[path].Written })
		})
	}
}

// BenchmarkFIFOFloor is the baseline of BenchmarkFIFO: it reads every 100 ms or when the FIFO may
// be half full, counts lines, and writes them without rotation or sync. A kill would lose lines.
func BenchmarkFIFOFloor(b *testing.B) {
	for _, rate := range []int{500, 4000, 50000} {
		b.Run(fmt.Sprint(rate), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "a")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				b.Fatal(err)
			}
			fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer unix.Close(fd)
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize); err != nil {
				b.Fatal(err)
			}
			out, err := os.Create(filepath.Join(b.TempDir(), "out"))
			if err != nil {
				b.Fatal(err)
			}
			defer out.Close()
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			lines := uint64(0)
			seen := make(chan uint64)
			go func() {
				defer close(ended)
				buf := make([]byte, accesslog.FlowBuffer)
				rest := min(100*time.Millisecond, time.Duration(float64(pipeSize/2)/float64(rate*300)*float64(time.Second)))
				tick := time.NewTicker(rest)
				defer tick.Stop()
				for {
					select {
					case <-ctx.Done():
						return
					case seen <- lines:
						continue
					case <-tick.C:
					}
					for {
						n, err := unix.Read(fd, buf)
						if err != nil || n <= 0 {
							break
						}
						lines += accesslog.CountLines(buf[:n])
						if _, err := out.Write(buf[:n]); err != nil {
							return
						}
					}
				}
			}()
			measureFIFO(b, rate, path, func() uint64 { return <-seen })
			cancel()
			<-ended
		})
	}
}

// measureFIFO runs a writer process for benchSeconds and reports the cost of reading.
func measureFIFO(b *testing.B, rate int, path string, output func() uint64) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	var used time.Duration
	var n uint64
	for range b.N {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", benchWriterVariable, rate, path))
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = io.ReadFull(out, make([]byte, 1)) // the writer has started
		}
		before, lines := accesslogtest.UsedCPU(b), output()
		if err == nil {
			_, err = io.ReadFull(out, make([]byte, 1)) // the writer has ended
		}
		used += accesslogtest.UsedCPU(b) - before
		n += output() - lines
		if err = errors.Join(err, cmd.Wait()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(used)/float64(n), "cpu-ns/line")
	b.ReportMetric(float64(n)/float64(b.N)/benchSeconds, "lines/s")
	b.ReportMetric(100*used.Seconds()/float64(b.N)/benchSeconds, "core-%")
}

// writeAsEnvoy is the writer process of the benchmarks.
func writeAsEnvoy(arg string) int {
	var rate int
	var path string
	if _, err := fmt.Sscan(arg, &rate, &path); err != nil {
		return 1
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 1
	}
	const flush, page, line = 64 << 10, 4 << 10, 300
	text := bytes.Repeat([]byte(strings.Repeat("x", line-1)+"\n"), flush/line+2)
	_, _ = os.Stdout.WriteString("<")
	begin, sent := time.Now(), 0
	for time.Since(begin) < benchSeconds*time.Second {
		due := begin.Add(time.Duration(float64(sent+flush) / float64(rate*line) * float64(time.Second)))
		<-time.After(time.Until(due))
		for range flush / page {
			at := sent % line
			if _, err := f.Write(text[at : at+page]); err != nil {
				return 1
			}
			sent += page
		}
	}
	_, _ = os.Stdout.WriteString(">")
	if rest := line - sent%line; rest < line {
		if _, err := f.Write(text[line-rest : line]); err != nil {
			return 1
		}
	}
	return 0
}
