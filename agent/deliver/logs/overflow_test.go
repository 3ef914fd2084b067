package logs_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/rotation"
)

// smallDisk mounts a file system of 256 KiB. It returns the path of a file on it, and a function
// that changes its size.
func smallDisk(t *testing.T) (path string, resize func(size string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("logs-test", dir, "tmpfs", 0, "size=256k,mode=755"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "logs", "a.log"), func(size string) {
		t.Helper()
		if err := syscall.Mount("logs-test", dir, "tmpfs", syscall.MS_REMOUNT, "size="+size); err != nil {
			t.Fatal(err)
		}
	}
}

// numbered returns lines with the numbers from and below to.
func numbered(from, to int) []byte {
	var b bytes.Buffer
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %d %s\n", i, strings.Repeat("x", i%200))
	}
	return b.Bytes()
}

// stored returns the lines of a file and its backups.
func stored(t testing.TB, path string) []byte {
	t.Helper()
	names, err := filepath.Glob(strings.TrimSuffix(path, ".log") + "*.log") // the backups, then the file
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// sameLines compares lines, and names the first difference.
func sameLines(t testing.TB, got, want []byte) {
	t.Helper()
	same := 0
	for same < min(len(got), len(want)) && got[same] == want[same] {
		same++
	}
	if same < len(got) || same < len(want) {
		t.Errorf("%d lines, want %d; they differ after %d: %.80q, want %.80q", bytes.Count(got, []byte{'\n'}),
			bytes.Count(want, []byte{'\n'}), bytes.Count(want[:same], []byte{'\n'}), got[same:], want[same:])
	}
}

// files is a running registry of files with spools in a directory.
type files struct {
	*logs.Files
	t    *testing.T
	stop func()
}

func newFilesIn(t *testing.T, spool string, maxBytes int64) *files {
	fs := &files{Files: logs.NewFiles(noPaths(), slog.New(slog.DiscardHandler)), t: t}
	fs.Spool = logs.FileSpool{Dir: spool, MaxBytes: maxBytes}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fs.Run(ctx) }()
	fs.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return fs
}

func (fs *files) open(o rotation.Options) *logs.SharedFile {
	fs.t.Helper()
	f, err := fs.Files.Open(logpaths.AgentLog, o)
	if err != nil {
		fs.t.Fatal(err)
	}
	return f
}

// put writes all lines, and checks that the file accepts them.
func put(t *testing.T, f *logs.SharedFile, lines []byte) {
	t.Helper()
	for len(lines) > 0 {
		n := bytes.LastIndexByte(lines[:min(len(lines), 64<<10)], '\n') + 1
		if m, err := f.Write(t.Context(), lines[:n]); m != n || err != nil {
			t.Fatalf("%d of %d bytes: %v", m, n, err)
		}
		lines = lines[n:]
	}
}

// adds checks that the counters add up.
func adds(t *testing.T, s accesslog.Stats) {
	t.Helper()
	sum := s.Written + s.Spooled + s.InFlight
	for _, n := range s.Dropped {
		sum += n
	}
	if sum != s.In {
		t.Errorf("the account does not add up: %+v", s)
	}
}

