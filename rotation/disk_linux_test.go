package rotation_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/rotation"
)

// newDisk returns an ext4 file system on a loop device, mounted at dir, and a function that mounts
// it elsewhere.
func newDisk(t *testing.T, dir string) (mount func(dir string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	image := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 8<<20)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4 cannot make a file system here: %v %s", err, out)
	}
	mount = func(dir string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "mount", "-o", "loop,errors=remount-ro", image, dir).CombinedOutput()
		if err != nil {
			t.Skipf("no loop device can be mounted here: %v %s", err, out)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	}
	mount(dir)
	return mount
}

// shutDown makes all operations of the file system of a directory fail with EIO.
func shutDown(dir string) error {
	const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.IoctlSetPointerInt(fd, shutdown, 0)
}

// makeReadOnly makes the kernel find an error in the file system of a directory, and remount it.
func makeReadOnly(dir string) error {
	b, err := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == dir {
			return os.WriteFile("/sys/fs/ext4/"+filepath.Base(f[0])+"/trigger_fs_error", []byte("1"), 0)
		}
	}
	return err
}

// TestDiskFails checks that lines wait while a disk fails or is read-only, with the reason in the
// health, and go to the directory at the path when the disk is taken away. The lines before stay on
// the disk.
func TestDiskFails(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(dir string) error
		want string
	}{
		"EIO":       {shutDown, "input/output error"},
		"read-only": {makeReadOnly, "read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			mount := newDisk(t, dir)
			path := filepath.Join(dir, "logs", "access.log")
			synctest.Test(t, func(t *testing.T) {
				f, err := rotation.Open(rotation.Options{Path: path, Roots: []string{dir}})
				if err != nil {
					t.Fatal(err)
				}
				stop := run(t, f)
				write(t, f, lines(0, 10))
				pass(2 * time.Second) // synced
				if err := c.fail(dir); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() {
					_, err := f.Write(context.Background(), []byte(lines(10, 20)))
					ended <- err
				}()
				pass(5 * time.Second)
				if h := f.Stats().Health; len(ended) > 0 || h == nil || !strings.Contains(h.Error(), c.want) {
					t.Errorf("while the disk fails: %d writes, health %v", len(ended), h)
				}
				if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
					t.Fatal(err)
				}
				pass(5 * time.Second)
				if len(ended) == 0 || <-ended != nil || f.Stats().Health != nil {
					t.Errorf("without the disk: %v", f.Stats().Health)
				}
				if got := read(t, path); got != lines(10, 20) {
					t.Errorf("the new file holds %q", got)
				}
				stop()
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
			mount(other)
			if got := read(t, filepath.Join(other, "logs", "access.log")); got != lines(0, 10) {
				t.Errorf("the disk holds %q", got)
			}
		})
	}
}
