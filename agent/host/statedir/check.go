package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/nearside-mesh/nearside/agent/base/files"
)

// Names of files in the state directory.
const (
	Database   = "nearside.db"
	NodeKey    = "node-key"
	TrustPin   = "trust.pin"
	Revoked    = "tokens/revoked"
	OldPool    = "gossip.db"
	Inventory  = "inventory.json"
	AcceptLoss = "accept-loss"
)

// Dir is the state directory of an agent. It is not safe for concurrent use.
type Dir struct {
	path    string
	outside []string // directories that may have the mark of a mounted disk
	user    string   // of the agent, in commands
	known   inventory
}

// Open returns the state directory with a path. outside are directories that may be on another
// disk, the preferred one first.
func Open(path string, outside ...string) *Dir {
	return &Dir{path: path, outside: outside, user: owner()}
}

// Fault is the reason why the state cannot be used. Its text has the remedy.
type Fault struct {
	Path   string // file or directory
	Reason string
	Remedy string
	err    error // of the system, or nil
}

func (f *Fault) Error() string { return f.Path + " " + f.Reason + ": " + f.Remedy }

func (f *Fault) Unwrap() error { return f.err }

// accept returns the end of remedies that lose content.
func (d *Dir) accept(loss string) string {
	return fmt.Sprintf("or, if it is lost, accept that %s with: touch %s", loss, filepath.Join(d.path, AcceptLoss))
}

// What is lost with a file.
const (
	lostResources = "resources written over the API and the pool's state are lost, unless other nodes have them,"
	lostNode      = "this node becomes another member of the pool"
	lostPin       = "this node trusts the first trust file that it gets"
	lostRevoked   = "revoked tokens are valid again"
)

// lost returns what accepting the loss of a file means.
func lost(name string) string {
	switch name {
	case NodeKey:
		return lostNode
	case TrustPin:
		return lostPin
	case Revoked:
		return lostRevoked
	}
	return lostResources
}

// LossAccepted reports whether an operator has accepted the loss of what cannot be used.
func (d *Dir) LossAccepted() bool {
	_, err := os.Lstat(filepath.Join(d.path, AcceptLoss))
	return err == nil
}

// Had reports whether the directory has had a file of the inventory, as of [Dir.Check].
func (d *Dir) Had(name string) bool { return slices.Contains(d.known.Files, name) }

// SetAside renames a file whose loss is accepted.
func (d *Dir) SetAside(name string) error {
	path := filepath.Join(d.path, name)
	to := path + ".unusable"
	for i := 2; ; i++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = fmt.Sprintf("%s.unusable-%d", path, i)
	}
	return os.Rename(path, to)
}

// Unusable returns the fault of a file whose content cannot be used.
func (d *Dir) Unusable(name string, err error) *Fault {
	path := filepath.Join(d.path, name)
	return &Fault{Path: path, Reason: "cannot be used (" + strings.TrimPrefix(err.Error(), path+" ") + ")",
		Remedy: "fix that or restore the file from a backup, " + d.accept(lost(name))}
}

// Check returns why the state cannot be used, as far as that follows without reading it, or nil.
func (d *Dir) Check() *Fault { return d.CheckFiles(recorded...) }

// CheckFiles is [Dir.Check] of the directory and of some of its files.
func (d *Dir) CheckFiles(names ...string) *Fault {
	st, err := os.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return d.unmounted()
	case err != nil:
		return &Fault{Path: d.path, Reason: "cannot be examined (" + reason(err) + ")",
			Remedy: "give the agent's user access to it and its parents", err: err}
	case !st.IsDir():
		return &Fault{Path: d.path, Reason: "is not a directory", Remedy: "move it away, or set paths.state"}
	}
	if _, err := os.ReadDir(d.path); err != nil {
		return &Fault{Path: d.path, Reason: "cannot be read (" + reason(err) + ")", Remedy: d.own(d.path), err: err}
	}
	d.known = d.readInventory()
	if d.LossAccepted() {
		return nil
	}
	if !d.exists(Database) {
		if f := d.unmounted(); f != nil {
			return f
		}
	}
	for _, name := range names {
		if f := d.checkFile(name, d.Had(name)); f != nil {
			return f
		}
	}
	return nil
}

func (d *Dir) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(d.path, name))
	return err == nil
}

// checkFile checks a file that must exist if it is known.
func (d *Dir) checkFile(name string, known bool) *Fault {
	path := filepath.Join(d.path, name)
	link, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (!known || name == NodeKey && d.exists(NodeKey+".former")):
		return nil // a new node, or one whose operator replaces its key
	case errors.Is(err, fs.ErrNotExist):
		return &Fault{Path: path, Reason: "is missing, although this node had it",
			Remedy: "mount its disk or restore it from a backup, " + d.accept(lost(name))}
	case err != nil || name == Revoked || name == TrustPin: // their readers report other faults
		return nil
	}
	if link.Mode()&fs.ModeSymlink != 0 {
		if _, err := os.Stat(path); err != nil {
			to, _ := os.Readlink(path)
			return &Fault{Path: path,
				Reason: fmt.Sprintf("is a symbolic link to %s, which cannot be opened (%s)", to, reason(err)),
				Remedy: "mount the disk of its target, or restore it from a backup, " + d.accept(lost(name))}
		}
	}
	f, err := files.OpenRegular(path)
	if err != nil {
		if st, e := os.Stat(path); e == nil && !st.Mode().IsRegular() {
			return &Fault{Path: path, Reason: "is not a regular file (" + st.Mode().Type().String() + ")",
				Remedy: "move it away and restore the file from a backup, " + d.accept(lost(name))}
		}
		return &Fault{Path: path, Reason: "cannot be read (" + reason(err) + ")",
			Remedy: d.own(path) + ", or restore it from a backup", err: err}
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() == 0 && known {
		return &Fault{Path: path, Reason: "is empty, although this node had content in it",
			Remedy: "restore it from a backup, " + d.accept(lost(name))}
	}
	return nil
}

// own returns the command that gives a file to the agent's user.
func (d *Dir) own(path string) string { return fmt.Sprintf("run chown %s %s", d.user, path) }

// owner returns the user of this process, for commands.
func owner() string { return fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid()) }

// reason returns the system's error without the path.
func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// Stamp returns a text that differs after a change of the directory or of its files.
func (d *Dir) Stamp() string {
	var b strings.Builder
	add := func(path string) {
		st, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&b, "%q %v\n", path, err)
			return
		}
		sys := st.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%q %d %d %v %d %d %d %v\n", path, sys.Dev, sys.Ino, st.Mode(), sys.Uid, sys.Gid, st.Size(), sys.Ctim)
	}
	for at := d.path; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		if err != nil {
			fmt.Fprintf(&b, "%q %v\n", at, err)
		} else {
			sys := st.Sys().(*syscall.Stat_t)
			fmt.Fprintf(&b, "%q %d %d %v %d %d\n", at, sys.Dev, sys.Ino, st.Mode(), sys.Uid, sys.Gid)
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	for _, name := range []string{Database, NodeKey, NodeKey + ".former", "node-id", TrustPin, Revoked, AcceptLoss,
		OldPool} {
		add(filepath.Join(d.path, name))
	}
	return b.String()
}