// TestFullDiskSpools checks that the lines of a file on a full disk go to a spool on another disk,
// and to the file in order as soon as it accepts them. The spool is removed afterwards.
func TestFullDiskSpools(t *testing.T) {
	path, resize := smallDisk(t)
	spool := filepath.Join(t.TempDir(), "spool")
	synctest.Test(t, func(t *testing.T) {
		fs := newFilesIn(t, spool, 0)
		f := fs.open(rotation.Options{Path: path, Limits: rotation.Limits{MaxFileSize: 1}})
		if err := os.Mkdir(spool, 0o700); err != nil {
			t.Fatal(err)
		}
		const count = 30_000
		put(t, f, numbered(0, count/2))
		s := f.LineStats()
		adds(t, s)
		if s.In != count/2 || s.Spooled == 0 || s.Written == 0 || len(s.Dropped) > 0 || s.SpoolBytes == 0 ||
			!strings.Contains(s.Health, "no space left") || !strings.Contains(s.Health, "wait in the spool") {
			t.Errorf("while the disk is full: %+v", s)
		}
		time.Sleep(time.Minute)
		if s := f.LineStats(); s.SpoolOldest < 59 {
			t.Errorf("age of the oldest line: %v", s.SpoolOldest)
		}
		if err := os.RemoveAll(filepath.Join(spool, entry(t, spool))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		put(t, f, numbered(count/2, count-1))
		resize("64m")
		time.Sleep(5 * time.Second)
		put(t, f, numbered(count-1, count))
		time.Sleep(10 * time.Second)
		s = f.LineStats()
		adds(t, s)
		if s.Written != count || s.Spooled != 0 || s.Health != "" || s.SpoolOldest != 0 {
			t.Errorf("afterwards: %+v", s)
		}
		sameLines(t, stored(t, path), numbered(0, count))
		if left, err := os.ReadDir(spool); err != nil || len(left) > 0 {
			t.Errorf("left in the spool: %v, %v", left, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		fs.stop()
	})
}

// entry returns the only name in a directory.
func entry(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	return list[0].Name()
}

// TestFullDiskAndSpool checks that lines are dropped only when the spool is full too, and that a
// marker in the file says how many are missing, of which file, and since when.
func TestFullDiskAndSpool(t *testing.T) {
	path, resize := smallDisk(t)
	spool := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		fs := newFilesIn(t, spool, 1<<20)
		f := fs.open(rotation.Options{Path: path, OnFull: rotation.DropNewest})
		const count = 20_000
		began := time.Now()
		put(t, f, numbered(0, count))
		s := f.LineStats()
		adds(t, s)
		dropped := s.Dropped[accesslog.CauseDiskFull]
		if s.Spooled < 5000 || dropped < 5000 || !strings.Contains(s.Health, "the spool has reached its size limit") {
			t.Errorf("while both are full: %+v", s)
		}
		resize("64m")
		time.Sleep(10 * time.Second)
		put(t, f, []byte("after\n"))
		got, rest, ok := bytes.Cut(stored(t, path), []byte("# "))
		sameLines(t, got, numbered(0, count-int(dropped)))
		want := fmt.Sprintf("%d lines (%d bytes) were dropped from %s to %s: %s: the spool has reached its size limit\n"+
			"after\n", dropped, len(numbered(count-int(dropped), count)), began.UTC().Format(time.RFC3339Nano),
			began.UTC().Format(time.RFC3339Nano), path)
		if !ok || string(rest) != want {
			t.Errorf("marker %q, want %q", rest, want)
		}
		if s := f.LineStats(); s.Health != "" || s.Spooled != 0 || s.In != count+2 {
			t.Errorf("afterwards: %+v", s)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		fs.stop()
	})
}

// TestFullDiskWithoutSpool checks that writers wait for a full disk when the spool is on it.
func TestFullDiskWithoutSpool(t *testing.T) {
	path, resize := smallDisk(t)
	synctest.Test(t, func(t *testing.T) {
		fs := newFilesIn(t, filepath.Dir(filepath.Dir(path)), 0)
		f := fs.open(rotation.Options{Path: path})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		n, err := f.Write(ctx, numbered(0, 10_000))
		cancel()
		if err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%d bytes, %v", n, err)
		}
		resize("64m")
		put(t, f, numbered(0, 10_000)[n:])
		sameLines(t, stored(t, path), numbered(0, 10_000))
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		fs.stop()
	})
}

// TestSpoolOfAnEarlierAgent checks that a later agent finds the spooled lines of a file that no
// proxy uses any more, and writes them.
func TestSpoolOfAnEarlierAgent(t *testing.T) {
	path, resize := smallDisk(t)
	spool := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		fs := newFilesIn(t, spool, 0)
		f := fs.open(rotation.Options{Path: path})
		put(t, f, numbered(0, 20_000))
		if list, err := fs.Waiting(); err != nil || len(list) > 0 {
			t.Errorf("the file is open: %v, %v", list, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		fs.stop()
		resize("64m")
		fs = newFilesIn(t, spool, 0)
		list, err := fs.Waiting()
		if err != nil || len(list) != 1 || list[0] != path {
			t.Fatalf("%v, %v", list, err)
		}
		f = fs.open(rotation.Options{Path: path})
		s := f.LineStats() // some or all of the spooled lines may be in the file already
		if adds(t, s); s.In == 0 {
			t.Errorf("at the start: %+v", s)
		}
		time.Sleep(10 * time.Second)
		adds(t, f.LineStats())
		sameLines(t, stored(t, path), numbered(0, 20_000))
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		fs.stop()
	})
}
