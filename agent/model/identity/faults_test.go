package identity_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func (w *world) file(name string) string { return filepath.Join(w.dir, "default", name) }

// warned returns the warnings of the last pass as one string.
func (w *world) warned() string { return strings.Join(w.warn, "\n") }

// TestRefusedFiles checks that files that others can read or write are rejected with the remedy.
func TestRefusedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w *world) error
		want  string
	}{
		"readable": {func(w *world) error { return os.Chmod(w.file("ca-ca.pem"), 0o640) },
			"ca-ca.pem is accessible to other users (mode 0640) and contains a private key: if no other user read or " +
				"changed it, change its mode to 0600; else remove it"},
		"writable": {func(w *world) error { return os.Chmod(w.file("ca-ca.pem"), 0o602) },
			"is accessible to other users (mode 0602)"},
		"directory": {func(w *world) error { return os.Chmod(w.dir, 0o755) },
			"identity is accessible to other users (mode 0755)"},
		"mesh": {func(w *world) error { return os.Chmod(w.file(""), 0o770) },
			"default is accessible to other users (mode 0770)"},
		"link": {func(w *world) error {
			return errors.Join(os.Rename(w.file("ca-ca.pem"), w.file("x")), os.Symlink("x", w.file("ca-ca.pem")))
		}, "ca-ca.pem is a symbolic link"},
		"fifo": {func(w *world) error {
			return errors.Join(os.Remove(w.file("ca-ca.pem")), syscall.Mkfifo(w.file("ca-ca.pem"), 0o600))
		}, "is not a regular file"},
		"too long": {func(w *world) error { return os.WriteFile(w.file("ca-ca.pem"), make([]byte, 2<<20), 0o600) },
			"has more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.one(builtin("ca"))
			if err := c.spoil(w); err != nil {
				t.Fatal(err)
			}
			if got := w.one(builtin("ca")); got != first {
				t.Error("a running agent changed what proxies have")
			}
			w.start()
			_, err := w.try("default", builtin("ca"), "web")
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "mtls.backends[0] (ca): ") {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
			if got := w.next.Sub(w.now); got <= 0 || got > time.Minute {
				t.Errorf("the next pass is due after %v, want soon", got)
			}
			if _, err := os.Lstat(w.file("ca-ca.pem")); err != nil {
				t.Errorf("the refused file is gone: %v", err)
			}
		})
	}
}

