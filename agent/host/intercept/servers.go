package intercept

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	maxResolvConf = 64 << 10 // bytes
	maxServers    = 8        // libc uses 3, and others more
)

// ResolvConf returns the resolv.conf of programs in the namespace, and its path. It is that of the
// process in the namespace's path, else of process 1, of ip-netns(8), or of the process with the
// lowest ID in the namespace. Links are followed below the root of that process.
func (n *Namespace) ResolvConf() (content []byte, path string, err error) {
	pid, file := n.user()
	if file != "" {
		content, err = readConf(unix.AT_FDCWD, file)
		return content, file, err
	}
	if pid == 0 {
		if n.Path == "" {
			content, err = readConf(unix.AT_FDCWD, resolvConf)
			return content, resolvConf, err
		}
		return nil, "", fmt.Errorf("no process is in %s: %w", n, fs.ErrNotExist)
	}
	root := fmt.Sprintf("/proc/%d/root", pid)
	dir, err := os.Open(root)
	if err != nil {
		return nil, "", explain(fmt.Errorf("open the root of process %d: %w", pid, err), SysPtrace)
	}
	defer dir.Close()
	content, err = readConf(int(dir.Fd()), resolvConf)
	return content, root + resolvConf, err
}

const resolvConf = "/etc/resolv.conf"

// readConf reads a file below a directory, which is the root for its links.
func readConf(root int, path string) ([]byte, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY}
	if root != unix.AT_FDCWD {
		how.Resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	}
	fd, err := unix.Openat2(root, path, &how)
	// Beside the rename or mount of any directory, the kernel cannot tell whether ".." leaves root.
	for try := 1; try < 100 && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)); try++ {
		fd, err = unix.Openat2(root, path, &how)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a file", path), err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxResolvConf+1))
	if len(b) > maxResolvConf {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxResolvConf)
	}
	return b, err
}

// user returns a process whose resolv.conf is that of the namespace, or a file.
func (n *Namespace) user() (pid int, file string) {
	if rest, ok := strings.CutPrefix(n.opened, "/proc/"); ok {
		id, _, _ := strings.Cut(rest, "/")
		if pid, err := strconv.Atoi(id); err == nil {
			return pid, ""
		}
	}
	if inNamespace(1, n.Inode) {
		return 1, ""
	}
	if n.Path == "" {
		return 0, ""
	}
	if dir := filepath.Dir(n.Path); dir == "/run/netns" || dir == "/var/run/netns" {
		own := filepath.Join("/etc/netns", filepath.Base(n.Path), "resolv.conf")
		if _, err := os.Stat(own); err == nil {
			return 0, own
		}
	}
	return n.process(), ""
}

// process returns the process in the namespace with the lowest ID, or 0. It remembers it.
func (n *Namespace) process() int {
	if n.pid == 0 || !inNamespace(n.pid, n.Inode) {
		n.pid = processIn(n.Inode)
	}
	return n.pid
}

// processIn returns the process with the lowest ID in the network namespace with an inode, or 0.
// Its own process does not count.
func processIn(inode uint64) (first int) {
	list, _ := os.ReadDir("/proc")
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && (first == 0 || pid < first) && inNamespace(pid, inode) {
			first = pid
		}
	}
	return first
}

// inNamespace reports whether a process is in the network namespace with an inode.
func inNamespace(pid int, inode uint64) bool {
	st, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	return err == nil && st.Sys().(*syscall.Stat_t).Ino == inode
}

// nameServers returns the servers in a resolv.conf whose queries are redirected.
func nameServers(conf []byte) (out []netip.AddrPort) {
	for line := range bytes.Lines(conf) {
		words := strings.Fields(string(line))
		if len(words) < 2 || words[0] != "nameserver" || len(out) == maxServers {
			continue
		}
		a, err := netip.ParseAddr(words[1])
		if err != nil || a.IsMulticast() || a.IsUnspecified() || a.Is6() && a.IsLinkLocalUnicast() {
			continue
		}
		if at := netip.AddrPortFrom(a.Unmap(), 53); !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out
}
