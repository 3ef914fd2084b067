package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
)

// Modes of created files. Anyone who can read a key can act as the proxy.
const (
	dirMode  = 0o700
	fileMode = 0o600
)

// maxFile limits the size of a file in bytes.
const maxFile = 1 << 20

// File names: ca-BACKEND.pem and proxy-DATAPLANE.pem, in a directory for each mesh.
const (
	caPrefix    = "ca"
	proxyPrefix = "proxy"
	suffix      = ".pem"
	tempPrefix  = "." // prefix of unfinished files
	aside       = ".damaged"
)

// vault stores files with keys in a directory; with "" it stores nothing. Files are named by their
// relative path.
type vault struct{ root string }

// refusedError is the error for a file or directory that others can read or write.
type refusedError struct{ path, reason, remedy string }

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.path, e.reason, e.remedy)
}

// fileOf returns the file name for an authority or a proxy. A long or unusual name is replaced by
// its hash after an underscore, with which no resource name begins.
func fileOf(mesh, prefix, name string) string {
	return filepath.Join(element("", mesh, ""), element(prefix+"-", name, suffix))
}

func element(before, name, after string) string {
	if name == "" || len(name) > 200 || name[0] == '.' ||
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		sum := sha256.Sum256([]byte(name))
		name = "_" + hex.EncodeToString(sum[:16])
	}
	return before + name + after
}

// proxyOf returns the mesh and the dataplane of a file; ok is false for other files. For a hashed
// name it returns "".
func proxyOf(file string) (mesh, name string, ok bool) {
	dir, base := filepath.Split(file)
	mesh = filepath.Clean(dir)
	name, before := strings.CutPrefix(base, proxyPrefix+"-")
	name, after := strings.CutSuffix(name, suffix)
	if !before || !after {
		return "", "", false
	}
	if strings.HasPrefix(name, "_") || strings.HasPrefix(mesh, "_") {
		mesh, name = "", ""
	}
	return mesh, name, true
}

func (v *vault) path(file string) string { return filepath.Join(v.root, file) }

// read returns the content of a file. The error is fs.ErrNotExist if there is none, and a
// *refusedError if users other than the agent's can read or write it.
func (v *vault) read(file string) ([]byte, error) {
	if v.root == "" {
		return nil, fs.ErrNotExist
	}
	path := v.path(file)
	for _, dir := range []string{v.root, filepath.Dir(path)} {
		if err := private(dir, true); errors.Is(err, syscall.ENOTDIR) {
			return nil, fs.ErrNotExist
		} else if err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, &refusedError{path, "is a symbolic link", "replace it with the file itself, or remove it"}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := ours(path, st, false); err != nil {
		return nil, err
	}
	return readAll(f)
}

// readAll reads a file up to the size limit.
func readAll(f *os.File) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", f.Name(), maxFile)
	}
	return data, err
}

// private checks a path without opening it.
func private(path string, dir bool) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return ours(path, st, dir)
}

// ours checks that only the agent's user can access a file or directory.
func ours(path string, st fs.FileInfo, dir bool) error {
	switch {
	case dir && !st.IsDir():
		return &refusedError{path, "is not a directory", "move it away"}
	case !dir && !st.Mode().IsRegular():
		return &refusedError{path, "is not a regular file", "move it away"}
	case st.Mode().Perm()&0o077 != 0 && dir:
		return &refusedError{path, fmt.Sprintf("is accessible to other users (mode %#o)", st.Mode().Perm()),
			fmt.Sprintf("if no other user used this access, change its mode to %#o; else remove it, "+
				"and the agent creates new certificates", dirMode)}
	case st.Mode().Perm()&0o077 != 0:
		return &refusedError{path,
			fmt.Sprintf("is accessible to other users (mode %#o) and contains a private key", st.Mode().Perm()),
			fmt.Sprintf("if no other user read or changed it, change its mode to %#o; else remove it, "+
				"and the agent creates a new one", fileMode)}
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return &refusedError{path, fmt.Sprintf("belongs to the user %d, not to the agent's user %d", sys.Uid, os.Geteuid()),
			"change its owner, or remove it"}
	}
	return nil
}

// write replaces a file atomically. With sync it returns after the file is on disk.
func (v *vault) write(file string, data []byte, sync bool) error {
	if v.root == "" {
		return nil
	}
	path := v.path(file)
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	for _, d := range []string{v.root, dir} {
		if err := private(d, true); err != nil {
			return err
		}
	}
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(fileMode))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if !sync {
		if err := f.Close(); err != nil {
			return err
		}
		return os.Rename(f.Name(), path)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return errors.Join(syncDir(dir), syncDir(v.root))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// setAside renames an unusable file and replaces an earlier renamed one.
func (v *vault) setAside(file string) (string, error) {
	to := v.path(file) + aside
	return to, os.Rename(v.path(file), to)
}

func (v *vault) remove(file string) error {
	if v.root == "" {
		return nil
	}
	if err := os.Remove(v.path(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(filepath.Dir(v.path(file))) // fails unless the directory is empty
	return nil
}

// files lists the files of proxies, and removes leftovers of interrupted writes.
func (v *vault) files() []string {
	if v.root == "" {
		return nil
	}
	var out []string
	meshes, _ := os.ReadDir(v.root) // an unreadable directory counts as empty
	for _, m := range meshes {
		if !m.IsDir() {
			continue
		}
		entries, _ := os.ReadDir(v.path(m.Name()))
		for _, e := range entries {
			file := filepath.Join(m.Name(), e.Name())
			if strings.HasPrefix(e.Name(), tempPrefix) {
				_ = os.Remove(v.path(file))
			} else if _, _, ok := proxyOf(file); ok {
				out = append(out, file)
			}
		}
	}
	return out
}