// TestFixedFile checks that the agent uses a fixed file without a restart.
func TestFixedFile(t *testing.T) {
	w := newWorld(t)
	first := w.one(builtin("ca"))
	if err := os.Chmod(w.file("ca-ca.pem"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.start()
	if _, err := w.try("default", builtin("ca"), "web"); err == nil {
		t.Fatal("a file that others can read is used")
	}
	if err := os.Chmod(w.file("ca-ca.pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := w.one(builtin("ca")); !bytes.Equal(got.Certificate(), first.Certificate()) {
		t.Error("after mending, the certificate is another one")
	}
}

// TestDamagedAuthority checks that a damaged file is moved aside and named, and that all proxies
// get new certificates at once.
func TestDamagedAuthority(t *testing.T) {
	good := newWorld(t)
	good.one(builtin("ca"))
	good.ask("other", builtin("ca"), "web")
	whole, err := os.ReadFile(good.file("ca-ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(filepath.Join(good.dir, "other", "ca-ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := os.ReadFile(good.file("proxy-web.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"empty": nil, "short": whole[:len(whole)/2], "no key": whole[:bytes.Index(whole, []byte("-----BEGIN PRIVATE"))],
		"noise": []byte("hello"), "of another mesh": foreign, "of a proxy": leaf,
		"trailing": append(bytes.Clone(whole), "x"...), "five": bytes.Repeat(whole, 5),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.one(builtin("ca"))
			if err := os.WriteFile(w.file("ca-ca.pem"), content, 0o600); err != nil {
				t.Fatal(err)
			}
			w.start()
			s := w.ask("default", builtin("ca"), "web", "backend")
			w.trusts(s["web"], s["backend"])
			w.trusts(s["backend"], s["web"])
			if bytes.Equal(s["web"].Authorities(), first.Authorities()) {
				t.Error("the authority is the damaged one")
			}
			kept, err := os.ReadFile(w.file("ca-ca.pem.damaged"))
			if err != nil || !bytes.Equal(kept, content) {
				t.Errorf("what was damaged is not kept: %v", err)
			}
			if !strings.Contains(w.warned(), "its authority was damaged (") ||
				!strings.Contains(w.warned(), "was moved to "+w.file("ca-ca.pem.damaged")) {
				t.Errorf("got warnings %q", w.warn)
			}
			w.start()
			if w.one(builtin("ca")); len(w.warn) != 0 {
				t.Errorf("after a restart there are still warnings: %q", w.warn)
			}
		})
	}
}

// TestDamagedCertificate checks that a damaged certificate is replaced for its proxy only.
func TestDamagedCertificate(t *testing.T) {
	for name, spoil := range map[string]func(w *world) error{
		"short":    func(w *world) error { return os.Truncate(w.file("proxy-web.pem"), 300) },
		"readable": func(w *world) error { return os.Chmod(w.file("proxy-web.pem"), 0o644) },
		"the authority": func(w *world) error {
			b, err := os.ReadFile(w.file("ca-ca.pem"))
			return errors.Join(err, os.WriteFile(w.file("proxy-web.pem"), b, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.ask("default", builtin("ca"), "web", "backend")
			if err := spoil(w); err != nil {
				t.Fatal(err)
			}
			w.start()
			s := w.ask("default", builtin("ca"), "web", "backend")
			if bytes.Equal(s["web"].Key(), first["web"].Key()) || !bytes.Equal(s["backend"].Key(), first["backend"].Key()) {
				t.Error("want a new key for web, and the old one for backend")
			}
			w.trusts(first["backend"], s["web"])
			if st, err := os.Stat(w.file("proxy-web.pem")); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", st, err)
			}
		})
	}
}

// TestDirectoryTakesNoFile checks that without a writable directory the keeper continues in memory,
// warns, and saves later.
func TestDirectoryTakesNoFile(t *testing.T) {
	w := newWorld(t)
	base := filepath.Dir(w.dir)
	w.dir = filepath.Join(base, "file", "identity") // a file in place of the directory rejects writes by any user
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	first := w.one(builtin("ca"))
	if !strings.Contains(w.warned(), "mtls.backends[0] (ca): its authority cannot be saved "+
		"and will be replaced at a restart: ") {
		t.Errorf("got warnings %q", w.warn)
	}
	if got := w.next.Sub(w.now); got > 30*time.Second {
		t.Errorf("the next try is due after %v", got)
	}
	if err := os.Remove(filepath.Join(base, "file")); err != nil {
		t.Fatal(err)
	}
	if w.one(builtin("ca")) != first || len(w.warn) == 0 {
		t.Error("it is tried again at once, or what proxies have has changed")
	}
	w.now = w.next
	if w.one(builtin("ca")) != first || len(w.warn) != 0 {
		t.Errorf("once files are taken: warnings %q", w.warn)
	}
	w.start()
	if got := w.one(builtin("ca")); !bytes.Equal(got.Certificate(), first.Certificate()) {
		t.Error("what was in memory is not on disk")
	}
}

// TestFullDisk writes to a device that is always full.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	m := builtin("ca")
	first := w.one(m)
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &lim); err != nil {
		t.Skip(err)
	}
	// A limit on the size of files interrupts a write like a full disk does. No other test writes
	// at the same time.
	none := lim
	none.Cur = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &none); err != nil {
		t.Skip(err)
	}
	w.now = w.now.Add(20 * time.Hour)
	second := w.one(m)
	err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &lim)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(first.Certificate(), second.Certificate()) {
		t.Fatal("it was not renewed")
	}
	left, err := filepath.Glob(w.file(".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("halves of files are left: %v, %v", left, err)
	}
	if !strings.Contains(w.log.String(), "certificates cannot be saved") {
		t.Errorf("nobody is told: %s", w.log.String())
	}
	w.start()
	third := w.one(m)
	w.trusts(second, third)
	w.trusts(third, second)
}

// TestLeftovers checks that leftovers of interrupted writes are removed.
func TestLeftovers(t *testing.T) {
	w := newWorld(t)
	w.one(builtin("ca"))
	if err := os.WriteFile(w.file(".new-123"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	if _, err := os.Stat(w.file(".new-123")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there still: %v", err)
	}
}
