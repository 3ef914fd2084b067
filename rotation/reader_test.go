package rotation_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
	"golang.org/x/sys/unix"
)

// newReader returns a reader and closes it at the end of the test.
func newReader(t testing.TB, o rotation.ReaderOptions) *rotation.Reader {
	t.Helper()
	r, err := rotation.NewReader(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// rest returns all available lines. Pieces of lines end in +, lines without LF in ~.
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

// add appends to a file like another process.
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

// stamped returns the path of the backup that ended some seconds after start.
func stamped(path string, seconds int) string {
	return filepath.Join(filepath.Dir(path),
		rotation.BackupName(filepath.Base(path), start.Add(time.Duration(seconds)*time.Second).UnixMilli()))
}

// TestReaderOrder checks that backups are returned oldest first, plain or compressed, from a time
// on, followed by the active file.
func TestReaderOrder(t *testing.T) {
	path := newPath(t)
	put(t, stamped(path, 1)+".gz", "a\nb\n")
	put(t, stamped(path, 2), "c\n")
	put(t, stamped(path, 2)+".gz", "c\n") // both files exist after a crash during compression
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

// TestReaderNothingThere checks that without Follow a file or backup must exist.
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

// TestReaderLinks checks that links are not followed, and that only regular files are read.
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
		t.Errorf("a link as file: %v", err)
	}
	if err := errors.Join(os.Symlink(dir, dir+"-link"), os.Lchown(dir+"-link", 12345, -1)); err != nil {
		t.Skipf("only root can give a link away: %v", err)
	}
	if _, err := rotation.NewReader(rotation.ReaderOptions{Path: filepath.Join(dir+"-link", "secret")}); err == nil ||
		!strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link as directory: %v", err)
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

// TestReaderDamaged checks that the readable part of a damaged backup is returned, and all other
// files.
func TestReaderDamaged(t *testing.T) {
	path := newPath(t)
	put(t, stamped(path, 1)+".gz", lines(0, 50_000))
	data, err := os.ReadFile(stamped(path, 1) + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	put(t, stamped(path, 1)+".gz.", "") // not a backup
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

// TestReaderBounds checks that neither a line without an end nor a highly compressed file uses much
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
		if total += len(line.Text); len(line.Text) > 64<<10 || r.Memory() > 512<<10 {
			t.Fatalf("%d bytes at once, %d in memory", len(line.Text), r.Memory())
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
