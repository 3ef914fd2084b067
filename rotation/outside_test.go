package rotation_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// sibling returns the path of another name in a file's directory.
func sibling(path, name string) string { return filepath.Join(filepath.Dir(path), name) }

// TestChangedFromOutside renames, removes, truncates, replaces, or extends the active file. Within
// a second, lines go to the path again, and foreign lines are unchanged.
func TestChangedFromOutside(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(path string) error
		want   string // expected content of the file at the path
	}{
		{"renamed", func(p string) error { return os.Rename(p, p+".1") }, "after\n"},
		{"removed", os.Remove, "after\n"},
		{"truncated", func(p string) error { return os.Truncate(p, 0) }, "after\n"},
		{"truncated in a line", func(p string) error { return os.Truncate(p, 3) }, "bef\nafter\n"},
		{"replaced", func(p string) error {
			if err := os.Rename(p, p+".1"); err != nil {
				return err
			}
			return os.WriteFile(p, []byte("theirs"), 0o600)
		}, "theirs\nafter\n"},
		{"appended", func(p string) error {
			f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("theirs")
				f.Close()
			}
			return err
		}, "before\ntheirs\nafter\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := newPath(t)
				f, err := rotation.Open(rotation.Options{Path: path})
				if err != nil {
					t.Fatal(err)
				}
				stop := run(t, f)
				write(t, f, "before\n")
				if err := c.change(path); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				if s := f.Stats(); s.Outside != 1 || s.Health != nil {
					t.Errorf("stats %+v", s)
				}
				write(t, f, "after\n")
				if got := read(t, path); got != c.want {
					t.Errorf("the file holds %q, want %q", got, c.want)
				}
				if exists(path+".1") && read(t, path+".1") != "before\n" {
					t.Error("the renamed file was changed")
				}
				stop()
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestLinkReplacesFile checks that a symbolic link at the path is not written to. Lines continue in
// the file that was moved, and the health reports it until the link is removed.
func TestLinkReplacesFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		f, err := rotation.Open(rotation.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, f)
		if err := errors.Join(os.Rename(path, path+".1"), os.WriteFile(path+".2", nil, 0o640),
			os.Symlink("access.log.2", path)); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		write(t, f, "one\n")
		if h := f.Stats().Health; h == nil || !strings.Contains(h.Error(), "symbolic link; remove it") {
			t.Errorf("health is %v", h)
		}
		if got := read(t, path+".1"); got != "one\n" {
			t.Errorf("the moved file holds %q", got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		write(t, f, "two\n")
		if got := read(t, path); got != "two\n" || f.Stats().Health != nil || read(t, path+".2") != "" {
			t.Errorf("the file holds %q, health is %v", got, f.Stats().Health)
		}
		stop()
		f.Close()
	})
}

// TestRefusedPaths checks that Open refuses files and directories that others can replace, or that
// are not regular, with a remedy, and creates nothing.
func TestRefusedPaths(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(path string) error
		want    string
	}{
		"symbolic link of another user as directory": {func(p string) error {
			d := filepath.Dir(p)
			return errors.Join(os.Rename(d, d+"2"), os.Symlink(d+"2", d), os.Lchown(d, 12345, -1))
		}, "only a link of root in a directory that only root can change is followed"},
		"symbolic link as directory, in another user's directory": {func(p string) error {
			d := filepath.Dir(p)
			return errors.Join(os.Rename(d, d+"2"), os.Symlink(d+"2", d), os.Chown(filepath.Dir(d), 12345, -1))
		}, "only a link of root in a directory that only root can change is followed"},
		"link to another link as directory": {func(p string) error {
			d := filepath.Dir(p)
			return errors.Join(os.Rename(d, d+"2"), os.Symlink(d+"2", d+"3"), os.Symlink(d+"3", d))
		}, "is a symbolic link or not a directory"},
		"world-writable directory": {func(p string) error { return os.Chmod(filepath.Dir(p), 0o777) }, "run chmod o-w"},
		"directory of another user": {func(p string) error { return os.Chown(filepath.Dir(p), 12345, -1) },
			"belongs to user 12345"},
		"directory of another group": {func(p string) error {
			return errors.Join(os.Chown(filepath.Dir(p), -1, 12345), os.Chmod(filepath.Dir(p), 0o770))
		}, "run chmod g-w"},
		"symbolic link": {func(p string) error { return os.Symlink("/etc/hosts", p) }, "is a symbolic link; remove it"},
		"directory":     {func(p string) error { return os.Mkdir(p, 0o700) }, "access.log"},
		"file of another user": {func(p string) error {
			return errors.Join(os.WriteFile(p, nil, 0o640), os.Chown(p, 12345, -1))
		}, "belongs to user 12345"},
		"symbolic link as lock": {func(p string) error { return os.Symlink("x", sibling(p, ".access.log.lock")) }, "lock"},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 && strings.Contains(name, "another") {
				t.Skip("only root can change the owner of files")
			}
			path := newPath(t)
			if err := c.prepare(path); err != nil {
				t.Fatal(err)
			}
			if f, err := rotation.Open(rotation.Options{Path: path}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open: %v, want %q", err, c.want)
				if f != nil {
					f.Close()
				}
			}
		})
	}
}

