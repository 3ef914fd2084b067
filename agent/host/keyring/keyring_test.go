package keyring_test

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/keyring"
)

func key(c string) string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(c, 32))) }

// TestFile checks that adding, using, and removing keys preserves comments, and that only the owner
// can read the file.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyring")
	f := keyring.Open(path)
	if _, err := f.List(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no file: %v", err)
	}
	a, err := f.Add(key("a") + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", st.Mode(), err)
	}
	text, _ := os.ReadFile(path)
	if err := os.WriteFile(path, append([]byte("# ours\n\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := f.Add(key("b"))
	if err != nil {
		t.Fatal(err)
	}
	want := func(ids ...string) {
		t.Helper()
		if got, err := f.List(); err != nil || strings.Join(got, " ") != strings.Join(ids, " ") {
			t.Errorf("keys %q, want %q: %v", got, ids, err)
		}
	}
	want(a, b)
	if err := f.Remove(a); !errors.Is(err, keyring.ErrLastKey) {
		t.Errorf("the key that encrypts is removed: %v", err)
	}
	if err := f.Use(b); err != nil {
		t.Error(err)
	}
	want(b, a)
	if err := f.Remove(a); err != nil {
		t.Error(err)
	}
	want(b)
	if text, _ := os.ReadFile(path); string(text) != "# ours\n\n"+key("b")+"\n" {
		t.Errorf("the file has %q", text)
	}
	if _, err := f.Add(key("b")); !errors.Is(err, keyring.ErrKeyThere) {
		t.Errorf("twice: %v", err)
	}
	for _, err := range []error{f.Use(a), f.Remove(a)} {
		if !errors.Is(err, keyring.ErrNoKey) {
			t.Errorf("a key that is not there: %v", err)
		}
	}
	for _, bad := range []string{"", "x", key("a")[:8], key("a") + " " + key("b"), "a2V5"} {
		if _, err := f.Add(bad); err == nil || strings.Contains(err.Error(), key("a")[:8]) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestRead checks that invalid keyrings are refused, and that errors do not contain keys.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyring")
	secret := key("s")
	for text, want := range map[string]string{
		"":                                  "has no key",
		"# nothing\n":                       "has no key",
		secret + "\n" + secret[:10] + "x\n": "line 2: it is not base64",
		"c2hvcnQ=\n":                        "5 bytes",
		strings.Repeat(secret+"\n", 17):     "more than 16 keys",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := keyring.Read(path); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), secret[:10]) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := keyring.Read(path); err == nil || !strings.Contains(err.Error(), "other users may have read the keys") {
		t.Errorf("open to a group: %v", err)
	}
}
