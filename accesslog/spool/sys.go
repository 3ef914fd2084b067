package spool

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync flushes the data and size of a file to disk, but not its times. Another goroutine may
// close the file at the same time.
func datasync(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Fdatasync(int(fd)) }); err != nil {
		return err
	}
	if failed != nil {
		return &os.PathError{Op: "sync", Path: f.Name(), Err: failed}
	}
	return nil
}
