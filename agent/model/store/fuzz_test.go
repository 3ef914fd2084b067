package store_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/store"
)

func FuzzValue(f *testing.F) {
	k := []byte("Note\x00default\x00a\x00")
	for _, body := range []string{"", `{"Kind":"Note"}`} {
		v, err := store.Wrap(k, []byte(body))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(k, v)
		f.Add(k, v[:len(v)/2])
		f.Add([]byte("other"), v)
	}
	f.Add([]byte{}, []byte{1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		rewrapped, err := store.Unwrap(key, value)
		if err != nil {
			return
		}
		if twice, err := store.Unwrap(key, rewrapped); err != nil || !bytes.Equal(twice, rewrapped) {
			t.Fatalf("%q became %q and then %q: %v", value, rewrapped, twice, err)
		}
	})
}

// FuzzPages changes a whole state file: the check of its pages terminates, and an accepted file can
// be opened.
func FuzzPages(f *testing.F) {
	good, err := os.ReadFile(filled(f, 6))
	if err != nil {
		f.Fatal(err)
	}
	for page := range len(good) / 4096 {
		if testing.Short() && page%4 > 0 {
			continue
		}
		for _, at := range []int{0, 8, 10, 12, 20, 24, 28, 32} {
			f.Add(uint32(page*4096+at), []byte{1, 2})
			f.Add(uint32(page*4096+at), []byte{0xff, 0xff, 0xff, 0xff})
		}
	}
	f.Add(uint32(0), []byte{})
	f.Fuzz(func(t *testing.T, at uint32, patch []byte) {
		bad := bytes.Clone(good)
		copy(bad[int(at)%len(bad):], patch)
		if err := store.CheckPages(bytes.NewReader(bad), int64(len(bad))); err != nil {
			return
		}
		path := tempPath(t)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(options(path))
		if err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, fileA, "new", "new")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
