package rotation_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// TestManyWritersExactlyOnce uses 64 concurrent writers and files of 1 MB: every line is stored
// once and whole, in the order of its writer, and no file exceeds the limit.
func TestManyWritersExactlyOnce(t *testing.T) {
	const writers, each, batch = 64, 1500, 50
	path := newPath(t)
	f := open(t, rotation.Options{Path: path, Limits: rotation.Limits{MaxFileSize: 1}, Sync: rotation.SyncNever})
	stop := run(t, f)
	filler := strings.Repeat("x", 270)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			var b []byte
			for i := range each {
				b = fmt.Appendf(b, "%d %d %s\n", w, i, filler)
				if (i+1)%batch == 0 {
					if n, err := f.Write(context.Background(), b); err != nil || n != len(b) {
						t.Errorf("Write: %d, %v", n, err)
					}
					b = b[:0]
				}
			}
		})
	}
	group.Wait()
	stop()
	next := make([]int, writers)
	files := contents(t, path)
	for _, file := range files {
		if len(file) > mb {
			t.Errorf("a file has %d bytes", len(file))
		}
		for line := range strings.Lines(file) {
			writer, rest, _ := strings.Cut(line, " ")
			w, err := strconv.Atoi(writer)
			if err != nil || w < 0 || w >= writers {
				t.Fatalf("line %q is of no writer", line)
			}
			if rest != fmt.Sprintf("%d %s\n", next[w], filler) {
				t.Fatalf("line %q of writer %d: want number %d", line, w, next[w])
			}
			next[w]++
		}
	}
	for w, n := range next {
		if n != each {
			t.Errorf("writer %d: %d lines of %d", w, n, each)
		}
	}
	if s := f.Stats(); s.Health != nil || int(s.Rotations) != len(files)-1 || len(files) < writers*each*275/mb {
		t.Errorf("%d files, stats %+v", len(files), s)
	}
}

