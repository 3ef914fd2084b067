package rotation_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nearside-mesh/nearside/rotation"
)

// TestReaderFollow checks the events of a followed file.
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
		"cut off by others beyond the remembered data": func(t *testing.T, r *rotation.Reader, path string) {
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

// TestReaderReplacedTwice replaces the followed file twice, and moves or removes the old ones. The
// reader returns the lines of all, including those written late to unlinked files.
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

// FuzzReader checks that a reader returns exactly the content of its files.
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
