package fifo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
)

// TestPipeDirectoryRecovers changes the directory of a FIFO that a process writes. Within a second
// the process is asked to reopen, and all lines arrive, also after a restart.
func TestPipeDirectoryRecovers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	for name, change := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"recreated, with a file of the process": func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755), os.WriteFile(dir+"/a", []byte("file\n"), 0o600))
		},
		"moved":            func(dir string) error { return os.Rename(dir, dir+".1") },
		"mounted over":     func(dir string) error { return syscall.Mount("fifo-test", dir, "tmpfs", 0, "mode=700") },
		"ancestor removed": func(dir string) error { return os.RemoveAll(filepath.Dir(dir)) },
		"mode changed":     func(dir string) error { return os.Chmod(dir, 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(t.TempDir(), "run")
			dir, to := filepath.Join(root, "access"), &sink{}
			if err := os.Mkdir(root, 0o750); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
			reopen := make(chan string, 1)
			o := Options{Dir: dir, Roots: []string{root}, Group: -1, Holder: newHolding(t),
				Reopen: func(o string) { reopen <- o }}
			ps, stop := startPipes(t, o)
			path := filepath.Join(dir, "a")
			setOne(t, ps, path, to)
			w := openWriter(t, path)
			put(t, w, "1\n")
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			put(t, w, "2\n")
			if name != "mode changed" {
				<-reopen
			}
			put(t, w, "3\n")
			next := openWriter(t, path)
			defer next.Close()
			w.Close()
			accesslogtest.Eventually(t, "the lines of the first", func() bool { return len(to.String()) >= 6 })
			put(t, next, "4\n")
			want := "1\n2\n3\n4\n"
			if name == "recreated, with a file of the process" {
				want = "file\n1\n2\n3\n4\n"
			}
			accesslogtest.Eventually(t, "all lines", func() bool { return len(to.String()) == len(want) })
			accesslogtest.Eventually(t, "the mode of the directory", func() bool {
				st, err := os.Stat(dir)
				return err == nil && st.Mode().Perm()&0o022 == 0 && st.Mode().Perm()&0o011 == 0o011
			})
			stop()
			put(t, next, "5\n")
			ps, _ = startPipes(t, o)
			setOne(t, ps, path, to)
			accesslogtest.Eventually(t, "the line of the stop", func() bool { return len(to.String()) == len(want)+2 })
		})
	}
}

// TestPipeSetInRemovedDirectory checks that Set does not fail before Run has found that the
// directory was removed.
func TestPipeSetInRemovedDirectory(t *testing.T) {
	dir, to := pipeDir(t), &sink{}
	ps, err := Open(Options{Dir: dir, Group: -1})
	if err != nil {
		t.Fatal(err)
	}
	setOne(t, ps, dir+"/a", to)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	setOne(t, ps, dir+"/a", to)
	w := openWriter(t, dir+"/a")
	put(t, w, "1\n")
	if err := ps.Flush(t.Context(), "web"); err != nil || to.String() != "1\n" {
		t.Errorf("%v, %q", err, to.String())
	}
	w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ps.Run(ctx); err != nil {
		t.Error(err)
	}
}