// TestRotationsWithinOneMillisecond rotates 200 times with a stopped clock, and 200 times after
// setting it back by an hour. Names are unique and increase, and no line is lost.
func TestRotationsWithinOneMillisecond(t *testing.T) {
	path, c := newPath(t), &clock{start}
	f := open(t, rotation.Options{Path: path, Now: c.Now})
	for i := range 400 {
		if i == 200 {
			c.now = c.now.Add(-time.Hour)
		}
		write(t, f, lines(i, i+1))
		if err := f.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	names := backups(t, path)
	if len(names) != 400 || names[0] != "access-2026-03-01T12-00-00.000.log" ||
		names[399] != "access-2026-03-01T12-00-00.399.log" {
		t.Errorf("%d backups: %q", len(names), names)
	}
	if got := strings.Join(contents(t, path), ""); got != lines(0, 400) {
		t.Errorf("content is %q", got)
	}
}

// TestNamesGoOnAfterRestart checks that a process with an earlier clock does not reuse backup
// names.
func TestNamesGoOnAfterRestart(t *testing.T) {
	path, c := newPath(t), &clock{start}
	for i := range 3 {
		f, err := rotation.Open(rotation.Options{Path: path, Now: c.Now, Compress: i == 1})
		if err != nil {
			t.Fatal(err)
		}
		write(t, f, lines(i, i+1))
		if err := f.Rotate(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		c.now = c.now.Add(-time.Hour)
	}
	if got := contents(t, path); !slices.Equal(got, []string{"line 0\n", "line 1\n", "line 2\n", ""}) {
		t.Errorf("content is %q", got)
	}
}

// TestSizeOffStillPrunes checks that without a size limit nothing is rotated, but old backups are
// still limited by number and age.
func TestSizeOffStillPrunes(t *testing.T) {
	path, c := newPath(t), &clock{start}
	for i := range 5 {
		backupAt(t, path, start.Add(-time.Duration(i*24+1)*time.Hour))
	}
	f := open(t, rotation.Options{Path: path, Now: c.Now, Limits: rotation.Limits{MaxFiles: 3, MaxFileAge: 2},
		Sync: rotation.SyncNever})
	batch := strings.Repeat(strings.Repeat("x", 1023)+"\n", 1024)
	for range 250 {
		write(t, f, batch)
	}
	st, err := os.Stat(path)
	if err != nil || st.Size() != 250*mb {
		t.Errorf("the file: %v, %v", st, err)
	}
	if got := backups(t, path); len(got) != 2 {
		t.Errorf("backups are %q", got)
	}
}

// TestOneBackup checks that maxFiles 1 leaves one backup after every rotation.
func TestOneBackup(t *testing.T) {
	for _, running := range []bool{false, true} {
		path := newPath(t)
		f := open(t, rotation.Options{Path: path, Limits: rotation.Limits{MaxFiles: 1}})
		if running {
			defer run(t, f)()
		}
		for i := range 30 {
			write(t, f, lines(i, i+1))
			if err := f.Rotate(); err != nil {
				t.Fatal(err)
			}
			if got := contents(t, path); !slices.Equal(got, []string{lines(i, i+1), ""}) {
				t.Fatalf("after rotation %d: %q", i, got)
			}
		}
	}
}

// TestNegativeLimits checks that Open fails for a limit of -1, with a remedy.
func TestNegativeLimits(t *testing.T) {
	for field, limits := range map[string]rotation.Limits{
		"maxFileSize": {MaxFileSize: -1}, "maxFiles": {MaxFiles: -1}, "maxFileAge": {MaxFileAge: -1},
	} {
		path := newPath(t)
		f, err := rotation.Open(rotation.Options{Path: path, Limits: limits})
		if want := field + ": -1 is negative; set a value >= 0"; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", field, err, want)
		}
		if f != nil || exists(path) {
			t.Errorf("%s: the file was opened", field)
		}
		if err := limits.Validate("auditLog."); err == nil || !strings.HasPrefix(err.Error(), "auditLog."+field+": -1") {
			t.Errorf("%s: %v", field, err)
		}
	}
	all := rotation.Limits{MaxFileSize: 1 << 62, MaxFiles: -2, MaxFileAge: 1 << 40}.Validate("")
	for _, want := range []string{
		"maxFileSize: 4611686018427387904 is more than", "maxFiles: -2 is negative", "maxFileAge: 1099511627776 is more than",
	} {
		if !strings.Contains(all.Error(), want) {
			t.Errorf("%v does not say %q", all, want)
		}
	}
}

// TestAgeWithoutTraffic checks that old backups are removed without writes, and that files with
// other names stay.
func TestAgeWithoutTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		now := time.Now()
		old := backupAt(t, path, now.Add(-8*24*time.Hour))
		young := backupAt(t, path, now.Add(-(7*24-1)*time.Hour))
		for _, name := range []string{
			"access-1999-01-01.log", "access-1999-01-01T00-00-00.000.log.bak", "other-1999-01-01T00-00-00.000.log",
			"access-1999-13-01T00-00-00.000.log", "access-.log", ".access.log.swp",
		} {
			foreign := filepath.Join(filepath.Dir(path), name)
			if err := os.WriteFile(foreign, []byte("mine\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if got := read(t, foreign); got != "mine\n" {
					t.Errorf("%s has become %q", foreign, got)
				}
			}()
		}
		link := filepath.Join(filepath.Dir(path), rotation.BackupName("access.log", now.Add(-9*24*time.Hour).UnixMilli()))
		if err := os.Symlink("other-1999-01-01T00-00-00.000.log", link); err != nil {
			t.Fatal(err)
		}
		f, err := rotation.Open(rotation.Options{Path: path, Limits: rotation.Limits{MaxFileAge: 7}})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, f)
		synctest.Wait()
		if exists(old) || !exists(young) {
			t.Errorf("at the start: 8 days %v, 6 days 23 hours %v", exists(old), exists(young))
		}
		pass(58 * time.Minute)
		if !exists(young) {
			t.Error("removed before its time")
		}
		pass(4 * time.Minute)
		if exists(young) {
			t.Error("not removed after 7 days")
		}
		if !exists(link) {
			t.Error("a symbolic link was removed")
		}
		if got := f.Stats().Removed; got != 2 {
			t.Errorf("%d removed", got)
		}
		stop()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAgeAndNumberAreIndependent checks that 3 old backups are removed because of their age,
