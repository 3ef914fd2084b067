package rotation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

func openPlain(t *testing.T, o rotation.Options) *rotation.Plain {
	t.Helper()
	p, err := rotation.OpenPlain(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// backupsBecome waits until lumberjack's cleanup has left want backups. No event announces it.
func backupsBecome(t *testing.T, path string, want int) {
	t.Helper()
	deadline, tick := time.After(2*time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for len(backups(t, path)) != want {
		select {
		case <-deadline:
			t.Fatalf("backups %q, want %d", backups(t, path), want)
		case <-tick.C:
		}
	}
}

// TestPlainRotatesOftenAndLosesNothing checks that quick rotations overwrite no backup.
func TestPlainRotatesOftenAndLosesNothing(t *testing.T) {
	path := newPath(t)
	p := openPlain(t, rotation.Options{Path: path}.WithMaxBytes(10))
	var want strings.Builder
	for i := range 50 {
		line := fmt.Sprintf("line %03d\n", i)
		want.WriteString(line)
		if n, err := p.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := strings.Join(contents(t, path), ""); got != want.String() {
		t.Errorf("the files hold %q", got)
	}
	if n := len(backups(t, path)); n != 49 {
		t.Errorf("%d backups, want 49: each line is too large for the file that holds another", n)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("the new file has mode %v, %v", st.Mode(), err)
	}
}

// TestPlainLimits checks that 0 means no limit, that rotations remove surplus backups, and that
// checks remove old ones.
func TestPlainLimits(t *testing.T) {
	path := newPath(t)
	p := openPlain(t, rotation.Options{Path: path})
	for range 3 {
		if _, err := p.Write(make([]byte, 60<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if got := backups(t, path); len(got) != 0 {
		t.Errorf("rotated without a limit: %q", got)
	}
	path = newPath(t)
	p = openPlain(t, rotation.Options{Path: path, Limits: rotation.Limits{MaxFiles: 2, MaxFileAge: 1}}.WithMaxBytes(1))
	for range 5 {
		if _, err := p.Write([]byte("a\n")); err != nil {
			t.Fatal(err)
		}
	}
	backupsBecome(t, path, 2)
	for _, name := range backups(t, path) {
		if err := os.Remove(filepath.Join(filepath.Dir(path), name)); err != nil {
			t.Fatal(err)
		}
	}
	base := filepath.Base(path)
	for _, age := range []time.Duration{25 * time.Hour, 23 * time.Hour} {
		name := rotation.BackupName(base, time.Now().Add(-age).UnixMilli())
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	backupsBecome(t, path, 1)
}

// TestPlainOutside checks that the next check replaces a renamed file.
func TestPlainOutside(t *testing.T) {
	path := newPath(t)
	p := openPlain(t, rotation.Options{Path: path})
	for _, step := range []func() error{
		func() error { _, err := p.Write([]byte("one\n")); return err },
		func() error { return os.Rename(path, path+".moved") },
		p.Check,
		func() error { _, err := p.Write([]byte("two\n")); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := read(t, path+".moved"), read(t, path); a != "one\n" || b != "two\n" {
		t.Errorf("%q, %q", a, b)
	}
}

// TestPlainRefuses checks that OpenPlain refuses links, directories, and files in use, and that
// Write fails after Close.
func TestPlainRefuses(t *testing.T) {
	path := newPath(t)
	link, dir := filepath.Join(filepath.Dir(path), "link"), filepath.Join(filepath.Dir(path), "dir")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := openPlain(t, rotation.Options{Path: path})
	for at, want := range map[string]string{link: "symbolic link", dir: "is a directory", path: "in use"} {
		if _, err := rotation.OpenPlain(rotation.Options{Path: at}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", at, err, want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, path); err != nil {
		t.Fatal(err)
	}
	if err := p.Check(); err == nil || p.Health() == nil {
		t.Error("a link that replaced the file is followed")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Write([]byte("a\n")); n != 0 || err != rotation.ErrClosed {
		t.Error(n, err)
	}
	if names, err := os.ReadDir(dir); err != nil || !slices.Equal(names, nil) {
		t.Error(names, err)
	}
}
