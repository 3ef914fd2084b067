package rotation_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// TestReaderWhileWriting checks that two readers, one of which starts late, return every line once
// and in order, while the file is written, rotated, and compressed as fast as possible.
func TestReaderWhileWriting(t *testing.T) {
	total := 20_000
	if testing.Short() {
		total = 4_000
	}
	for _, compress := range []bool{false, true} {
		t.Run(fmt.Sprintf("compress=%t", compress), func(t *testing.T) {
			path := newPath(t)
			f := open(t, rotation.Options{Path: path, Compress: compress, Sync: rotation.SyncNever}.WithMaxBytes(3000))
			defer run(t, f)()
			output := make(chan error, 1)
			go func() {
				r := rand.New(rand.NewPCG(1, 2))
				for i := 0; i < total; {
					var b strings.Builder
					for n := r.IntN(40); n >= 0 && i < total; n-- {
						fmt.Fprintf(&b, "line %d %s\n", i, strings.Repeat("x", r.IntN(20)))
						i++
					}
					if _, err := f.Write(context.Background(), []byte(b.String())); err != nil {
						output <- err
						return
					}
					if r.IntN(50) == 0 {
						runtime.Gosched()
					}
				}
				output <- nil
			}()
			deadline := time.Now().Add(2 * time.Minute)
			follow := func(r *rotation.Reader) {
				t.Helper()
				for i := 0; i < total; {
					line, err := r.Next()
					switch {
					case errors.Is(err, io.EOF) && time.Now().Before(deadline):
						runtime.Gosched()
						continue
					case err != nil:
						t.Fatalf("after %d lines: %v, %+v", i, err, r.Stats())
					case !strings.HasPrefix(string(line.Text), fmt.Sprintf("line %d ", i)) || line.More || line.Open:
						t.Fatalf("got %q as number %d: %+v", line.Text, i, r.Stats())
					}
					i++
				}
				want(t, rest(t, r))
			}
			follow(newReader(t, rotation.ReaderOptions{Path: path, Follow: true}))
			if err := <-output; err != nil {
				t.Fatal(err)
			}
			follow(newReader(t, rotation.ReaderOptions{Path: path, Follow: true}))
			follow(newReader(t, rotation.ReaderOptions{Path: path}))
		})
	}
}

// TestReaderModel compares a reader with a list of lines, under random writes, rotations,
// compressions, and changes by other processes.
func TestReaderModel(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { readerModel(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func readerModel(t *testing.T, random *rand.Rand) {
	path := newPath(t)
	f, err := rotation.Open(rotation.Options{Path: path, Compress: random.IntN(2) == 0,
		Sync: rotation.SyncNever}.WithMaxBytes(random.Int64N(200)))
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, f)
	defer func() {
		stop()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := rotation.NewReader(rotation.ReaderOptions{Path: path, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next, total := 0, 0
	readOn := func(most int) {
		t.Helper()
		for range most {
			line, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if got := fmt.Sprintf("line %d", next); err != nil || string(line.Text) != got {
				t.Fatalf("got %q, %v, want %q; %+v", line.Text, err, got, r.Stats())
			}
			next++
		}
	}
	drain := func() {
		t.Helper()
		for range 40 {
			if readOn(1 << 20); next == total {
				break
			}
			pass(rotation.PollEach)
		}
		if next != total {
			t.Fatalf("%d lines of %d; %+v", next, total, r.Stats())
		}
	}
	// detect lets the writer and the reader detect changes by others, which they check periodically.
	outside := false
	detect := func() {
		t.Helper()
		for i := 0; outside && i < 15; i++ {
			pass(rotation.PollEach)
			readOn(1 << 20)
		}
		outside = false
		drain()
	}
	var trace []string
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(trace, ", "))
		}
	}()
	steps := map[string]func(){
		"write":  func() { n := random.IntN(30); write(t, f, lines(total, total+n)); total += n },
		"rotate": func() { detect(); f.Rotate() },
		"pass":   func() { pass(time.Duration(random.IntN(1500)) * time.Millisecond) },
		"read":   func() { readOn(random.IntN(20)) },
		"drain":  drain,
		// Changes by others lose neither lines that were read before nor lines written to a file that is
		// open.
		"move":   func() { detect(); os.Rename(path, path+".1"); outside = true },
		"remove": func() { detect(); os.Remove(path); outside = true },
		// A reader detects a truncation while the file is shorter than the data read from it.
		"truncate": func() { detect(); os.Truncate(path, 0); readOn(1); outside = true },
		"replace": func() {
			detect()
			put(t, path+".new", "")
			os.Rename(path+".new", path)
			outside = true
		},
	}
	names := []string{"write", "write", "write", "rotate", "pass", "pass", "read", "read", "drain", "move", "remove",
		"truncate", "replace"}
	for range 40 {
		name := names[random.IntN(len(names))]
		trace = append(trace, name)
		steps[name]()
	}
	drain()
	want(t, rest(t, r))
}
