package rotation_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// TestOwnerOf checks which file names belong to another file.
func TestOwnerOf(t *testing.T) {
	for _, c := range []struct{ name, base, what string }{
		{"audit-2099-01-01T00-00-00.000.log", "audit.log", "backup"},
		{"audit-2099-01-01T00-00-00.000.log.gz", "audit.log", "backup"},
		{".audit-2099-01-01T00-00-00.000.log.gz.tmp", "audit.log", "temporary file"},
		{".audit.log.lock", "audit.log", "lock file"},
		{"a-b-2026-11-29T01-02-03.004.log", "a-b.log", "backup"},
		{"a-2026-11-29T01-02-03.004", "a", "backup"},
		{"-2026-11-29T01-02-03.004.log", ".log", "backup"},
		{"a.b-2026-11-29T01-02-03.004.c", "a.b.c", "backup"},
		{"a-2026-11-29T01-02-03.004-2026-11-29T01-02-03.004.log", "a-2026-11-29T01-02-03.004.log", "backup"},
		{"audit.log", "", ""}, {"", "", ""}, {"-2026-11-29T01-02-03.004", "", ""}, {".lock", "", ""},
		{"audit-2099-01-01.log", "", ""}, {"audit-2099-13-01T00-00-00.000.log", "", ""},
		{"a-2026-11-29T01-02-03.004.b.log", "", ""}, {"2026-11-29T01-02-03.004.log", "", ""},
	} {
		if base, what := rotation.OwnerOf(c.name); base != c.base || what != c.what {
			t.Errorf("%s belongs to %q as %q, want %q as %q", c.name, base, what, c.base, c.what)
		}
	}
}

// TestCollide checks which files share names of backups or locks.
func TestCollide(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a.log", "a.log", true}, {"a.log", "b.log", false}, {"a.log", "a", false},
		{"same.log", "same-2026-11-29T01-02-03.004.log", true}, {"same.log", "same-2026-11-29T01-02-03.004.log.gz", true},
		{"a.log", ".a.log.lock", true}, {"a", "a.gz", true}, {"a.log", "a.log.gz", false},
	} {
		if rotation.Collide(c.a, c.b) != c.want || rotation.Collide(c.b, c.a) != c.want {
			t.Errorf("%s and %s collide: want %v", c.a, c.b, c.want)
		}
	}
}

// TestFutureBackups checks that the modification time of a backup decides about its age, if the
// time in its name is in the future, and that the limit on their number uses the names.
func TestFutureBackups(t *testing.T) {
	old := func(path, name string, days int) {
		t.Helper()
		name = filepath.Join(filepath.Dir(path), name)
		at := time.Now().Add(-time.Duration(days) * 24 * time.Hour)
		if err := os.WriteFile(name, []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	setUp := func() string {
		path := newPath(t)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		old(path, "access-2199-01-01T00-00-00.000.log", 9)
		old(path, "access-2199-01-01T00-00-00.001.log", 3)
		backupAt(t, path, time.Now().Add(-time.Hour))
		return path
	}
	for name, c := range map[string]struct {
		limits rotation.Limits
		left   int // with a time in the future
		all    int
	}{
		"age": {rotation.Limits{MaxFileAge: 7}, 1, 2}, "number": {rotation.Limits{MaxFiles: 1}, 1, 1},
		"no limit": {rotation.Limits{}, 2, 3},
	} {
		path := setUp()
		f := open(t, rotation.Options{Path: path, Limits: c.limits})
		if got := backups(t, path); len(got) != c.all || f.Stats().Future != c.left {
			t.Errorf("%s: backups are %q, and %d are in the future", name, got, f.Stats().Future)
		}
	}
	path := setUp()
	p, err := rotation.OpenPlain(rotation.Options{Path: path, Limits: rotation.Limits{MaxFileAge: 7}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := backups(t, path); len(got) != 2 || p.Future() != 1 ||
		slices.Contains(got, "access-2199-01-01T00-00-00.000.log") {
		t.Errorf("plain: backups are %q, and %d are in the future", got, p.Future())
	}
}
