// Package keyring reads and changes the file with the keys of a gossip pool.
//
// A keyring contains base64 keys of 16, 24, or 32 bytes, one per line. The first key encrypts, and
// all keys decrypt. A file that other users can access is refused. Keys are identified by
// fingerprints and never appear in messages, logs, or errors.
package keyring

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"

	"github.com/nearside-mesh/nearside/agent/base/files"
)

// maxKeys is the maximum number of keys.
const maxKeys = 16

// makeKey explains how to create a key.
const makeKey = "make one with: nearside keyring generate"

// Read reads a keyring. It ignores empty lines and lines that begin with #. It refuses a file that
// other users can access, because they may have read the keys.
func Read(path string) ([][]byte, error) {
	f, err := files.OpenRegular(path)
	if err != nil {
		return nil, fmt.Errorf("gossip.keyringFile: %w; %s", err, makeKey)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, fmt.Errorf("gossip.keyringFile: %w", err)
	} else if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("gossip.keyringFile: %s has mode %#o, so other users may have read the keys; "+
			"run chmod 0600 %s and replace the keys", path, mode, path)
	}
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("gossip.keyringFile: %w", err)
	}
	var out [][]byte
	s := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		key, err := parseKey(line)
		switch {
		case err != nil:
			return nil, fmt.Errorf("gossip.keyringFile: %s: line %d: %w", path, n, err)
		case len(out) == maxKeys:
			return nil, fmt.Errorf("gossip.keyringFile: %s has more than %d keys; remove unused ones",
				path, maxKeys)
		}
		out = append(out, key)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("gossip.keyringFile: %s has no key; %s", path, makeKey)
	}
	return out, nil
}

// parseKey parses one key. Errors do not contain the text.
func parseKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	switch n := len(key); {
	case err != nil:
		return nil, errors.New("it is not base64; " + makeKey)
	case n != 16 && n != 24 && n != 32:
		return nil, fmt.Errorf("it is a key of %d bytes; 16, 24 or 32 are allowed; %s", n, makeKey)
	}
	return key, nil
}

// Fingerprint returns an identifier of a key that does not reveal the key.
func Fingerprint(key []byte) string {
	sum := sha256.Sum256(append([]byte("nearside gossip key\n"), key...))
	return hex.EncodeToString(sum[:8])
}

// Errors of [File].
var (
	ErrKeyThere = errors.New("the keyring already contains the key")
	ErrNoKey    = errors.New("no key has that fingerprint; nearside keyring list shows them")
	ErrLastKey  = errors.New("the encrypting key cannot be removed; make another key the encrypting one first")
)

// File is the keyring file of a pool. A running agent applies changes within a few seconds.
type File struct{ path string }

// Open returns the keyring with the given path. The file need not exist.
func Open(path string) File { return File{path} }

// List returns the fingerprints of the keys; the first is that of the encrypting key.
func (k File) List() ([]string, error) {
	keys, err := Read(k.path)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = Fingerprint(key)
	}
	return out, nil
}

// Add appends a base64 key, so that members know it before it encrypts, and returns its
// fingerprint.
func (k File) Add(text string) (string, error) {
	text = strings.TrimSpace(text)
	key, err := parseKey(text)
	if err != nil {
		return "", err
	}
	id := Fingerprint(key)
	return id, k.edit(true, func(lines []string) ([]string, error) {
		if indexOf(lines, id) >= 0 {
			return nil, ErrKeyThere
		}
		return append(lines, text), nil
	})
}

// Use makes the key with a fingerprint the encrypting key.
func (k File) Use(id string) error {
	return k.edit(false, func(lines []string) ([]string, error) {
		i := indexOf(lines, id)
		if i < 0 {
			return nil, ErrNoKey
		}
		line := lines[i]
		lines = slices.Delete(lines, i, i+1)
		return slices.Insert(lines, first(lines), line), nil
	})
}

// Remove removes the key with a fingerprint.
func (k File) Remove(id string) error {
	return k.edit(false, func(lines []string) ([]string, error) {
		i := indexOf(lines, id)
		switch {
		case i < 0:
			return nil, ErrNoKey
		case i == first(lines):
			return nil, ErrLastKey
		}
		return slices.Delete(lines, i, i+1), nil
	})
}

// keyOf returns the fingerprint of the key in a line, or "" if there is none.
func keyOf(line string) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
	if err != nil || len(key) == 0 {
		return ""
	}
	return Fingerprint(key)
}

func indexOf(lines []string, id string) int {
	return slices.IndexFunc(lines, func(l string) bool { return keyOf(l) == id })
}

// first returns the index of the line with the encrypting key, or the number of lines.
func first(lines []string) int {
	if i := slices.IndexFunc(lines, func(l string) bool { return keyOf(l) != "" }); i >= 0 {
		return i
	}
	return len(lines)
}

// edit replaces the file atomically and preserves comments, owner, and mode. A new file gets the
// owner of its directory.
func (k File) edit(create bool, change func([]string) ([]string, error)) error {
	like := k.path
	var lines []string
	_, err := Read(k.path) // the agent must accept the file
	switch {
	case err == nil:
		b, err := os.ReadFile(k.path)
		if err != nil {
			return err
		}
		lines = strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	case create && errors.Is(err, fs.ErrNotExist):
		like = filepath.Dir(k.path)
	default:
		return err
	}
	if lines, err = change(lines); err != nil {
		return err
	}
	st, err := os.Stat(like)
	if err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(k.path, renameio.WithPermissions(0o600))
	if err != nil {
		return fmt.Errorf("write the keyring: %w", err)
	}
	defer f.Cleanup()
	if _, err := f.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
		return fmt.Errorf("write the keyring: %w", err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		if err := f.Chown(int(sys.Uid), int(sys.Gid)); err != nil {
			return fmt.Errorf("give the keyring to its owner: %w", err)
		}
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write the keyring: %w", err)
	}
	return nil
}
