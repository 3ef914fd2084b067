package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/base/files"
)

func private(t *testing.T) (*files.Private, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state", "secrets")
	p, err := files.MakePrivate(path)
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return p, path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplacePrivate checks that a file is private after it is replaced, whatever its mode was.
func TestReplacePrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, mode := range []fs.FileMode{0o200, 0o644} {
		must(t, os.WriteFile(path, []byte("old"), mode))
		must(t, os.Chmod(path, mode))
		must(t, files.ReplacePrivate(path, []byte("new")))
		st, err := os.Stat(path)
		must(t, err)
		if b, err := os.ReadFile(path); err != nil || string(b) != "new" || st.Mode() != 0o600 {
			t.Errorf("mode %#o: %q %v %v", mode, b, st.Mode(), err)
		}
	}
}

func TestPrivate(t *testing.T) {
	p, path := private(t)
	must(t, p.Write("b", []byte("one")))
	must(t, p.Write("b", []byte("two"))) // replaces the file
	must(t, p.Write("a", nil))
	must(t, os.WriteFile(filepath.Join(path, ".c"), nil, 0o600)) // left by an interrupted write
	must(t, p.Write("c", []byte("three")))
	list, err := p.List()
	must(t, err)
	var names []string
	for _, st := range list {
		names = append(names, st.Name())
		if st.Mode() != 0o600 {
			t.Errorf("%s has the mode %v", st.Name(), st.Mode())
		}
	}
	if got := strings.Join(names, " "); got != "a b c" {
		t.Errorf("files %q", got)
	}
	if data, err := p.Read("b", 3); err != nil || string(data) != "two" {
		t.Errorf("%q, %v", data, err)
	}
	var refused *files.RefusedError
	if _, err := p.Read("b", 2); !errors.As(err, &refused) {
		t.Errorf("a file that is too large: %v", err)
	}
	must(t, p.Remove("b"))
	must(t, p.Remove("b"))
	if _, err := p.Read("b", 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 2 {
		t.Errorf("what is left: %v, %v", entries, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", st, err)
	}
}

// TestPrivateStaysInside checks that no name leads out of the directory.
func TestPrivateStaysInside(t *testing.T) {
	p, path := private(t)
	outside := filepath.Join(filepath.Dir(path), "outside")
	must(t, os.WriteFile(outside, []byte("x"), 0o600))
	must(t, os.Symlink(outside, filepath.Join(path, "link")))
	must(t, os.Symlink(outside, filepath.Join(path, ".new")))
	for _, name := range []string{"../../outside", outside, "link", ".", ""} {
		if data, err := p.Read(name, 10); err == nil {
			t.Errorf("read %q: %q", name, data)
		}
	}
	for _, name := range []string{"../../outside", outside} {
		if err := p.Write(name, []byte("y")); err == nil {
			t.Errorf("wrote %q", name)
		}
		if err := p.Remove(name); err == nil {
			t.Errorf("removed %q", name)
		}
	}
	must(t, p.Write("new", []byte("y")))
	must(t, p.Write("link", []byte("y"))) // replaces the link, not its target
	if data, err := os.ReadFile(outside); err != nil || string(data) != "x" {
		t.Errorf("outside: %q, %v", data, err)
	}
}

// TestPrivateLock checks that only one Private holds the lock until it is closed.
func TestPrivateLock(t *testing.T) {
	first, path := private(t)
	must(t, first.Lock())
	second, err := files.OpenPrivate(path)
	must(t, err)
	defer second.Close()
	locked := make(chan error, 1)
	go func() { locked <- second.Lock() }()
	must(t, first.Write("a", []byte("1")))
	select {
	case err := <-locked:
		t.Fatalf("two have the lock (%v)", err)
	default:
	}
	must(t, first.Close())
	must(t, <-locked)
	if data, err := second.Read("a", 1); err != nil || string(data) != "1" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestPrivateMissing(t *testing.T) {
	if _, err := files.OpenPrivate(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if _, err := files.OpenPrivate(filepath.Join(t.TempDir(), "none", "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
