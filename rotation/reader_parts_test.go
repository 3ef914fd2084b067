package rotation_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// inParts returns the lines of a file as rest does. The parts are read at the same time.
func inParts(t testing.TB, p *rotation.Parts) []string {
	t.Helper()
	defer p.Close()
	lines := make([][]string, p.Len())
	var wg sync.WaitGroup
	for i := range p.Len() {
		wg.Go(func() {
			err := p.Read(i, func(line rotation.Line) error {
				s := string(line.Text)
				if line.More {
					s += "+"
				}
				if line.Open {
					s += "~"
				}
				lines[i] = append(lines[i], s)
				return nil
			})
			if err != nil {
				t.Errorf("part %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	out := []string{}
	for _, list := range lines {
		out = append(out, list...)
	}
	return out
}

func openParts(t testing.TB, o rotation.ReaderOptions) *rotation.Parts {
	t.Helper()
	p, err := rotation.OpenParts(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestParts checks that the parts of a file have the lines that a Reader returns, for all sizes of
// parts and limits of lines.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/a.log"
	put(t, dir+"/a-2026-01-02T03-04-05.000.log.gz", "1\n22\n\n333")
	put(t, dir+"/a-2026-01-03T03-04-05.000.log", "4\n"+strings.Repeat("5", 20)+"\n\n\n6")
	put(t, path, "7\n88\n"+strings.Repeat("9", 30)+"\nlast")
	for size := 1; size < 40; size++ {
		for _, limit := range []int{0, 1, 3, 25} {
			o := rotation.ReaderOptions{Path: path, MaxLine: limit}
			got := inParts(t, openParts(t, o.WithPartBytes(size)))
			if text := rest(t, newReader(t, o)); fmt.Sprint(got) != fmt.Sprint(text) {
				t.Fatalf("parts of %d bytes, lines of %d: %q, want %q", size, limit, got, text)
			}
		}
	}
	since := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	p := openParts(t, rotation.ReaderOptions{Path: path, Since: since})
	want(t, inParts(t, p)[:1], "4")
	long := strings.Repeat("x", 3<<20)
	put(t, path, "a\n"+long+"\nb\n")
	got := inParts(t, openParts(t, rotation.ReaderOptions{Path: path, Since: time.Now()}))
	if len(got) != 5 || got[0] != "a" || len(got[1]) != 1<<20+1 || got[4] != "b" {
		t.Errorf("a long line: %d lines", len(got))
	}
	stop := errors.New("enough")
	p = openParts(t, rotation.ReaderOptions{Path: path})
	defer p.Close()
	if err := p.Read(p.Len()-1, func(rotation.Line) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of the caller: %v", err)
	}
	if err := os.Remove(dir + "/a-2026-01-02T03-04-05.000.log.gz"); err != nil {
		t.Fatal(err)
	}
	if err := p.Read(0, func(rotation.Line) error { return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed backup: %v", err)
	}
	if _, err := rotation.OpenParts(rotation.ReaderOptions{Path: dir + "/b.log"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestPartsWhileWriting checks that parts have each line once while the file is written, rotated,
// and compressed: numbers without gaps, from the oldest line on.
func TestPartsWhileWriting(t *testing.T) {
	path := newPath(t)
	f := open(t, rotation.Options{Path: path, Compress: true, Sync: rotation.SyncNever}.WithMaxBytes(3000))
	defer run(t, f)()
	const total = 20_000
	ended := make(chan error, 1)
	write(t, f, "0\n")
	go func() {
		for i := 1; i < total; i++ {
			if _, err := f.Write(context.Background(), fmt.Appendf(nil, "%d\n", i)); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	for running := true; running; {
		select {
		case err := <-ended:
			if running = false; err != nil {
				t.Fatal(err)
			}
		default:
		}
		for i, line := range inParts(t, openParts(t, rotation.ReaderOptions{Path: path}.WithPartBytes(1000))) {
			if line != fmt.Sprint(i) {
				t.Fatalf("line %d is %q", i, line)
			}
		}
	}
}
