package spool_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// TestSpoolDirectoryRecovers changes the directory of a spool with several segments. The next
// forwarder sends all lines in order.
func TestSpoolDirectoryRecovers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	for name, change := range map[string]func(dir string) error{
		"removed":   os.RemoveAll,
		"recreated": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
		"moved":     func(dir string) error { return os.Rename(dir, dir+".1") },
		"moved and recreated": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".1"), os.Mkdir(dir, 0o700))
		},
		"mounted over":     func(dir string) error { return syscall.Mount("spool-test", dir, "tmpfs", 0, "size=16m") },
		"ancestor removed": func(dir string) error { return os.RemoveAll(filepath.Dir(dir)) },
		"ancestor renamed": func(dir string) error { return os.Rename(filepath.Dir(dir), filepath.Dir(dir)+".1") },
		"mode changed":     func(dir string) error { return os.Chmod(dir, 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "spools", "one")
			if err := os.Mkdir(filepath.Dir(dir), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
			options := spool.Options{Dir: dir, Roots: []string{root}, MaxBytes: 8 << 20}
			synctest.Test(t, func(t *testing.T) {
				f := newForwarder(t, spool.ForwarderOptions{Address: away, Dial: noDial, Spool: options})
				stop := run(t, f)
				write(t, f, numbered(0, 8000)) // three segments
				<-time.After(time.Second)
				synctest.Wait()
				if n := len(segments(t, dir, ".spool")); n < 3 {
					t.Fatalf("%d segments", n)
				}
				if err := change(dir); err != nil {
					t.Fatal(err)
				}
				write(t, f, numbered(8000, 9000))
				<-time.After(2 * time.Second)
				synctest.Wait()
				write(t, f, numbered(9000, 10_000))
				if s := f.Stats(); s.Health != "" && !strings.Contains(s.Health, "does not accept lines") ||
					len(s.Dropped) > 0 {
					t.Errorf("%+v", s)
				}
				stop()
			})
			if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("the directory: %v, %v", st, err)
			}
			c := newCollector(t)
			c.start()
			f := newForwarder(t, spool.ForwarderOptions{Address: c.addr, Spool: options})
			stop := run(t, f)
			c.await(string(numbered(9999, 10_000)))
			stop()
			if n := c.check(10_000); n > 0 {
				t.Errorf("%d lines came twice", n)
			}
			if left := segments(t, dir+".1", ".spool"); !slices.Equal(left, nil) {
				t.Errorf("left in the moved directory: %q", left)
			}
		})
	}
}

// TestSpoolDirectoryOfOthers checks that segments of another spool, which a mount brings, are kept
// under another name, and that lines wait in open files while the directory cannot be used.
func TestSpoolDirectoryOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := spoolDir(t)
	fill(t, dir+"2", 10)
	synctest.Test(t, func(t *testing.T) {
		f := newForwarder(t, spool.ForwarderOptions{Address: away, Dial: noDial, Spool: spool.Options{Dir: dir}})
		stop := run(t, f)
		write(t, f, numbered(0, 1000))
		<-time.After(time.Second)
		if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+"2", dir), os.Chown(dir, 12345, -1)); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		if s := f.Stats(); !strings.Contains(s.Health, "belongs to user 12345") {
			t.Errorf("%+v", s)
		}
		if err := os.Chown(dir, 0, -1); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		synctest.Wait()
		if s := f.Stats(); strings.Contains(s.Health, "directory") || s.Spooled != 1000 {
			t.Errorf("%+v", s)
		}
		stop()
	})
	if own, others := segments(t, dir, ".spool"), segments(t, dir, ".found"); len(own) != 1 || len(others) != 1 {
		t.Errorf("%q, %q", own, others)
	}
}
