package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// errNotRegular is wrapped by errors about other file types.
var errNotRegular = errors.New("not a regular file")

// Exposed says what to do about a file with a secret, depending on its mode; "" if only its owner
// can access it.
func Exposed(mode fs.FileMode) string {
	if mode&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("contains a secret and is accessible to other users (mode %#o): change its owner to the agent's "+
		"user and its mode to 0600, or move the key to a separate file", mode)
}

// OpenRegular opens a regular file or a symbolic link to one. It never blocks: it does not open
// pipes and devices, except for a race, in which it opens them without blocking.
func OpenRegular(name string) (*os.File, error) {
	return openRegular(name, func() (fs.FileInfo, error) { return os.Stat(name) },
		func(flags int) (*os.File, error) { return os.OpenFile(name, flags, 0) })
}

// openRegular checks the file type, opens the file without blocking, and checks the type again.
func openRegular(name string, stat func() (fs.FileInfo, error),
	open func(flags int) (*os.File, error)) (*os.File, error) {
	// Opening a device can have side effects, so check the type first. The file may be replaced
	// before it is opened.
	if st, err := stat(); err != nil {
		return nil, err
	} else if err := regular(name, st); err != nil {
		return nil, err
	}
	f, err := open(os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY)
	if err != nil {
		return nil, err
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

func regular(name string, st fs.FileInfo) error {
	what := "a special file"
	switch m := st.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir():
		what = "a directory"
	case m&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case m&fs.ModeSocket != 0:
		what = "a socket"
	case m&fs.ModeDevice != 0:
		what = "a device"
	}
	return fmt.Errorf("%s is %s, %w; replace it by a regular file or rename it", name, what, errNotRegular)
}
