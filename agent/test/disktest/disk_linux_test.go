package disktest_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/test/disktest"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// outcomes returns the different contents of the directory after power losses at the present
// position, in the form "name=content name=content".
func outcomes(t *testing.T, r *disktest.Replay) string {
	t.Helper()
	seen := map[string]bool{}
	for i := range 100 {
		dir := filepath.Join(t.TempDir(), "image")
		must(t, r.Crash(rand.New(rand.NewPCG(uint64(i), 1)), dir))
		list, err := os.ReadDir(dir)
		must(t, err)
		var out []string
		for _, e := range list {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			must(t, err)
			out = append(out, fmt.Sprintf("%s=%s", e.Name(), strings.ReplaceAll(string(b), "\x00", "")))
		}
		seen[strings.Join(out, " ")] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), "|")
}

// TestLoss checks which contents a disk may have after each operation.
func TestLoss(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "old")
	must(t, os.WriteFile(path, []byte("0"), 0o600))
	d := disktest.New(t, dir)
	d.Run(func() {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		write := func(f *os.File, text string) {
			_, err := f.WriteAt([]byte(text), 0)
			must(t, err)
		}
		write(f, "1")
		write(f, "2")
		must(t, unix.Fdatasync(int(f.Fd())))
		n, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE, 0o600)
		must(t, err)
		_, err = n.WriteString("n")
		must(t, err, n.Sync(), os.Rename(path+".new", path))
		at, err := os.Open(dir)
		must(t, err, at.Sync())
		d.SetFault(func(o disktest.Operation) error { return unix.EIO })
		if _, err := n.WriteString("x"); !errors.Is(err, unix.EIO) {
			t.Fatalf("error %v", err)
		}
		d.SetFault(nil)
		write(n, "m")
		d.SetFault(func(o disktest.Operation) error { return unix.EIO })
		if err := n.Sync(); !errors.Is(err, unix.EIO) {
			t.Fatalf("error %v", err)
		}
		d.SetFault(nil)
		must(t, n.Sync(), n.Truncate(0), os.Remove(path))
		must(t, errors.Join(f.Close(), n.Close(), at.Close()))
	})
	var got []string
	r := d.Replay()
	for {
		got = append(got, outcomes(t, r))
		o, ok := r.Step()
		if !ok {
			break
		}
		got[len(got)-1] += " > " + o.Kind.String()
	}
	want := []string{
		"old=0 > write", "old=0|old=1 > write", "old=0|old=1|old=2 > sync",
		"old=2 > create", "old=2|old=2 old.new= > write", "old=2|old=2 old.new=|old=2 old.new=n > sync",
		"old=2|old=2 old.new=n > rename", "old=2|old=2 old.new=n|old=n > sync of the directory",
		"old=n > write", "old=n > write", "old=m|old=n > sync", "old=m|old=n > sync", "old=m|old=n > resize",
		"old=|old=m|old=n > remove", "|old=|old=m|old=n",
	}
	if diff := strings.Join(got, "\n"); diff != strings.Join(want, "\n") {
		t.Errorf("contents:\n%s\nwant:\n%s", diff, strings.Join(want, "\n"))
	}
}
