package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Modes of directories and files that [Private] creates.
const (
	privateDirMode  = 0o700
	privateFileMode = 0o600
)

// tempPrefix is the prefix of temporary file names.
const tempPrefix = "."

// RefusedError reports a file or directory that other users may have read or written.
type RefusedError struct{ Path, Reason, Remedy string }

func (e *RefusedError) Error() string { return e.Path + " " + e.Reason + ": " + e.Remedy }

// Private is an open directory with secrets that only its owner can access. Symbolic links are not
// followed, neither to the directory nor in it. All operations are relative to the open directory,
// so moving it does not redirect them.
//
// The directory and its files must belong to the user of the process or to root. If the process
// runs as root, the directory may belong to another user if the parent directory shows that this is
// intended: it belongs to that user too, or it belongs to root and only root can write to it. Files
// that root writes are then given to that user. A Private is not safe for concurrent use.
type Private struct {
	path string
	root *os.Root
	self *os.File // the directory itself, for locking and syncing
	own  owner
}

// owner is the owner of files.
type owner struct{ uid, gid int }

func ownerOf(st fs.FileInfo) owner {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return owner{int(sys.Uid), int(sys.Gid)}
	}
	return owner{os.Geteuid(), os.Getegid()}
}

// OpenPrivate opens a directory. It returns fs.ErrNotExist if it does not exist, fs.ErrPermission
// if the user may not open it, and a *[RefusedError] if other users may have accessed it.
func OpenPrivate(path string) (*Private, error) {
	above, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer above.Close()
	return openPrivate(above, path)
}

