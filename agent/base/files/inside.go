package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrLeadsOut reports a symbolic link that is absolute or leads out of its directory.
var ErrLeadsOut = errors.New("the symbolic link leads out of its directory")

// OpenRegularInside is like [OpenRegular], but symbolic links must not lead out of the directory of
// the file. Use it for directories whose owners have fewer rights than the process. It never opens
// a file outside the directory, even if links change concurrently.
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

// leadsOut returns system errors unchanged, and [ErrLeadsOut] for the error of [os.Root] about a
// link, which has no error number.
func leadsOut(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return err
	}
	return ErrLeadsOut
}
