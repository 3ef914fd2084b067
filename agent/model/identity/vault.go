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

// Modes of what the vault makes. Whoever else could read a key could be the proxy.
const (
	dirMode  = 0o700
	fileMode = 0o600
)

// maxFile bounds a file that is read, in bytes.
const maxFile = 1 << 20

// Names of files: ca-BACKEND.pem and proxy-DATAPLANE.pem in a directory for each mesh.
const (
	caPrefix    = "ca"
	proxyPrefix = "proxy"
	suffix      = ".pem"
	tempPrefix  = "." // of files that are being written
	aside       = ".damaged"
)

// vault keeps files with keys below a directory; "" keeps nothing. Files are named by their path
// below it.
type vault struct{ root string }

// refusedError is a file or directory whose content may be known to others, or be theirs.
type refusedError struct{ path, reason, remedy string }

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.path, e.reason, e.remedy)
}

// fileOf names the file of an authority or a proxy. Names are those of resources; one that is long
// or unusual is replaced by its hash, behind an underscore, with which no name of a resource
// begins.
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

// proxyOf returns the mesh and the dataplane that a file belongs to; ok is false for other files. A
// name that was hashed comes back as "".
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

// read returns the content of a file. The error is fs.ErrNotExist when there is none, and
// a *refusedError when others than the agent's user could have read or written it.
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
		return nil, &refusedError{path, "is a symbolic link", "put the file itself in its place, or remove it"}
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

// readAll reads a file that is not too large.
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

// ours checks that something is a file or directory that is of use to the agent's user alone.
func ours(path string, st fs.FileInfo, dir bool) error {
	switch {
	case dir && !st.IsDir():
		return &refusedError{path, "is not a directory", "move it away"}
	case !dir && !st.Mode().IsRegular():
		return &refusedError{path, "is not a regular file", "move it away"}
	case st.Mode().Perm()&0o077 != 0 && dir:
		return &refusedError{path, fmt.Sprintf("is open to others (mode %#o)", st.Mode().Perm()),
			fmt.Sprintf("if nobody has used that, change its mode to %#o; else remove it, and new certificates are made",
				dirMode)}
	case st.Mode().Perm()&0o077 != 0:
		return &refusedError{path, fmt.Sprintf("is open to others (mode %#o), and it holds a private key", st.Mode().Perm()),
			fmt.Sprintf("if nobody has read or changed it, change its mode to %#o; else remove it, and a new one is made",
				fileMode)}
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return &refusedError{path, fmt.Sprintf("belongs to the user %d, not to the agent's user %d", sys.Uid, os.Geteuid()),
			"change its owner, or remove it"}
	}
	return nil
}

// write puts a file in place of what is there, in one step. With sync it returns once the file is
// on the disk.
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

// setAside renames a file that cannot be used, over one that was set aside before.
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
	_ = os.Remove(filepath.Dir(v.path(file))) // when it was the last one
	return nil
}

// files lists the files of proxies. What an interrupted write has left is removed.
func (v *vault) files() []string {
	if v.root == "" {
		return nil
	}
	var out []string
	meshes, _ := os.ReadDir(v.root) // what cannot be listed has nothing to offer
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
