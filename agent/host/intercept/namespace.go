package intercept

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ownPath is the network namespace of the calling thread. The path of another thread, even of the
// first one, would be wrong while that thread is in another namespace.
const ownPath = "/proc/thread-self/ns/net"

// Namespace is an open network namespace. It exists until it is closed.
type Namespace struct {
	Path   string // "" for the namespace of this process
	Inode  uint64 // identifies the namespace
	handle netns.NsHandle
	opened string // the current path that leads to it, or ""
	pid    int    // a process in the namespace, or 0
}

// NamespacePath returns the path of a namespace that ip-netns(8) knows by name. It returns paths
// unchanged.
func NamespacePath(name string) string {
	if name == "" || filepath.Base(name) != name {
		return name
	}
	return filepath.Join("/run/netns", name)
}

// OpenNamespace opens the namespace at a path; "" is the namespace of this process.
func OpenNamespace(path string) (*Namespace, error) {
	at := path
	if at == "" {
		at = ownPath
	}
	inode, err := namespaceInode(at)
	if err != nil {
		return nil, err
	}
	own, err := namespaceInode(ownPath)
	if err != nil {
		return nil, err
	}
	h, err := netns.GetFromPath(at)
	if err != nil {
		return nil, explain(fmt.Errorf("open the network namespace %s: %w", at, err), SysAdmin)
	}
	n := &Namespace{Path: path, Inode: inode, handle: h, opened: path}
	if inode == own {
		n.Path = ""
	}
	return n, nil
}

// namespaceInode returns the inode at a path without opening it, because opening a device or FIFO
// may block or have side effects.
func namespaceInode(path string) (uint64, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("--netns: there is no network namespace at %s: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return 0, explain(fmt.Errorf("read the network namespace %s: %w", path, err), SysPtrace)
	}
	var fsys unix.Statfs_t
	if err := unix.Statfs(path, &fsys); err != nil || fsys.Type != unix.NSFS_MAGIC {
		return 0, fmt.Errorf("--netns: %s is no network namespace; name a file such as /run/netns/NAME or /proc/PID/ns/net",
			path)
	}
	return st.Sys().(*syscall.Stat_t).Ino, nil
}

// Close closes the namespace.
func (n *Namespace) Close() { _ = n.handle.Close() }

// String describes the namespace.
func (n *Namespace) String() string {
	if n.Path == "" {
		return "this network namespace"
	}
	return "the network namespace " + n.Path
}

// gone reports whether the path no longer leads to the namespace, for example because its pod
// ended.
func (n *Namespace) gone() bool {
	if n.Path == "" {
		return false
	}
	inode, err := namespaceInode(n.opened)
	return err != nil || inode != n.Inode
}

// Do runs f on a thread in the namespace. Sockets that f opens and programs that it starts belong
// to the namespace. If the thread cannot return to its namespace, it ends with its goroutine.
func (n *Namespace) Do(f func() error) error {
	if n.Path == "" {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			done <- fmt.Errorf("open the network namespace of the thread: %w", err)
			return
		}
		defer home.Close()
		if err := netns.Set(n.handle); err != nil {
			done <- explain(fmt.Errorf("enter %s: %w", n, err), SysAdmin)
			return
		}
		err = f()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// NeedsError means that the process lacks capabilities.
type NeedsError struct {
	err     error
	lacking []Capability
	has     bool // the process has them, but the kernel refuses the call
}

func (e *NeedsError) Error() string {
	if e.has {
		return fmt.Sprintf(
			"%v: the kernel refuses it although this process has the capability %s: the network namespace belongs "+
				"to another user namespace, or a security module or a seccomp filter forbids the call", e.err, e.names())
	}
	return fmt.Sprintf("%v: this needs the capability %s", e.err, e.names())
}
func (e *NeedsError) Unwrap() error { return e.err }

func (e *NeedsError) names() string {
	var out []string
	for _, c := range e.lacking {
		out = append(out, c.String())
	}
	return strings.Join(out, " and ")
}

// Hint returns the remedy.
func (e *NeedsError) Hint() string {
	if e.has {
		return "run it as root of the host, outside of containers"
	}
	return "run it as root, or add the capability " + e.names() +
		" (systemd: AmbientCapabilities; in a container: securityContext.capabilities.add)"
}

// explain adds the missing ones of the required capabilities to a permission error.
func explain(err error, required ...Capability) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	lacking, merr := Missing(os.Getpid(), required...)
	if merr != nil {
		return &NeedsError{err, required, false}
	}
	if len(lacking) == 0 {
		return &NeedsError{err, required, true}
	}
	return &NeedsError{err, lacking, false}
}

// explain adds the missing capabilities to a permission error of nftables or conntrack. Another
// namespace must also be entered.
func (n *Namespace) explain(err error) error {
	if n.Path == "" {
		return explain(err, NetAdmin)
	}
	return explain(err, NetAdmin, SysAdmin)
}

// Capability is a Linux capability.
type Capability int

// Capabilities for interception: NetAdmin to change nftables and to mark the agent's queries,
// SysAdmin to enter other network namespaces, and SysPtrace to read those of other users'
// processes.
const (
	NetAdmin  Capability = unix.CAP_NET_ADMIN
	SysAdmin  Capability = unix.CAP_SYS_ADMIN
	SysPtrace Capability = unix.CAP_SYS_PTRACE
)

// String returns the name of the capability.
func (c Capability) String() string {
	switch c {
	case NetAdmin:
		return "CAP_NET_ADMIN"
	case SysAdmin:
		return "CAP_SYS_ADMIN"
	case SysPtrace:
		return "CAP_SYS_PTRACE"
	case unix.CAP_SETUID:
		return "CAP_SETUID"
	}
	return fmt.Sprintf("capability %d", int(c))
}

// Missing returns the capabilities that a process on this host lacks.
func Missing(pid int, want ...Capability) ([]Capability, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			has, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return slices.DeleteFunc(slices.Clone(want), func(c Capability) bool { return has&(1<<c) != 0 }), err
		}
	}
	return nil, fmt.Errorf("/proc/%d/status names no capabilities", pid)
}
