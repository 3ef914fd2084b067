package sockets

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// checkNamespace returns an error if a socket is not in the network namespace with the given name.
func checkNamespace(f *os.File, namespace string) error {
	if namespace == Here {
		return nil // other namespaces lack this address or have their own socket for it
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
			failed = fmt.Errorf("determine its network namespace: %w", err)
			return
		}
		failed = unix.Fstat(ns, &st)
		_ = unix.Close(ns)
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if got := strconv.FormatUint(st.Ino, 10); got != namespace {
		return fmt.Errorf("it is in the network namespace %s", got)
	}
	return nil
}
