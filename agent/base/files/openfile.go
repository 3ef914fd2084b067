package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// errNotRegular is for what stands in the place of a file.
var errNotRegular = errors.New("not a regular file")

// Exposed says what to do about a file that holds a secret, by its mode; "" where nobody but its
// owner can read or write it.
func Exposed(mode fs.FileMode) string {
	if mode&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("holds a secret and is open to others than its owner (mode %#o): give the file to the agent's "+
		"user and change its mode to 0600, or give the key as a file of its own", mode)
}

// OpenRegular opens a regular file, or what a symbolic link leads to when that is one. It never
// blocks: a pipe or device is refused unopened where possible.
func OpenRegular(name string) (*os.File, error) {
	return openRegular(name, func() (fs.FileInfo, error) { return os.Stat(name) },
		func(flags int) (*os.File, error) { return os.OpenFile(name, flags, 0) })
}

// openRegular looks at what stands under a name, opens it without blocking, and looks again.
func openRegular(name string, stat func() (fs.FileInfo, error),
	open func(flags int) (*os.File, error)) (*os.File, error) {
	// Opening a device can have effects, so what it is comes first; it may be another one at the open.
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
	return fmt.Errorf("%s is %s, %w; put a file in its place or rename it", name, what, errNotRegular)
}
