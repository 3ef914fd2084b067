package rotation_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerVariable); path != "" {
		os.Exit(writeUntilKilled(path))
	}
	// lumberjack's goroutine never ends, which is why only one test starts it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

const mb = 1 << 20

// open opens a file and closes it at the end of the test.
func open(t testing.TB, opts rotation.Options) *rotation.File {
	t.Helper()
	f, err := rotation.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// run runs a file until stop is called.
func run(t testing.TB, f *rotation.File) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func write(t testing.TB, f *rotation.File, s string) {
	t.Helper()
	if n, err := f.Write(context.Background(), []byte(s)); err != nil || n != len(s) {
		t.Fatalf("Write: %d of %d bytes, %v", n, len(s), err)
	}
}

// newPath returns the path of a file in a new directory.
func newPath(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "access.log")
}

// backups returns the names of a file's backups, oldest first.
func backups(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if _, _, ok := rotation.ParseName(filepath.Base(path), e.Name()); ok {
			out = append(out, e.Name())
		}
	}
	return slices.Sorted(slices.Values(out))
}

// contents returns the content of the backups and of the active file, in this order.
func contents(t testing.TB, path string) []string {
	t.Helper()
	var out []string
	for _, name := range append(backups(t, path), filepath.Base(path)) {
		out = append(out, read(t, filepath.Join(filepath.Dir(path), name)))
	}
	return out
}

// read returns the uncompressed content of a file.
func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".gz") {
		zip, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = io.ReadAll(zip)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return string(data)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// clock is a settable wall clock.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// pass advances the fake time, and waits for the resulting work.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}
