package access

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PeerOf asks the kernel for the other end of a connection: for a Unix socket the credentials at
// the time of connect(2) (SO_PEERCRED, SO_PEERGROUPS), otherwise the address. With cgroup it also
// reads the process's cgroup, unless the process may have ended and its id may be reused. It fails
// if the kernel does not report the peer. The peer of a [PodConn] is the pod.
func PeerOf(c net.Conn, cgroup bool) (Peer, error) {
	u, pod := unixConn(c)
	if u == nil {
		a := c.RemoteAddr()
		if a == nil {
			return Peer{}, nil
		}
		p := Peer{Addr: a.String()}
		if uid, ok := tcpUser(c); ok {
			p.owner = OwnerOverTCP(uid)
		}
		return p, nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("credentials of the peer: %w", err)
	}
	var p Peer
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			failed = err
			return
		}
		p = Peer{Local: true, Pod: pod, UID: cred.Uid, GID: cred.Gid, PID: cred.Pid, Foreign: cred.Uid == overflowID(),
			Groups: peerGroups(int(fd))}
		if cgroup && p.PID > 0 {
			p.Cgroup = peerCgroup(int(fd), int(p.PID), p.UID)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return Peer{}, fmt.Errorf("credentials of the peer: %w", err)
	}
	return p, nil
}

// HasEnded reports whether the process of a local peer has ended. It is false if the process is not
// visible.
func (p Peer) HasEnded() bool {
	return p.Local && p.PID > 0 && unix.Kill(int(p.PID), 0) == unix.ESRCH
}

// peerGroups returns the supplementary groups of a peer (SO_PEERGROUPS, Linux 4.13), or nil if the
// kernel does not report them.
func peerGroups(fd int) []uint32 {
	buf := make([]uint32, 64)
	for range 2 {
		size := uint32(4 * len(buf)) // #nosec G115 -- at most 64 Ki groups (NGROUPS_MAX)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return buf[:size/4]
		case errno == unix.ERANGE && size/4 <= 1<<16: // the kernel stored the required size
			buf = make([]uint32, size/4)
		default:
			return nil
		}
	}
	return nil
}

// peerCgroup returns the cgroup of a process that is certain to be the peer, else "". With a pidfd
// (SO_PEERPIDFD, Linux 6.5), the process is certain if it has not ended after the file was read.
// Without one, the process must have the peer's user and the same start time before and after.
func peerCgroup(fd, pid int, uid uint32) string {
	dir := "/proc/" + strconv.Itoa(pid)
	if pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
		defer unix.Close(pidfd)
		path := readCgroup(dir)
		if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil && !errors.Is(err, unix.EPERM) {
			return ""
		}
		return path
	}
	before, ok := startOf(dir, uid)
	if !ok {
		return ""
	}
	path := readCgroup(dir)
	if after, ok := startOf(dir, uid); !ok || after != before {
		return ""
	}
	return path
}

// startOf returns the start time of a process of the user, in clock ticks (proc_pid_stat(5), field
// 22).
func startOf(dir string, uid uint32) (start string, ok bool) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil || st.Uid != uid {
		return "", false
	}
	b, err := readSmall(dir + "/stat")
	if err != nil {
		return "", false
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the preceding name may contain any characters
	if len(fields) < 20 {
		return "", false
	}
	return fields[19], true
}

// readCgroup returns the cgroup path of a process: that of version 2, else that of systemd's
// hierarchy (cgroups(7)).
func readCgroup(dir string) string {
	b, err := readSmall(dir + "/cgroup")
	if err != nil {
		return ""
	}
	named := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			if path != "/" || named == "" {
				return path
			}
		} else if _, rest, ok := strings.Cut(line, ":name=systemd:"); ok {
			named = rest
		}
	}
	return named
}

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}
