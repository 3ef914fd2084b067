package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/store"
)

// TestExposedFileIsRefused checks that a state file that others can read is rejected until its mode
// is fixed.
func TestExposedFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nearside.db")
	s := open(t, path)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("the file is made with mode %v, %v", st.Mode(), err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o644, 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := store.Open(options(path))
		var exposed *store.ExposedError
		if !errors.As(err, &exposed) || !strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), "change its mode to 0600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, path).Close(); err != nil {
		t.Error(err)
	}
}