// although only 2 exceed the number.
func TestAgeAndNumberAreIndependent(t *testing.T) {
	path, c := newPath(t), &clock{start}
	for i := range 3 {
		backupAt(t, path, start.Add(-time.Duration(8+i)*24*time.Hour))
	}
	for i := range 9 {
		backupAt(t, path, start.Add(-time.Duration(i+1)*time.Hour))
	}
	f := open(t, rotation.Options{Path: path, Now: c.Now, Limits: rotation.Limits{MaxFiles: 10, MaxFileAge: 7}})
	if got := backups(t, path); len(got) != 9 || f.Stats().Removed != 3 {
		t.Errorf("%d removed, backups are %q", f.Stats().Removed, got)
	}
}

// TestLongLine checks that a line at the limit, a byte longer, and ten times longer is stored whole
// in a separate file.
func TestLongLine(t *testing.T) {
	path := newPath(t)
	f := open(t, rotation.Options{Path: path, Limits: rotation.Limits{MaxFileSize: 1}})
	long := func(c string, n int) string { return strings.Repeat(c, n-1) + "\n" }
	want := []string{"first\n", long("a", mb), long("b", mb+1), long("c", 10*mb), "middle\n" + "last\n"}
	write(t, f, want[0])
	write(t, f, want[1]+want[2])
	write(t, f, want[3]+"middle\n")
	write(t, f, "last\n")
	got := contents(t, path)
	if !slices.Equal(got, want) {
		t.Errorf("sizes are %v", sizes(got))
	}
	if s := f.Stats(); s.Oversize != 2 || s.Rotations != 4 {
		t.Errorf("stats %+v", s)
	}
}

// TestExampleOfTheAuditLog is a scaled-down audit log of 200 MB, 1 backup, and 7 days: a rotation
// removes the previous backup, and the seventh day removes the next one.
func TestExampleOfTheAuditLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		f, err := rotation.Open(rotation.Options{Path: path,
			Limits: rotation.Limits{MaxFileSize: 200, MaxFiles: 1, MaxFileAge: 7}}.WithMaxBytes(200))
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, f)
		batch := strings.Repeat("0123456789abcdefghi\n", 10)
		for range 2 {
			write(t, f, batch)
			pass(time.Hour)
		}
		first := backups(t, path)
		write(t, f, "one\n")
		second := backups(t, path)
		if len(first) != 1 || len(second) != 1 || first[0] == second[0] {
			t.Errorf("backups: %q, then %q", first, second)
		}
		stop()
		pass(7*24*time.Hour - 3*time.Minute) // so that Run need not check the file for a week
		stop = run(t, f)
		pass(2 * time.Minute)
		if got := backups(t, path); len(got) != 1 {
			t.Errorf("before seven days: %q", got)
		}
		pass(3 * time.Minute)
		if got := contents(t, path); !slices.Equal(got, []string{"one\n"}) {
			t.Errorf("after seven days: %q", got)
		}
		stop()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

func sizes(files []string) []int {
	var out []int
	for _, f := range files {
		out = append(out, len(f))
	}
	return out
}

// backupAt creates a backup with a time.
func backupAt(t testing.TB, path string, at time.Time) string {
	t.Helper()
	name := filepath.Join(filepath.Dir(path), rotation.BackupName(filepath.Base(path), at.UnixMilli()))
	if err := os.WriteFile(name, []byte("old\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	return name
}
