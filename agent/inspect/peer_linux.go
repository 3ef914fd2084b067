package inspect

import (
	"errors"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unixPeer asks the kernel who connected (SO_PEERCRED, unix(7)).
func unixPeer(c *net.UnixConn) (peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *unix.Ucred
	var groups []int
	var failed error
	err = raw.Control(func(fd uintptr) {
		if cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); failed == nil {
			groups = peerGroups(int(fd))
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return peer{}, err
	}
	return peer{known: true, uid: int(cred.Uid), gid: int(cred.Gid), pid: int(cred.Pid), groups: groups}, nil
}

// peerGroups returns the supplementary groups of a peer (SO_PEERGROUPS, Linux 4.13), nil when the kernel does not tell.
func peerGroups(fd int) []int {
	buf := make([]uint32, 64)
	for range 2 {
		size := uint32(4 * len(buf)) // #nosec G115 -- at most 64 Ki groups (NGROUPS_MAX)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			groups := make([]int, 0, size/4)
			for _, g := range buf[:size/4] {
				groups = append(groups, int(g))
			}
			return groups
		case errno == unix.ERANGE && size/4 <= 1<<16: // the kernel wrote the size it needs
			buf = make([]uint32, size/4)
		default:
			return nil
		}
	}
	return nil
}
