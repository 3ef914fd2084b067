package files

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// ErrLeadsOut is for a symbolic link that is absolute or leads out of its directory.
var ErrLeadsOut = errors.New("the symbolic link leads out of its directory")

// OpenRegularInside is [OpenRegular] for a file whose symbolic links must stay in its directory, for directories of those who
// may not read all that the process can. Nothing outside of the directory is opened, whenever links change.
func OpenRegularInside(name string) (*os.File, error) {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	base := filepath.Base(name)
	if st, err := root.Stat(base); err != nil {
		return nil, leadsOut(err)
	} else if err := regular(name, st); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(base, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, leadsOut(err)
	}
	st, err := f.Stat()
	if err == nil {
		err = regular(name, st)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// leadsOut tells what the system says of a file from what [os.Root] says of a link, which has no error number.
func leadsOut(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return err
	}
	return ErrLeadsOut
}
