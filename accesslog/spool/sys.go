package spool

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync forces what was written to a file to the disk, with its size but not its times. Another
// goroutine may close it.
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
