package access

import (
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Process identifies the process of a local peer. Its pidfd is closed when nothing refers to it.
type Process struct {
	ID    string   // of this process only, also after a restart of the agent or of the machine
	Pidfd *os.File // readable once the process has ended
}

// ProcessOf returns the process that connected a Unix socket, or nil if it is not certain which one
// that is. The kernel reports it even if it is in another PID namespace (SO_PEERPIDFD, Linux 6.5).
// For older kernels, the process with the ID must have the peer's user.
func ProcessOf(c net.Conn, p Peer) *Process {
	u, _ := unixConn(c)
	if u == nil || !p.Local {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil
	}
	pidfd, certain := -1, false
	_ = raw.Control(func(fd uintptr) {
		if pidfd, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			certain = true
		} else if p.PID > 0 {
			pidfd, _ = unix.PidfdOpen(int(p.PID), 0)
		}
	})
	if pidfd < 0 {
		return nil
	}
	unix.CloseOnExec(pidfd)
	out := &Process{Pidfd: os.NewFile(uintptr(pidfd), "pidfd"), ID: processID(pidfd, p, certain)}
	if out.ID == "" {
		out.Pidfd.Close()
		return nil
	}
	return out
}

// processID returns the ID of the process of a pidfd, or "" if there is none. certain is set if the
// pidfd is that of the peer.
func processID(pidfd int, p Peer, certain bool) string {
	if p.PID > 0 {
		dir := "/proc/" + strconv.Itoa(int(p.PID))
		uid := p.UID
		var st unix.Stat_t
		if certain && unix.Stat(dir, &st) == nil {
			uid = st.Uid // it may have another user than when it connected
		}
		start, ok := startOf(dir, uid)
		if !ok || unix.PidfdSendSignal(pidfd, 0, nil, 0) == unix.ESRCH {
			return ""
		}
		return strconv.Itoa(int(p.PID)) + "/" + start
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Fstatfs(pidfd, &fs) != nil || fs.Type != unix.PID_FS_MAGIC || unix.Fstat(pidfd, &st) != nil {
		return ""
	}
	return "boot-" + bootID() + "/" + strconv.FormatUint(st.Ino, 10) // unique since Linux 6.9
}

// bootID returns the ID of this boot of the machine, or "".
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})