// MakePrivate is like [OpenPrivate], but creates the directory and its parent if they do not exist.
func MakePrivate(path string) (*Private, error) {
	parent := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(parent), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(parent, privateDirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	above, err := os.OpenRoot(parent)
	if err != nil {
		return nil, err
	}
	defer above.Close()
	err = above.Mkdir(filepath.Base(path), privateDirMode)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err == nil && os.Geteuid() == 0 {
		if err := giveToOwnerAbove(above, filepath.Base(path)); err != nil {
			return nil, err
		}
	}
	return openPrivate(above, path)
}

// giveToOwnerAbove changes the owner of a directory that root has created to the owner of its
// parent.
func giveToOwnerAbove(above *os.Root, base string) error {
	st, err := above.Stat(".")
	if err != nil {
		return err
	}
	created, err := above.Open(base)
	if err != nil {
		return err
	}
	defer created.Close()
	is, err := created.Stat()
	if err != nil || !is.IsDir() { // replaced concurrently, which openPrivate reports
		return err
	}
	own := ownerOf(st)
	return created.Chown(own.uid, own.gid)
}

func openPrivate(above *os.Root, path string) (*Private, error) {
	base := filepath.Base(path)
	before, err := above.Lstat(base)
	if err != nil {
		return nil, err
	}
	if before.Mode()&fs.ModeSymlink != 0 {
		return nil, &RefusedError{path, "is a symbolic link", "replace it by the directory or remove it"}
	}
	if !before.IsDir() {
		return nil, &RefusedError{path, "is not a directory", "move it away"}
	}
	root, err := above.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	self, err := root.Open(".")
	if err != nil {
		root.Close()
		return nil, err
	}
	p := &Private{path: path, root: root, self: self, own: owner{os.Geteuid(), os.Getegid()}}
	st, err := self.Stat()
	if err == nil && !os.SameFile(before, st) {
		err = fmt.Errorf("%s: %w", path, errReplaced)
	}
	if err == nil && os.Geteuid() == 0 && ownedAsAbove(above, st) {
		p.own = ownerOf(st)
	}
	if err == nil {
		err = p.check(path, st, privateDirMode)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// ownedAsAbove reports whether the parent directory shows that the owner of a directory is
// intended.
func ownedAsAbove(above *os.Root, st fs.FileInfo) bool {
	up, err := above.Stat(".")
	if err != nil {
		return false
	}
	own := ownerOf(up)
	return own.uid == ownerOf(st).uid || own.uid == 0 && up.Mode().Perm()&0o022 == 0
}

// Close closes the directory and releases its lock.
func (p *Private) Close() error { return errors.Join(p.self.Close(), p.root.Close()) }

// Lock waits for an exclusive lock of the directory among all processes and Privates.
// [Private.Close] releases it.
func (p *Private) Lock() error {
	for {
		if err := syscall.Flock(int(p.self.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}

// Stat returns the file info of the directory.
func (p *Private) Stat() (fs.FileInfo, error) { return p.self.Stat() }

// List returns the files of the directory by name without following links. It omits names that
// begin with a dot.
func (p *Private) List() ([]fs.FileInfo, error) {
	dir, err := p.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out []fs.FileInfo
	for _, name := range names {
		if strings.HasPrefix(name, tempPrefix) {
			continue
		}
		st, err := p.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed concurrently
		}
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

// Read returns the content of a file of at most limit bytes. It returns fs.ErrNotExist if the file
// does not exist, and a *[RefusedError] if it is not a regular file or other users may have
// accessed it.
func (p *Private) Read(name string, limit int) (data []byte, err error) {
	for range 3 { // another process may replace it while it is opened
		if data, err = p.read(name, limit); !errors.Is(err, errReplaced) {
			break
		}
	}
	return data, err
}

var errReplaced = errors.New("replaced while it was being opened; try again")

func (p *Private) read(name string, limit int) ([]byte, error) {
	path := filepath.Join(p.path, name)
	before, err := p.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := p.check(path, before, privateFileMode); err != nil {
		return nil, err
	}
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(before, st) {
		return nil, fmt.Errorf("%s: %w", path, errReplaced)
	}
	if err := p.check(path, st, privateFileMode); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(data) > limit {
		return nil, &RefusedError{path, fmt.Sprintf("has more than %d bytes", limit),
			"it does not belong here; move it away"}
	}
	return data, err
}

// Write replaces a file atomically and returns after it is on disk.
func (p *Private) Write(name string, data []byte) error {
	temp := tempPrefix + name
	if err := p.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by an interrupted write
		return err
	}
	f, err := p.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateFileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = p.give(f)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = p.root.Rename(temp, name)
	}
	if err != nil {
		_ = p.root.Remove(temp) // err is more specific
		return err
	}
	return p.self.Sync()
}

// Remove removes a file. It is not an error if the file does not exist.
func (p *Private) Remove(name string) error {
	if err := p.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return p.self.Sync()
}

// give changes the owner of a file that root has created.
func (p *Private) give(f *os.File) error {
	if p.own.uid == os.Geteuid() {
		return nil
	}
	return f.Chown(p.own.uid, p.own.gid)
}

// check checks the type, the mode, and the owner of a file or directory.
func (p *Private) check(path string, st fs.FileInfo, mode fs.FileMode) error {
	dir := mode == privateDirMode
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		return &RefusedError{path, "is a symbolic link", "replace it by the file or remove it"}
	case dir && !st.IsDir():
		return &RefusedError{path, "is not a directory", "move it away"}
	case !dir && !st.Mode().IsRegular():
		return &RefusedError{path, "is not a regular file", "move it away"}
	case st.Mode().Perm()&0o077 != 0:
		return &RefusedError{path, fmt.Sprintf("is accessible to other users (mode %04o)", st.Mode().Perm()),
			fmt.Sprintf("if no other user has read or changed it, change its mode to %04o; otherwise remove it", mode)}
	}
	if uid := ownerOf(st).uid; uid != 0 && uid != os.Geteuid() && uid != p.own.uid {
		return &RefusedError{path, fmt.Sprintf("belongs to the user %d, not to the agent's user %d", uid, p.own.uid),
			"change its owner, or remove it"}
	}
	return nil
}
