package sockets

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// checkNamespace returns an error if a socket is not in the network namespace with the given name.
func checkNamespace(f *os.File, namespace string) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = checkSocket(int(fd), namespace) })
	return errors.Join(err, failed)
}

func checkSocket(fd int, namespace string) error {
	want := namespace
	if namespace == Here {
		var own unix.Stat_t
		if err := unix.Stat("/proc/thread-self/ns/net", &own); err != nil {
			return fmt.Errorf("determine the network namespace of the agent: %w", err)
		}
		want = strconv.FormatUint(own.Ino, 10)
	}
	ns, err := unix.IoctlRetInt(fd, unix.SIOCGSKNS)
	switch {
	case errors.Is(err, unix.EPERM) && namespace == Here: // it requires CAP_NET_ADMIN
		return checkListed(fd)
	case err != nil:
		return fmt.Errorf("determine its network namespace: %w", err)
	}
	var st unix.Stat_t
	err = unix.Fstat(ns, &st)
	_ = unix.Close(ns)
	if err != nil {
		return fmt.Errorf("determine its network namespace: %w", err)
	}
	if got := strconv.FormatUint(st.Ino, 10); got != want {
		return fmt.Errorf("it is in the network namespace %s, not %s", got, want)
	}
	return nil
}

// checkListed returns an error if a bound socket is not in the network namespace of this process,
// whose sockets the kernel lists.
func checkListed(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	inode := strconv.FormatUint(st.Ino, 10)
	for _, name := range []string{"udp", "udp6", "tcp", "tcp6"} {
		if found, err := lists("/proc/thread-self/net/"+name, inode); found || err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return errors.New("it is in another network namespace")
}

// lists reports whether a table of sockets has an inode.
func lists(table, inode string) (bool, error) {
	f, err := os.Open(table)
	if err != nil {
		return false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if columns := strings.Fields(lines.Text()); len(columns) > 9 && columns[9] == inode {
			return true, nil
		}
	}
	return false, lines.Err()
}
