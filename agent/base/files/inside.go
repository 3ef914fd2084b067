package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrLeadsOut is for a symbolic link that is absolute or leads out of its directory.
var ErrLeadsOut = errors.New("the symbolic link leads out of its directory")

// OpenRegularInside is [OpenRegular] for a file whose symbolic links must stay in its directory,
// for directories of those who may not read all that the process can. Nothing outside of the
// directory is opened, whenever links change.
func OpenRegularInside(name string) (*os.File, error) {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	base := filepath.Base(name)
	f, err := openRegular(name, func() (fs.FileInfo, error) { return root.Stat(base) },
		func(flags int) (*os.File, error) { return root.OpenFile(base, flags, 0) })
	if err != nil && !errors.Is(err, errNotRegular) {
		return nil, leadsOut(err)
	}
	return f, err
}

// leadsOut tells what the system says of a file from what [os.Root] says of a link, which has no
// error number.
func leadsOut(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return err
	}
	return ErrLeadsOut
}
