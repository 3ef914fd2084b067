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

// Modes of what a [Private] makes.
const (
	privateDirMode  = 0o700
	privateFileMode = 0o600
)

// tempPrefix begins the names of files that are being written.
const tempPrefix = "."

// RefusedError is about a file or directory whose content others may know or may have written.
type RefusedError struct{ Path, Reason, Remedy string }

func (e *RefusedError) Error() string { return e.Path + " " + e.Reason + ": " + e.Remedy }

// Private is an open directory with secrets that its owner alone can use. No symbolic link is
// followed, neither in its place nor in it, and everything is done relative to the open directory:
// whoever moves it away meanwhile leads no file to another place.
//
// The directory and its files must belong to the user of the process or to root. For root it may be
// the directory of another user, when the directory above shows that it is no stranger's: it
// belongs to that user too, or to root and nobody else writes there. What root writes is given to
// that user. A Private is for one goroutine.
type Private struct {
	path string
	root *os.Root
	self *os.File // the directory itself, for locks and syncs
	own  owner
}

// owner is whom files belong to.
type owner struct{ uid, gid int }

func ownerOf(st fs.FileInfo) owner {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return owner{int(sys.Uid), int(sys.Gid)}
	}
	return owner{os.Geteuid(), os.Getegid()}
}

// OpenPrivate opens a directory. The error is fs.ErrNotExist when there is none, fs.ErrPermission
// when this user may not open it, and a *[RefusedError] when others may have used it.
func OpenPrivate(path string) (*Private, error) {
	above, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer above.Close()
	return openPrivate(above, path)
}

// MakePrivate is [OpenPrivate] for a directory that is made when it does not exist, with the one
// above it.
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

// giveToOwnerAbove gives a directory that root has just made to the owner of the one above.
func giveToOwnerAbove(above *os.Root, base string) error {
	st, err := above.Stat(".")
	if err != nil {
		return err
	}
	made, err := above.Open(base)
	if err != nil {
		return err
	}
	defer made.Close()
	is, err := made.Stat()
	if err != nil || !is.IsDir() { // replaced meanwhile, which openPrivate reports
		return err
	}
	own := ownerOf(st)
	return made.Chown(own.uid, own.gid)
}

func openPrivate(above *os.Root, path string) (*Private, error) {
	base := filepath.Base(path)
	before, err := above.Lstat(base)
	if err != nil {
		return nil, err
	}
	if before.Mode()&fs.ModeSymlink != 0 {
		return nil, &RefusedError{path, "is a symbolic link", "put the directory itself in its place, or remove it"}
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

// ownedAsAbove reports whether the owner of a directory is no stranger to the one above.
func ownedAsAbove(above *os.Root, st fs.FileInfo) bool {
	up, err := above.Stat(".")
	if err != nil {
		return false
	}
	own := ownerOf(up)
	return own.uid == ownerOf(st).uid || own.uid == 0 && up.Mode().Perm()&0o022 == 0
}

// Close ends the use of the directory and frees its lock.
func (p *Private) Close() error { return errors.Join(p.self.Close(), p.root.Close()) }

// Lock waits until no other process, and no other Private, has the directory locked.
// [Private.Close] frees it.
func (p *Private) Lock() error {
	for {
		if err := syscall.Flock(int(p.self.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}

// Stat returns what is known of the directory itself.
func (p *Private) Stat() (fs.FileInfo, error) { return p.self.Stat() }

// List returns the files of the directory by name, links as links. Names that begin with a dot are
// left out.
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
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

// Read returns the content of a file of at most limit bytes. The error is fs.ErrNotExist when there
// is none, and a *[RefusedError] when it is no regular file or others may have read or written it.
func (p *Private) Read(name string, limit int) (data []byte, err error) {
	for range 3 { // it may be replaced while it is opened
		if data, err = p.read(name, limit); !errors.Is(err, errReplaced) {
			break
		}
	}
	return data, err
}

var errReplaced = errors.New("replaced while it was opened; try again")

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
			"it is not what belongs here; move it away"}
	}
	return data, err
}

// Write puts a file in place of what is there, in one step, and returns once it is on the disk.
func (p *Private) Write(name string, data []byte) error {
	temp := tempPrefix + name
	if err := p.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a write that was interrupted
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
		_ = p.root.Remove(temp) // the error before says more
		return err
	}
	return p.self.Sync()
}

// Remove removes a file; one that does not exist is no error.
func (p *Private) Remove(name string) error {
	if err := p.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return p.self.Sync()
}

// give hands to the owner what root has made.
func (p *Private) give(f *os.File) error {
	if p.own.uid == os.Geteuid() {
		return nil
	}
	return f.Chown(p.own.uid, p.own.gid)
}

// check holds a file or directory to its type, mode and owner.
func (p *Private) check(path string, st fs.FileInfo, mode fs.FileMode) error {
	dir := mode == privateDirMode
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		return &RefusedError{path, "is a symbolic link", "put the file itself in its place, or remove it"}
	case dir && !st.IsDir():
		return &RefusedError{path, "is not a directory", "move it away"}
	case !dir && !st.Mode().IsRegular():
		return &RefusedError{path, "is not a regular file", "move it away"}
	case st.Mode().Perm()&0o077 != 0:
		return &RefusedError{path, fmt.Sprintf("is open to others (mode %04o)", st.Mode().Perm()),
			fmt.Sprintf("if nobody has read or changed it, change its mode to %04o; else remove it", mode)}
	}
	if uid := ownerOf(st).uid; uid != 0 && uid != os.Geteuid() && uid != p.own.uid {
		return &RefusedError{path, fmt.Sprintf("belongs to the user %d, not to the agent's user %d", uid, p.own.uid),
			"change its owner, or remove it"}
	}
	return nil
}
