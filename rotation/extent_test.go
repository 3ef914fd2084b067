package rotation_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/rotation"
	"pgregory.net/rapid"
)

// TestRecover kills a process at any point of a write with rotations, or while its sender discards
// stored data. The next process stores the missing lines, so all are stored once and whole.
func TestRecover(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path := newPath(t)
		opts := rotation.Options{Path: path,
			Sync: rotation.SyncNever}.WithMaxBytes(rapid.SampledFrom([]int64{0, 300, 1000}).Draw(rt, "limit"))
		f, err := rotation.Open(opts)
		if err != nil {
			rt.Fatal(err)
		}
		earlier := lines(0, rapid.IntRange(0, 20).Draw(rt, "earlier"))
		write(t, f, earlier)
		batch := lines(100, 100+rapid.IntRange(1, 100).Draw(rt, "lines"))
		var extents []rotation.Extent
		noted := rotation.WithNote(context.Background(), func(p rotation.Extent) { extents = append(extents, p) })
		if n, err := f.Write(noted, []byte(batch)); n != len(batch) || err != nil {
			rt.Fatal(n, err)
		}
		if err := f.Close(); err != nil {
			rt.Fatal(err)
		}
		last := extents[len(extents)-1]
		if last.Before+last.Length != len(batch) {
			rt.Fatalf("extents: %+v", extents)
		}
		front := batch + lines(300, 305) // the remaining data of the sender
		if intact := rapid.IntRange(0, last.Length).Draw(rt, "kept"); intact < last.Length {
			if err := os.Truncate(path, last.Offset+int64(intact)); err != nil {
				rt.Fatal(err)
			}
		} else {
			front = front[rapid.IntRange(0, len(batch)).Draw(rt, "given up"):]
		}
		f, err = rotation.Open(opts)
		if err != nil {
			rt.Fatal(err)
		}
		defer f.Close()
		if f.Stats().TornTails == 0 && rapid.Bool().Draw(rt, "rotated") {
			if err := f.Rotate(); err != nil {
				rt.Fatal(err)
			}
		}
		n := f.Recover(last, []byte(front))
		if n == 0 && len(extents) > 1 { // the last part was not written
			n = f.Recover(extents[len(extents)-2], []byte(front))
		}
		write(t, f, front[n:])
		if got, want := strings.Join(contents(t, path), ""), earlier+batch+lines(300, 305); got != want {
			rt.Fatalf("recovered %d:\n%q\nwant\n%q", n, got, want)
		}
	})
}

// TestRecoverOldExtents checks that an outdated extent has no effect.
func TestRecoverOldExtents(t *testing.T) {
	path := newPath(t)
	f := open(t, rotation.Options{Path: path})
	var p rotation.Extent
	noted := rotation.WithNote(context.Background(), func(x rotation.Extent) { p = x })
	if _, err := f.Write(noted, []byte("one\ntwo\n")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*rotation.Extent)
		front  string
		want   int
	}{
		"stored":         {func(*rotation.Extent) {}, "one\ntwo\n", 8},
		"given up":       {func(*rotation.Extent) {}, "new\n", 0},
		"nothing there":  {func(*rotation.Extent) {}, "", 0},
		"begins alike":   {func(*rotation.Extent) {}, "one\nnew\n", 0},
		"another file":   {func(p *rotation.Extent) { p.Ino++ }, "one\ntwo\n", 0},
		"behind the end": {func(p *rotation.Extent) { p.Offset = 1 << 40 }, "one\ntwo\n", 0},
		"negative":       {func(p *rotation.Extent) { p.Offset = -1 }, "one\ntwo\n", 0},
		"too long":       {func(p *rotation.Extent) { p.Length = 1 << 40 }, "one\ntwo\n", 0},
	} {
		extent := p
		c.change(&extent)
		if n := f.Recover(extent, []byte(c.front)); n != c.want {
			t.Errorf("%s: %d, want %d", name, n, c.want)
		}
	}
	if got := read(t, path); got != "one\ntwo\n" {
		t.Errorf("the file holds %q", got)
	}
}

// FuzzRecover checks that Recover never returns more than the length of front.
func FuzzRecover(f *testing.F) {
	f.Add([]byte("one\ntwo\n"), int64(0), 8, 0, []byte("one\ntwo\nthree\n"))
	f.Add([]byte("one\ntw\n"), int64(4), 4, 3, []byte("two\n"))
	f.Fuzz(func(t *testing.T, stored []byte, offset int64, length, before int, front []byte) {
		path := newPath(t)
		f := open(t, rotation.Options{Path: path, Sync: rotation.SyncNever})
		var p rotation.Extent
		if _, err := f.Write(rotation.WithNote(context.Background(), func(x rotation.Extent) { p = x }),
			append(stored, '\n')); err != nil {
			t.Fatal(err)
		}
		p.Offset, p.Length, p.Before = offset, length, before
		if n := f.Recover(p, front); n < 0 || n > len(front) || n > max(0, before+length) {
			t.Errorf("%d of %d bytes", n, len(front))
		}
	})
}
