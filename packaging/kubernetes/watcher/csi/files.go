package csi

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// plain makes the kernel refuse symbolic links and paths that leave the directory.
	plain = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	// mountFlags are the flags of all volumes. Sockets and FIFOs work with them.
	mountFlags = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	statFlags  = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
	// maxStacked bounds the mounts at one target that are removed.
	maxStacked = 16
)

// openBelow opens a directory below another one. resolve adds restrictions to [plain].
func openBelow(dir *os.File, name string, flags, resolve uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: flags | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: plain | resolve}
	for range 100 { // the kernel asks for another try when a directory was renamed meanwhile
		fd, err := unix.Openat2(int(dir.Fd()), name, &how)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: dir.Name() + "/" + name, Err: err}
		}
		return os.NewFile(uintptr(fd), dir.Name()+"/"+name), nil
	}
	return nil, &os.PathError{Op: "open", Path: dir.Name() + "/" + name, Err: unix.EAGAIN}
}

// link returns the path of what a descriptor refers to, whatever its name is.
func link(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// openTarget opens the directory of a target, or what is mounted at it.
func openTarget(parent *os.File) (*os.File, error) { return openBelow(parent, "mount", unix.O_PATH, 0) }

// mounted reports whether a descriptor is the root of a mount.
func mounted(f *os.File) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &st)
	if err != nil {
		return false, &os.PathError{Op: "statx", Path: f.Name(), Err: err}
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, errors.New("the kernel does not say what is mounted: Linux 5.12 or newer is required: " +
			"upgrade the kernel of this node")
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// same reports whether two descriptors refer to one directory.
func same(a, b *os.File) (bool, error) {
	var x, y unix.Stat_t
	if err := errors.Join(unix.Fstat(int(a.Fd()), &x), unix.Fstat(int(b.Fd()), &y)); err != nil {
		return false, err
	}
	return x.Dev == y.Dev && x.Ino == y.Ino, nil
}

// attach mounts dir at "mount" below parent, unless it is mounted there already. A mount of another
// directory is replaced. The mount has all its flags from its first moment on.
func attach(dir, parent *os.File) error {
	if err := unix.Mkdirat(int(parent.Fd()), "mount", 0o750); err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "mkdir", Path: parent.Name() + "/mount", Err: err}
	}
	for range maxStacked {
		at, err := openTarget(parent)
		if err != nil {
			return err
		}
		done, err := attachAt(dir, at)
		_ = at.Close()
		if done || err != nil {
			return err
		}
	}
	return fmt.Errorf("%s/mount has more than %d mounts: unmount them", parent.Name(), maxStacked)
}

// attachAt mounts dir at a target. If something else is mounted at it, attachAt removes that and
// returns false.
func attachAt(dir, at *os.File) (bool, error) {
	found, err := mounted(at)
	if err != nil {
		return false, err
	}
	if !found {
		return true, bind(dir, at)
	}
	if ours, err := same(dir, at); err != nil {
		return false, err
	} else if !ours {
		return false, detachAt(at)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(at.Fd()), &st); err != nil {
		return false, &os.PathError{Op: "statfs", Path: at.Name(), Err: err}
	}
	if st.Flags&statFlags == statFlags {
		return true, nil
	}
	return true, restrict(at)
}

func bind(dir, at *os.File) error {
	fd, err := unix.OpenTree(int(dir.Fd()), "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return needsKernel(&os.PathError{Op: "open_tree", Path: dir.Name(), Err: err})
	}
	tree := os.NewFile(uintptr(fd), dir.Name())
	defer tree.Close()
	if err := restrict(tree); err != nil {
		return err
	}
	err = unix.MoveMount(fd, "", int(at.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return needsKernel(&os.PathError{Op: "mount", Path: at.Name(), Err: err})
	}
	return nil
}

func restrict(m *os.File) error {
	err := unix.MountSetattr(int(m.Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: mountFlags})
	if err != nil {
		return needsKernel(&os.PathError{Op: "mount_setattr", Path: m.Name(), Err: err})
	}
	return nil
}

func needsKernel(err error) error {
	switch {
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: Linux 5.12 or newer is required: upgrade the kernel of this node", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: the driver needs the capability SYS_ADMIN: run its container privileged", err)
	}
	return err
}

func detachAt(at *os.File) error {
	if err := unix.Unmount(link(at), unix.MNT_DETACH); err != nil {
		return needsKernel(&os.PathError{Op: "unmount", Path: at.Name(), Err: err})
	}
	return nil
}

// detach removes all mounts at "mount" below parent, and the directory.
func detach(parent *os.File) error {
	for range maxStacked {
		at, err := openTarget(parent)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		found, err := mounted(at)
		if err == nil && found {
			err = detachAt(at)
		}
		_ = at.Close()
		if err != nil {
			return err
		}
		if !found {
			break
		}
	}
	err := unix.Unlinkat(int(parent.Fd()), "mount", unix.AT_REMOVEDIR)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "rmdir", Path: parent.Name() + "/mount", Err: err}
	}
	return nil
}
