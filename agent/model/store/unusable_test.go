package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/store"
)

// TestUnusableFile checks that a file that cannot be read is an error and stays as it is, and that
// accepting the loss replaces it and keeps it under another name.
func TestUnusableFile(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string) error{
		"directory": func(_ *testing.T, path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
		"another format": writeFormat3,
		"one page":       func(_ *testing.T, path string) error { return os.Truncate(path, 4096) },
		"zeros":          func(_ *testing.T, path string) error { return os.WriteFile(path, make([]byte, 1<<16), 0o600) },
		"symbolic link to nowhere": func(_ *testing.T, path string) error {
			return errors.Join(os.Remove(path), os.Symlink("none/there", path))
		},
		"symbolic link to itself": func(_ *testing.T, path string) error {
			return errors.Join(os.Remove(path), os.Symlink(path, path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := tempPath(t)
			s := open(t, path)
			mustPut(t, s, api, "mine", "1")
			if err := errors.Join(s.Close(), spoil(t, path)); err != nil {
				t.Fatal(err)
			}
			before := listing(t, path)
			o := options(path)
			o.AcceptDamage = false
			for range 2 { // the first attempt changes nothing
				if s, err := store.Open(o); err == nil {
					t.Errorf("it is used: %+v, with %q", s.Health(), contents(s))
				} else if !strings.Contains(err.Error(), path) {
					t.Errorf("the error does not name the file: %v", err)
				}
				want(t, "files", listing(t, path), before)
			}
			o.AcceptLoss = true
			s = openWith(t, o)
			h := s.Health()
			if !h.Persistent || h.SetAside == "" || h.Salvaged || contents(s) != "" {
				t.Errorf("after the loss is accepted: %+v, with %q", h, contents(s))
			}
			if _, err := os.Lstat(h.SetAside); err != nil {
				t.Errorf("the file is not kept: %v", err)
			}
			mustPut(t, s, api, "next", "1")
		})
	}
}

// writeFormat3 gives a file the format of a later release.
func writeFormat3(t *testing.T, path string) error {
	edit(t, path, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), store.MetaValue("format", "3"))
	})
	return nil
}

// TestAcceptedLossOfAnIntactFile checks that accepting a loss does not replace a file that only
// cannot be written.
func TestAcceptedLossOfAnIntactFile(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	mustPut(t, s, api, "mine", "1")
	before := contents(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o := options(path)
	o.AcceptLoss = true
	s = openWith(t, o)
	healthy(t, s)
	want(t, "contents", contents(s), before)
}

// listing returns the names, modes, and sizes of the files beside path.
func listing(t *testing.T, path string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(filepath.Dir(path), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil || p == filepath.Dir(path) {
			return err
		}
		b.WriteString(strings.Join([]string{st.Name(), st.Mode().String(), st.ModTime().String()}, " ") + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