// TestOneProcess checks that a file cannot be opened twice, with any limits.
func TestOneProcess(t *testing.T) {
	path := newPath(t)
	f := open(t, rotation.Options{Path: path})
	if _, err := rotation.Open(rotation.Options{Path: path}); err == nil ||
		!strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("the second Open: %v", err)
	}
	write(t, f, "one\n")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	g := open(t, rotation.Options{Path: path})
	write(t, g, "two\n")
	if got := read(t, path); got != "one\ntwo\n" {
		t.Errorf("the file holds %q", got)
	}
}

// TestModeAndGroup checks that new and existing files get mode 0640 and the group of the options.
func TestModeAndGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can set any group")
	}
	path := filepath.Join(t.TempDir(), "made", "access.log")
	f := open(t, rotation.Options{Path: path, Group: "12345"})
	write(t, f, "one\n")
	if err := f.Rotate(); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(backups(t, path), "access.log", ".") {
		st, err := os.Stat(sibling(path, name))
		if err != nil {
			t.Fatal(err)
		}
		if mode := st.Mode().Perm(); mode != 0o640 && name != "." || mode&0o007 != 0 || groupOf(st) != 12345 {
			t.Errorf("%s has mode %v and group %d", name, mode, groupOf(st))
		}
	}
	if _, err := rotation.Open(rotation.Options{Path: path + "2", Group: "no such group"}); err == nil ||
		!strings.Contains(err.Error(), `group "no such group" does not exist`) {
		t.Errorf("unknown group: %v", err)
	}
}

// TestCompression checks that Run compresses backups, and that compressed backups keep their order
// and are pruned.
func TestCompression(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		f, err := rotation.Open(rotation.Options{Path: path, Compress: true, Limits: rotation.Limits{MaxFiles: 3}})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, f)
		for i := range 5 {
			write(t, f, lines(i, i+1))
			if err := f.Rotate(); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		names := backups(t, path)
		if len(names) != 3 || !strings.HasSuffix(names[0], ".log.gz") || !strings.HasSuffix(names[2], ".log.gz") {
			t.Errorf("backups are %q", names)
		}
		if got := contents(t, path); !slices.Equal(got, []string{"line 2\n", "line 3\n", "line 4\n", ""}) {
			t.Errorf("content is %q", got)
		}
		if s := f.Stats(); s.Compressed != 5 || s.CompressErrors != 0 {
			t.Errorf("stats %+v", s)
		}
		stop()
		f.Close()
	})
}

// TestBothPlainAndCompressed checks that after a crash during compression, the plain file is
// removed only if the compressed one has the same content. Broken and temporary files are replaced.
func TestBothPlainAndCompressed(t *testing.T) {
	pack := func(s string) []byte {
		var b bytes.Buffer
		zip := gzip.NewWriter(&b)
		zip.Write([]byte(s))
		zip.Close()
		return b.Bytes()
	}
	good := pack("old\n")
	flipped := slices.Clone(good)
	flipped[len(flipped)-6] ^= 1
	for name, zipped := range map[string][]byte{
		"good": good, "cut": good[:len(good)-3], "empty": {}, "flipped": flipped, "other": pack("odd\n"),
		"longer": pack("old\nold\n"), "shorter": pack("ol"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := newPath(t)
				plain := backupAt(t, path, time.Now().Add(-time.Hour))
				temp := sibling(path, "."+filepath.Base(plain)+".gz.tmp")
				if err := errors.Join(os.WriteFile(plain+".gz", zipped, 0o640),
					os.WriteFile(temp, []byte("x"), 0o640)); err != nil {
					t.Fatal(err)
				}
				f, err := rotation.Open(rotation.Options{Path: path, Compress: true})
				if err != nil {
					t.Fatal(err)
				}
				if exists(temp) {
					t.Error("the temporary file was not removed")
				}
				stop := run(t, f)
				pass(time.Second)
				if got := contents(t, path); exists(plain) || !slices.Equal(got, []string{"old\n", ""}) {
					t.Errorf("content is %q", got)
				}
				stop()
				f.Close()
			})
		})
	}
}

// TestCompressionStops checks that the end of Run leaves the plain backup and no temporary file.
func TestCompressionStops(t *testing.T) {
	path := newPath(t)
	f := open(t, rotation.Options{Path: path, Compress: true})
	write(t, f, strings.Repeat(lines(0, 100), 1000))
	if err := f.Rotate(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Run(ctx); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	// lock, backup, active file
	if err != nil || len(entries) != 3 || f.Stats().CompressErrors != 0 || f.Stats().Health != nil {
		t.Errorf("%v, %v, stats %+v", entries, err, f.Stats())
	}
	if got := backups(t, path); len(got) != 1 || !strings.HasSuffix(got[0], ".log") {
		t.Errorf("backups are %q", got)
	}
}

// TestRotationAfterReplacement checks that Rotate detects a replaced file before Run does.
func TestRotationAfterReplacement(t *testing.T) {
	path := newPath(t)
	f := open(t, rotation.Options{Path: path})
	write(t, f, "one\n")
	if err := errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, []byte("theirs\n"), 0o640)); err != nil {
		t.Fatal(err)
	}
	if err := f.Rotate(); err != nil {
		t.Fatal(err)
	}
	write(t, f, "two\n")
	if got := contents(t, path); !slices.Equal(got, []string{"theirs\ntwo\n"}) || read(t, path+".1") != "one\n" {
		t.Errorf("content is %q, moved %q", got, read(t, path+".1"))
	}
}
