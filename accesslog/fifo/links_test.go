package fifo

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
)

// linkDir is a Links with one directory, "pod".
type linkDir struct{ path string }

func (l linkDir) Link(to, name string, dir int) error {
	if to != "pod" {
		return errors.New("no such directory")
	}
	err := unix.Linkat(dir, name, unix.AT_FDCWD, filepath.Join(l.path, name), 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func (l linkDir) Unlink(_, name string) error { return os.Remove(filepath.Join(l.path, name)) }

// TestPipeLinked checks that lines arrive through a second name, also after a restart, and that an
// unused FIFO loses this name.
func TestPipeLinked(t *testing.T) {
	dir, other, to := pipeDir(t), t.TempDir(), &sink{}
	o := Options{Dir: dir, Group: -1, Private: true, Links: linkDir{other}, Holder: newHolding(t)}
	ps, stop := startPipes(t, o)
	want := []Pipe{{Path: filepath.Join(dir, "a"), UID: os.Geteuid(), GID: -1, To: to, Link: "pod"}}
	if errs := ps.Set("web", want); errs[0] != nil {
		t.Fatal(errs[0])
	}
	for path, mode := range map[string]os.FileMode{dir: os.ModeDir | 0o700, want[0].Path: os.ModeNamedPipe | 0o622} {
		if st, err := os.Lstat(path); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v; want mode %v", path, st.Mode(), err, mode)
		}
	}
	w := openWriter(t, filepath.Join(other, "a"))
	put(t, w, "1\n")
	accesslogtest.Eventually(t, "the first", func() bool { return to.String() == "1\n" })
	stop()
	put(t, w, "2\n")
	ps, _ = startPipes(t, o)
	if errs := ps.Set("web", want); errs[0] != nil {
		t.Fatal(errs[0])
	}
	accesslogtest.Eventually(t, "the second", func() bool { return to.String() == "1\n2\n" })
	w.Close()
	ps.Set("web", nil)
	accesslogtest.Eventually(t, "removal", func() bool {
		_, err := os.Lstat(filepath.Join(other, "a"))
		return os.IsNotExist(err) && len(ps.Stats()) == 0
	})
	want[0].Link = "gone"
	if errs := ps.Set("web", want); errs[0] == nil {
		t.Error("a FIFO without its name in the other directory counts as ready")
	}
}
