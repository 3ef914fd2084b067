package rotation_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
	"golang.org/x/sys/unix"
)

// newReader is a reader that is closed with the test.
func newReader(t testing.TB, o rotation.ReaderOptions) *rotation.Reader {
	t.Helper()
	r, err := rotation.NewReader(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// rest returns what a reader has now, parts of lines with + and lines without LF with ~ behind
// them.
func rest(t testing.TB, r *rotation.Reader) []string {
	t.Helper()
	out := []string{}
	for {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		s := string(line.Text)
		if line.More {
			s += "+"
		}
		if line.Open {
			s += "~"
		}
		out = append(out, s)
	}
}

func want(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, append([]string{}, want...)) {
		t.Errorf("read %q, want %q", got, want)
	}
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if strings.HasSuffix(path, ".gz") {
		var b bytes.Buffer
		zip := gzip.NewWriter(&b)
		if _, err := zip.Write([]byte(text)); err != nil || zip.Close() != nil {
			t.Fatal(err)
		}
		text = b.String()
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

// add appends to a file as somebody else does.
func add(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// stamped is the path of the backup that ended some seconds after start.
func stamped(path string, seconds int) string {
	return filepath.Join(filepath.Dir(path),
		rotation.BackupName(filepath.Base(path), start.Add(time.Duration(seconds)*time.Second).UnixMilli()))
}

// TestReaderOrder: backups come oldest first, plain or compressed, from a time on, and then the
// active file.
func TestReaderOrder(t *testing.T) {
	path := newPath(t)
	put(t, stamped(path, 1)+".gz", "a\nb\n")
	put(t, stamped(path, 2), "c\n")
	put(t, stamped(path, 2)+".gz", "c\n") // a crash of the compression leaves both
	put(t, stamped(path, 3), "d\nno end")
	put(t, path, "e\n\nf")
	put(t, filepath.Join(filepath.Dir(path), "access-2026.log"), "of others\n")
	for name, c := range map[string]struct {
		since time.Time
		want  []string
	}{
		"all":                  {want: []string{"a", "b", "c", "d", "no end~", "e", "", "f~"}},
		"since the second":     {start.Add(2 * time.Second), []string{"c", "d", "no end~", "e", "", "f~"}},
		"since between":        {start.Add(2*time.Second + time.Millisecond), []string{"d", "no end~", "e", "", "f~"}},
		"since after all ends": {start.Add(time.Hour), []string{"e", "", "f~"}},
	} {
		r := newReader(t, rotation.ReaderOptions{Path: path, Since: c.since})
		if got := rest(t, r); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: after the end: %v", name, err)
		}
	}
}

// TestReaderNothingThere: without Follow something has to be there.
func TestReaderNothingThere(t *testing.T) {
	path := newPath(t)
	if _, err := rotation.NewReader(rotation.ReaderOptions{Path: path}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := rotation.NewReader(rotation.ReaderOptions{Path: filepath.Join(path, "x", "y.log")}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	for _, o := range []rotation.ReaderOptions{{}, {Path: path, MaxLine: -1}} {
		if _, err := rotation.NewReader(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	late := filepath.Join(filepath.Dir(path), "late", "a.log")
	r := newReader(t, rotation.ReaderOptions{Path: late, Follow: true})
	want(t, rest(t, r))
	if err := os.Mkdir(filepath.Dir(late), 0o750); err != nil {
		t.Fatal(err)
	}
	want(t, rest(t, r))
	put(t, late, "a\nb")
	want(t, rest(t, r), "a")
	add(t, late, "\n")
	want(t, rest(t, r), "b")
	put(t, stamped(path, 1), "only a backup\n")
	want(t, rest(t, newReader(t, rotation.ReaderOptions{Path: path})), "only a backup")
}

// TestReaderLinks: no link is followed, and nothing but regular files is read.
func TestReaderLinks(t *testing.T) {
	path := newPath(t)
	dir := filepath.Dir(path)
	put(t, filepath.Join(dir, "secret"), "secret\n")
	if err := os.Symlink("secret", path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("secret", stamped(path, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := rotation.NewReader(rotation.ReaderOptions{Path: path}); err == nil ||
		!strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link in the place of the file: %v", err)
	}
	if err := os.Symlink(dir, dir+"-link"); err != nil {
		t.Fatal(err)
	}
	if _, err := rotation.NewReader(rotation.ReaderOptions{Path: filepath.Join(dir+"-link", "secret")}); err == nil ||
		!strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link in the place of the directory: %v", err)
	}
	fifo := filepath.Join(dir, "fifo.log")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := rotation.NewReader(rotation.ReaderOptions{Path: fifo}); err == nil ||
		!strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a FIFO: %v", err)
	}
}

// TestReaderDamaged: of a damaged backup comes what can be read, and the others are read.
func TestReaderDamaged(t *testing.T) {
	path := newPath(t)
	put(t, stamped(path, 1)+".gz", lines(0, 50_000))
	data, err := os.ReadFile(stamped(path, 1) + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	put(t, stamped(path, 1)+".gz.", "") // of others
	if err := os.WriteFile(stamped(path, 1)+".gz", data[:len(data)/2], 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stamped(path, 2)+".gz", []byte("no gzip"), 0o640); err != nil {
		t.Fatal(err)
	}
	put(t, path, "active\n")
	r := newReader(t, rotation.ReaderOptions{Path: path})
	got := rest(t, r)
	if n := len(got); n < 1000 || n > 40_000 || got[999] != "line 999" || got[n-1] != "active" {
		t.Errorf("%d lines, the last %q", n, got[n-1])
	}
	if s := r.Stats(); len(s.Unread) != 2 || !strings.Contains(errors.Join(s.Unread...).Error(), "damaged") {
		t.Errorf("%+v", s)
	}
}

// TestReaderBounds: neither a line without an end nor a small file that is a large one takes
// memory.
func TestReaderBounds(t *testing.T) {
	path := newPath(t)
	f, err := os.Create(stamped(path, 1) + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	zip := gzip.NewWriter(f)
	zeros := make([]byte, mb)
	size := 128
	if testing.Short() {
		size = 16
	}
	for range size {
		if _, err := zip.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(zip.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	put(t, path, strings.Repeat("x", 25)+"\nshort\n"+strings.Repeat("y", 10)+"\n")
	r := newReader(t, rotation.ReaderOptions{Path: path, MaxLine: 64 << 10})
	total := 0
	for {
		line, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if total += len(line.Text); len(line.Text) > 64<<10 || r.Held() > 512<<10 {
			t.Fatalf("%d bytes at once, %d in memory", len(line.Text), r.Held())
		}
		if !line.More {
			break
		}
	}
	if total != size*mb {
		t.Errorf("%d bytes", total)
	}
	r = newReader(t, rotation.ReaderOptions{Path: path, MaxLine: 10, Since: start.Add(time.Hour)})
	want(t, rest(t, r), "xxxxxxxxxx+", "xxxxxxxxxx+", "xxxxx", "short", "yyyyyyyyyy")
	if s := r.Stats(); s.Lines != 3 {
		t.Errorf("%+v", s)
	}
}

// TestReaderFollow is what happens to a file that is followed, each once.
func TestReaderFollow(t *testing.T) {
	rename := func(t *testing.T, from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, do := range map[string]func(t *testing.T, r *rotation.Reader, path string){
		"half a line": func(t *testing.T, r *rotation.Reader, path string) {
			add(t, path, "b")
			want(t, rest(t, r))
			add(t, path, "c\nd")
			want(t, rest(t, r), "bc")
			want(t, rest(t, r))
			add(t, path, "\n")
			want(t, rest(t, r), "d")
		},
		"rotated": func(t *testing.T, r *rotation.Reader, path string) {
			add(t, path, "b\n")
			rename(t, path, stamped(path, 1))
			want(t, rest(t, r), "b")
			add(t, path, "c\n")
			want(t, rest(t, r), "c")
		},
		"written after the rename, while there is no new file": func(t *testing.T, r *rotation.Reader, path string) {
			rename(t, path, stamped(path, 1))
			add(t, stamped(path, 1), "b\n")
			want(t, rest(t, r), "b")
			add(t, path, "c\n")
			want(t, rest(t, r), "c")
		},
		"rotated twice": func(t *testing.T, r *rotation.Reader, path string) {
			add(t, path, "b\n")
			rename(t, path, stamped(path, 1))
			add(t, path, "c\n")
			rename(t, path, stamped(path, 2))
			want(t, rest(t, r), "b", "c")
			add(t, path, "d\n")
			want(t, rest(t, r), "d")
		},
		"rotated and compressed by others": func(t *testing.T, r *rotation.Reader, path string) {
			add(t, path, "b\n")
			rename(t, path, stamped(path, 1))
			put(t, stamped(path, 1)+".gz", read(t, stamped(path, 1)))
			remove(t, stamped(path, 1))
			add(t, path, "c\n")
			want(t, rest(t, r), "b", "c")
		},
		"rotated, and gone at once": func(t *testing.T, r *rotation.Reader, path string) {
			add(t, path, "b\n")
			rename(t, path, stamped(path, 1))
			put(t, path, "c\n")
			rename(t, path, stamped(path, 2))
			remove(t, stamped(path, 1))
			put(t, path, "d\n")
			want(t, rest(t, r), "b", "c", "d")
		},
		"cut off by others": func(t *testing.T, r *rotation.Reader, path string) {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			want(t, rest(t, r))
			add(t, path, "a\nb\n")
			want(t, rest(t, r), "a", "b")
			if r.Stats().Truncated != 1 {
				t.Errorf("%+v", r.Stats())
			}
		},
		"cut off by its writer and written again": func(t *testing.T, r *rotation.Reader, path string) {
			add(t, path, "b\nc\nd")
			want(t, rest(t, r), "b", "c")
			if err := os.Truncate(path, 2); err != nil {
				t.Fatal(err)
			}
			want(t, rest(t, r))
			add(t, path, "b\n")
			want(t, rest(t, r))
			add(t, path, "c\nd\n")
			want(t, rest(t, r), "d")
		},
		"cut off by its writer, and something else is written": func(t *testing.T, r *rotation.Reader, path string) {
			add(t, path, "b\nc\n")
			want(t, rest(t, r), "b", "c")
			if err := os.Truncate(path, 2); err != nil {
				t.Fatal(err)
			}
			want(t, rest(t, r))
			add(t, path, "b\nx\ny\n")
			want(t, rest(t, r), "b", "x", "y")
		},
		"cut off by others, and longer than before": func(t *testing.T, r *rotation.Reader, path string) {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			add(t, path, "one\ntwo\n")
			want(t, rest(t, r), "one", "two")
			if r.Stats().Truncated != 1 {
				t.Errorf("%+v", r.Stats())
			}
		},
		"cut off by others in its middle, and longer than before": func(t *testing.T, r *rotation.Reader, path string) {
			add(t, path, "b\nc\nd\n")
			want(t, rest(t, r), "b", "c", "d")
			if err := os.Truncate(path, 5); err != nil {
				t.Fatal(err)
			}
			add(t, path, "x\nlonger than before\n")
			want(t, rest(t, r), "cx", "longer than before")
			if r.Stats().Truncated != 1 {
				t.Errorf("%+v", r.Stats())
			}
		},
		"cut off by others after more than is remembered": func(t *testing.T, r *rotation.Reader, path string) {
			long := strings.Repeat("x", 1000)
			add(t, path, strings.Repeat(long+"\n", 200))
			if got := rest(t, r); len(got) != 200 {
				t.Fatalf("%d lines", len(got))
			}
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			add(t, path, strings.Repeat(long+"y\n", 300))
			if got := rest(t, r); len(got) != 300 || r.Stats().Truncated != 1 {
				t.Fatalf("%d lines, %+v", len(got), r.Stats())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			put(t, path, "a\n")
			r := newReader(t, rotation.ReaderOptions{Path: path, Follow: true})
			want(t, rest(t, r), "a")
			do(t, r, path)
			want(t, rest(t, r))
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReaderReplacedTwice: others put one file after the other in the place of the one that is
// followed, and move or remove those that were there. The lines of all are returned, also of those
// that nobody can find any more, and what their writer adds late.
func TestReaderReplacedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		put(t, path, "a\n")
		r := newReader(t, rotation.ReaderOptions{Path: path, Follow: true})
		want(t, rest(t, r), "a")
		away := func(name string) {
			t.Helper()
			if err := os.Rename(path, sibling(path, name)); err != nil {
				t.Fatal(err)
			}
		}
		away("one")
		put(t, path, "b\n")
		add(t, sibling(path, "one"), "late\n")
		want(t, rest(t, r), "late")
		away("two")
		put(t, path, "c\n")
		add(t, sibling(path, "two"), "b2\n")
		want(t, rest(t, r))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		put(t, path, "d\n")
		var got []string
		for range 100 {
			pass(rotation.PollEach)
			got = append(got, rest(t, r)...)
		}
		want(t, got, "b", "b2", "c", "d")
		if s := r.Stats(); s.Replaced < 3 || s.Missed != 0 {
			t.Errorf("%+v", s)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzReader: whatever is in the files, what comes out is what is in them.
func FuzzReader(f *testing.F) {
	f.Add([]byte("a\nb"), []byte("\n\nc\n"), 3)
	f.Fuzz(func(t *testing.T, old, active []byte, most int) {
		path := newPath(t)
		if err := errors.Join(os.WriteFile(stamped(path, 1), old, 0o640), os.WriteFile(path, active, 0o640),
			os.WriteFile(stamped(path, 2)+".gz", old, 0o640)); err != nil {
			t.Fatal(err)
		}
		r := newReader(t, rotation.ReaderOptions{Path: path, MaxLine: 1 + max(0, most)%100})
		var b strings.Builder
		for {
			line, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			b.Write(line.Text)
			if !line.More && !line.Open {
				b.WriteByte('\n')
			}
		}
		if got := b.String(); !strings.HasPrefix(got, string(old)) || !strings.HasSuffix(got, string(active)) {
			t.Fatalf("%q of %q and %q", got, old, active)
		}
		if _, err := gzip.NewReader(bytes.NewReader(old)); err != nil && b.Len() != len(old)+len(active) {
			t.Fatalf("%q of %q and %q", fmt.Sprint(b.String()), old, active)
		}
	})
}
