package rotation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// TestRotationWithoutInodes checks that the active file grows while no file can be created, and is
// rotated as soon as that works.
func TestRotationWithoutInodes(t *testing.T) {
	path, remount := smallDisk(t, "size=1m,nr_inodes=4") // two directories, lock, active file
	synctest.Test(t, func(t *testing.T) {
		f, err := rotation.Open(rotation.Options{Path: path}.WithMaxBytes(100))
		if err != nil {
			t.Fatal(err)
		}
		write(t, f, lines(0, 10))
		write(t, f, lines(10, 20))
		if got := contents(t, path); len(got) != 1 || got[0] != lines(0, 20) || f.Stats().Health == nil {
			t.Errorf("content is %q, health %v", got, f.Stats().Health)
		}
		remount(0, "nr_inodes=100")
		pass(2 * time.Second)
		write(t, f, lines(20, 21))
		if got := contents(t, path); len(got) != 2 || got[0] != lines(0, 20) || got[1] != lines(20, 21) ||
			f.Stats().Health != nil {
			t.Errorf("content is %q, health %v", got, f.Stats().Health)
		}
		f.Close()
	})
}

// TestFailingDisk checks that writes that fail halfway with an error other than a full disk are
// retried: no line is lost, repeated, or torn, and the health reports the error. The test provokes
// EFBIG with a process limit.
func TestFailingDisk(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	path := newPath(t)
	f := open(t, rotation.Options{Path: path})
	write(t, f, lines(0, 1000))
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	work := sync.OnceFunc(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Error(err)
		}
	})
	defer work()
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE,
		&syscall.Rlimit{Cur: uint64(st.Size()) + 1005, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	output := make(chan error, 1)
	go func() {
		n, err := f.Write(context.Background(), []byte(lines(1000, 2000)))
		if err == nil && n != len(lines(1000, 2000)) {
			err = fmt.Errorf("%d bytes", n)
		}
		output <- err
	}()
	for deadline := time.Now().Add(time.Minute); f.Stats().Health == nil; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the health does not report the error")
		}
	}
	if h := f.Stats().Health; !errors.Is(h, syscall.EFBIG) {
		t.Errorf("health is %v", h)
	}
	work()
	if err := <-output; err != nil {
		t.Error(err)
	}
	if got := read(t, path); got != lines(0, 2000) {
		t.Errorf("%d bytes, want %d", len(got), len(lines(0, 2000)))
	}
	if s := f.Stats(); s.Health != nil || s.Retries == 0 {
		t.Errorf("%+v", s)
	}
}

// TestReadOnly checks that Open fails on a read-only file system.
func TestReadOnly(t *testing.T) {
	path, remount := smallDisk(t, "size=1m")
	f := open(t, rotation.Options{Path: path})
	write(t, f, "one\n")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	remount(syscall.MS_RDONLY, "")
	if _, err := rotation.Open(rotation.Options{Path: path}); !errors.Is(err, syscall.EROFS) {
		t.Errorf("Open: %v", err)
	}
}

// TestFullDiskAtTheStart opens a file with a torn line on a full disk. The line gets its LF when
// there is space.
func TestFullDiskAtTheStart(t *testing.T) {
	path, remount := smallDisk(t, "size=64k")
	synctest.Test(t, func(t *testing.T) {
		if err := os.Mkdir(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		big := []byte(strings.Repeat("x", 128<<10))
		if err := os.WriteFile(path, big, 0o640); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := rotation.Open(rotation.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := f.Write(context.Background(), []byte("after\n"))
			ended <- err
		}()
		pass(time.Second)
		remount(0, "size=1m")
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := read(t, path); got != string(big[:st.Size()])+"\nafter\n" || f.Stats().TornTails != 1 {
			t.Errorf("the file ends with %q", got[st.Size()-1:])
		}
		f.Close()
	})
}
