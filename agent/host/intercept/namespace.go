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

// ownPath is the network namespace of this process: that of the thread that looks, since another
// thread, the first one too, may be visiting another namespace.
const ownPath = "/proc/thread-self/ns/net"

// Namespace is a network namespace that is open. Close it: it lives as long as it is open.
type Namespace struct {
	Path   string // "" for that of this process
	Inode  uint64 // tells namespaces apart
	handle netns.NsHandle
}

// NamespacePath makes a name as ip-netns(8) knows it a path, and leaves paths alone.
func NamespacePath(name string) string {
	if name == "" || filepath.Base(name) != name {
		return name
	}
	return filepath.Join("/run/netns", name)
}

// OpenNamespace opens the namespace at a path; "" is that of this process.
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
		return nil, explain(fmt.Errorf("open the network namespace %s: %w", at, err), unix.CAP_SYS_ADMIN)
	}
	n := &Namespace{Path: path, Inode: inode, handle: h}
	if inode == own {
		n.Path = ""
	}
	return n, nil
}

// namespaceInode looks at a path without opening it: a device or a FIFO in its place does no harm.
func namespaceInode(path string) (uint64, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("--netns: there is no network namespace at %s: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return 0, explain(fmt.Errorf("look at the network namespace %s: %w", path, err), unix.CAP_SYS_PTRACE)
	}
	var fsys unix.Statfs_t
	if err := unix.Statfs(path, &fsys); err != nil || fsys.Type != unix.NSFS_MAGIC {
		return 0, fmt.Errorf("--netns: %s is no network namespace; name a file such as /run/netns/NAME or /proc/PID/ns/net",
			path)
	}
	return st.Sys().(*syscall.Stat_t).Ino, nil
}

// Close lets go of the namespace.
func (n *Namespace) Close() { _ = n.handle.Close() }

// String names the namespace for people.
func (n *Namespace) String() string {
	if n.Path == "" {
		return "this network namespace"
	}
	return "the network namespace " + n.Path
}

// gone reports whether the path leads elsewhere by now, as when a pod has ended.
func (n *Namespace) gone() bool {
	if n.Path == "" {
		return false
	}
	inode, err := namespaceInode(n.Path)
	return err != nil || inode != n.Inode
}

// Do runs f on a thread in the namespace: sockets that it opens and programs that it starts are
// there. A thread that cannot go back ends with its goroutine.
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
			done <- explain(fmt.Errorf("enter %s: %w", n, err), unix.CAP_SYS_ADMIN)
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

// NeedsError says that the process lacks a capability.
type NeedsError struct {
	err        error
	capability string
}

func (e *NeedsError) Error() string {
	return fmt.Sprintf("%v: this needs the capability %s", e.err, e.capability)
}
func (e *NeedsError) Unwrap() error { return e.err }

// Hint says what to do.
func (e *NeedsError) Hint() string {
	return "run it as root, or give it " + e.capability +
		" (systemd: AmbientCapabilities; in a container: securityContext.capabilities.add)"
}

// explain names the capability that a refused call needs.
func explain(err error, capability Capability) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return &NeedsError{err, capability.String()}
}

// Capability is a right of a process.
type Capability int

// What interception needs: NetAdmin to change nftables and to mark the agent's queries, SysAdmin to
// enter other network namespaces.
const (
	NetAdmin Capability = unix.CAP_NET_ADMIN
	SysAdmin Capability = unix.CAP_SYS_ADMIN
)

// String is the name of the capability.
func (c Capability) String() string {
	switch c {
	case NetAdmin:
		return "CAP_NET_ADMIN"
	case SysAdmin:
		return "CAP_SYS_ADMIN"
	case unix.CAP_SYS_PTRACE:
		return "CAP_SYS_PTRACE"
	case unix.CAP_SETUID:
		return "CAP_SETUID"
	}
	return fmt.Sprintf("capability %d", int(c))
}

// Missing returns those capabilities that a process of this host does not have.
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
