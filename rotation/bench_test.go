package rotation_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// batch is 64 KiB of lines of 300 bytes.
var batch = []byte(strings.Repeat(strings.Repeat("x", 299)+"\n", 218))

// BenchmarkPlainAppend is the baseline of BenchmarkAppend: it writes files of 100 MB and keeps one
// old file.
func BenchmarkPlainAppend(b *testing.B) {
	path := newPath(b)
	var file *os.File
	defer func() { file.Close() }()
	next := func() {
		file.Close()
		err := os.Rename(path, path+".1")
		if err == nil || os.IsNotExist(err) {
			file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	next()
	b.SetBytes(int64(len(batch)))
	defer reportCPU(b)()
	for i := 1; b.Loop(); i++ {
		if i%1603 == 0 {
			next()
		}
		if _, err := file.Write(batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppend writes batches to files of 100 MB.
func BenchmarkAppend(b *testing.B) {
	f := open(b,
		rotation.Options{Path: newPath(b), Limits: rotation.Limits{MaxFileSize: 100, MaxFiles: 1}, Sync: rotation.SyncNever})
	defer run(b, f)()
	b.SetBytes(int64(len(batch)))
	defer reportCPU(b)()
	for b.Loop() {
		if _, err := f.Write(context.Background(), batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRotationPause measures rotations of files of 10 MB with 3 backups, at 200 MB per second.
func BenchmarkRotationPause(b *testing.B) {
	f := open(b, rotation.Options{Path: newPath(b), Limits: rotation.Limits{MaxFiles: 3}})
	defer run(b, f)()
	pace := time.NewTicker(50 * time.Millisecond)
	defer pace.Stop()
	var pauses []time.Duration
	for b.Loop() {
		<-pace.C
		for range 160 {
			if _, err := f.Write(context.Background(), batch); err != nil {
				b.Fatal(err)
			}
		}
		begin := time.Now()
		if err := f.Rotate(); err != nil {
			b.Fatal(err)
		}
		pauses = append(pauses, time.Since(begin))
	}
	slices.Sort(pauses)
	b.ReportMetric(float64(pauses[len(pauses)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(pauses[len(pauses)*99/100].Microseconds()), "p99-µs")
}

// reportCPU reports the CPU time of the process per iteration.
func reportCPU(b *testing.B) func() {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}
