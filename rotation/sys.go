package rotation

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// renameNoReplace renames a file in a directory, and fails with EEXIST if the new name exists. On
// file systems that cannot do that atomically, it checks first; the lock excludes other users of
// this package.
func renameNoReplace(dir int, from, to string) error {
	err := unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		return renameIfFree(dir, from, to)
	}
	return err
}

// freeBytes returns the free space available to this user.
func freeBytes(fd int) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return 0, err
	}
	free := st.Bavail
	if size := uint64(max(st.Bsize, 1)); free > math.MaxInt64/size {
		return math.MaxInt64, nil
	}
	return int64(free * uint64(st.Bsize)), nil
}
