package sockets

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// inPlace reports an error for a socket that is in another network namespace than that of its
// place.
func inPlace(f *os.File, place string) error {
	if place == Here {
		return nil // another one has no such address, or an own socket at it
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var st unix.Stat_t
	var failed error
	err = raw.Control(func(fd uintptr) {
		ns, err := unix.IoctlRetInt(int(fd), unix.SIOCGSKNS)
		if err != nil {
			failed = fmt.Errorf("ask for its network namespace: %w", err)
			return
		}
		failed = unix.Fstat(ns, &st)
		_ = unix.Close(ns)
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if got := strconv.FormatUint(st.Ino, 10); got != place {
		return fmt.Errorf("it is in the network namespace %s", got)
	}
	return nil
}
