package rotation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// smallDisk mounts a file system for a test. It returns the path of a file on it, and a function
// that changes the mount options.
func smallDisk(t *testing.T, options string) (path string, remount func(flags uintptr, options string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("rotation-test", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "logs", "access.log"), func(flags uintptr, options string) {
		t.Helper()
		if err := syscall.Mount("rotation-test", dir, "tmpfs", syscall.MS_REMOUNT|flags, options); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDiskForFiveSeconds checks that writers wait while the disk is full, and that all lines
// are stored once and whole afterwards. In the meantime, the health reports the full disk and the
// file ends with a whole line.
func TestFullDiskForFiveSeconds(t *testing.T) {
	path, remount := smallDisk(t, "size=256k")
	synctest.Test(t, func(t *testing.T) {
		f, err := rotation.Open(rotation.Options{Path: path}.WithMaxBytes(100 << 10))
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, f)
		const batches, each = 100, 500 // 500 lines of about 11 bytes
		ended := make(chan error, 2)
		for w := range 2 {
			go func() {
				for i := range batches {
					b := lines((w*batches+i)*each, (w*batches+i+1)*each)
					if n, err := f.Write(context.Background(), []byte(b)); err != nil || n != len(b) {
						ended <- fmt.Errorf("batch %d: %d, %v", i, n, err)
						return
					}
				}
				ended <- nil
			}()
		}
		pass(5 * time.Second)
		if len(ended) > 0 {
			t.Fatal("the writers did not wait: ", <-ended)
		}
		if s := f.Stats(); s.Health == nil || !strings.Contains(s.Health.Error(), "no space left") || s.Retries < 4 {
			t.Errorf("stats %+v", s)
		}
		if got := read(t, path); got != "" && got[len(got)-1] != '\n' {
			t.Errorf("the file ends with %q", got[max(0, len(got)-30):])
		}
		remount(0, "size=16m")
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if s := f.Stats(); s.Health != nil || s.LinesDropped != 0 {
			t.Errorf("stats %+v", s)
		}
		seen := map[string]int{}
		for line := range strings.Lines(strings.Join(contents(t, path), "")) {
			seen[line]++
		}
		for i := range 2 * batches * each {
			if n := seen[lines(i, i+1)]; n != 1 {
				t.Fatalf("line %d is there %d times", i, n)
			}
		}
		if len(seen) != 2*batches*each {
			t.Errorf("%d lines", len(seen))
		}
		stop()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestFullDiskDropsNewest checks that lines that do not fit are dropped and counted, and that a
// marker is written when there is space, without a further line.
func TestFullDiskDropsNewest(t *testing.T) {
	path, remount := smallDisk(t, "size=128k")
	synctest.Test(t, func(t *testing.T) {
		f, err := rotation.Open(rotation.Options{Path: path, OnFull: rotation.DropNewest})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, f)
		sent := 0
		for range 400 { // 400 × 100 lines
			write(t, f, lines(sent, sent+100))
			sent += 100
		}
		s := f.Stats()
		if s.LinesDropped == 0 || s.Health == nil || int(s.Bytes+s.BytesDropped) != len(lines(0, sent)) {
			t.Errorf("stats %+v", s)
		}
		remount(0, "size=1m")
		pass(5 * time.Second)
		if got := read(t, path); !strings.HasSuffix(got, "no space left on device\n") || f.Stats().Health != nil {
			t.Errorf("before another line: %q, health %v", got[max(0, len(got)-100):], f.Stats().Health)
		}
		write(t, f, "after\n")
		got := strings.SplitAfter(read(t, path), "\n")
		stored := sent - int(s.LinesDropped)
		if strings.Join(got[:stored], "") != lines(0, stored) {
			t.Error("the lines before the loss are not there")
		}
		want := fmt.Sprintf("# %d lines (%d bytes) were dropped from ", s.LinesDropped, s.BytesDropped)
		if rest := got[stored:]; len(rest) != 3 || !strings.HasPrefix(rest[0], want) ||
			!strings.HasSuffix(rest[0], "no space left on device\n") || rest[1] != "after\n" {
			t.Errorf("after the loss: %q, want %q", rest, want)
		}
		if h := f.Stats().Health; h != nil {
			t.Error(h)
		}
		stop()
		f.Close()
	})
}

// TestFullDiskMakesRoom checks that PurgeWhenFull removes the oldest backups before a writer waits.
func TestFullDiskMakesRoom(t *testing.T) {
	path, _ := smallDisk(t, "size=256k")
	f := open(t, rotation.Options{Path: path, PurgeWhenFull: true}.WithMaxBytes(20<<10))
	for i := range 100 {
		write(t, f, lines(i*1000, (i+1)*1000))
	}
	got := strings.Join(contents(t, path), "")
	if !strings.HasSuffix(lines(0, 100_000), got) || len(got) < 150<<10 {
		t.Errorf("%d bytes are left, from %q", len(got), got[:min(len(got), 30)])
	}
	if s := f.Stats(); s.Purged == 0 || s.Health != nil {
		t.Errorf("stats %+v", s)
	}
}

// TestMinFree checks that the disk counts as full below MinFree.
func TestMinFree(t *testing.T) {
	path, _ := smallDisk(t, "size=1m")
	synctest.Test(t, func(t *testing.T) {
		f, err := rotation.Open(rotation.Options{Path: path, MinFree: 512 << 10})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		batch, stored := []byte(strings.Repeat(strings.Repeat("x", 1023)+"\n", 16)), 0
		for {
			n, err := f.Write(ctx, batch)
			stored += n
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) || n != 0 || !strings.Contains(err.Error(), "minFree is 524288") {
					t.Errorf("Write: %d, %v", n, err)
				}
				break
			}
		}
		var st syscall.Statfs_t
		if err := syscall.Statfs(path, &st); err != nil || st.Bavail*uint64(st.Bsize) < 512<<10 || stored < 400<<10 {
			t.Errorf("%d bytes stored, %d free, %v", stored, st.Bavail*uint64(st.Bsize), err)
		}
		f.Close()
	})
}

// TestOthersFillTheDisk checks that the writes of other processes are detected within a second.
func TestOthersFillTheDisk(t *testing.T) {
	path, _ := smallDisk(t, "size=4m")
	synctest.Test(t, func(t *testing.T) {
		f, err := rotation.Open(rotation.Options{Path: path, MinFree: 2 << 20, OnFull: rotation.DropNewest})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, f)
		write(t, f, "one\n")
		if err := os.WriteFile(sibling(path, "other"), make([]byte, 3<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		write(t, f, "two\n")
		if got := read(t, path); got != "one\n" || f.Stats().LinesDropped != 1 {
			t.Errorf("the file holds %q, stats %+v", got, f.Stats())
		}
		stop()
		f.Close()
	})
}

// TestOthersFillTheDiskWithoutRun checks that they are also detected after one megabyte without
// Run.
func TestOthersFillTheDiskWithoutRun(t *testing.T) {
	path, _ := smallDisk(t, "size=8m")
	f := open(t, rotation.Options{Path: path, MinFree: 1 << 20, OnFull: rotation.DropNewest})
	write(t, f, "one\n")
	if err := os.WriteFile(sibling(path, "other"), make([]byte, 7<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	batch := strings.Repeat("x", 1<<16-1) + "\n"
	for range 32 {
		write(t, f, batch)
	}
	if s := f.Stats(); s.LinesDropped == 0 || s.Bytes > 2<<20 {
		t.Errorf("stats %+v", s)
	}
}

// TestCloseEndsWriters checks that Close ends all waiting writers, and that they learn how much was
// stored.
func TestCloseEndsWriters(t *testing.T) {
	path, _ := smallDisk(t, "size=64k")
	synctest.Test(t, func(t *testing.T) {
		f, err := rotation.Open(rotation.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		batch := []byte(strings.Repeat(strings.Repeat("x", 99)+"\n", 1000))
		ended := make(chan error)
		for range 3 {
			go func() {
				n, err := f.Write(context.Background(), batch)
				if n != 0 {
					t.Errorf("%d bytes are stored", n)
				}
				ended <- err
			}()
		}
		pass(time.Second)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		for range 3 {
			if err := <-ended; !errors.Is(err, rotation.ErrClosed) {
				t.Error(err)
			}
		}
		if got := read(t, path); got != "" {
			t.Errorf("%d bytes are left", len(got))
		}
	})
}
