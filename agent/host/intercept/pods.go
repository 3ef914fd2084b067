package intercept

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// hostNetns returns the path of the network namespace of the node, if the agent is in the PID
// namespace of the node: that of process 1. If a security module protects process 1, it is that of
// the first kernel thread, which only the PID namespace of the node has.
func hostNetns() string {
	const first, kernel = "/proc/1/ns/net", "/proc/2"
	if _, err := os.Stat(first); errors.Is(err, fs.ErrPermission) {
		b, _ := os.ReadFile(kernel + "/stat")
		_, rest, _ := strings.Cut(string(b), ") ")
		fields := strings.Fields(rest) // from the state on, see proc_pid_stat(5)
		if len(fields) > 6 {
			if flags, err := strconv.ParseUint(fields[6], 10, 32); err == nil && flags&kernelThread != 0 {
				return kernel + "/ns/net"
			}
		}
	}
	return first
}

// kernelThread is the flag of kernel threads in /proc/PID/stat (PF_KTHREAD).
const kernelThread = 0x200000

// Pods installs redirections in the network namespaces of pods. A namespace is that of the process
// of the pod's Envoy. It is safe for concurrent use.
type Pods struct {
	Dir string // the directory of records, as in [RenewerOptions]
	// Host is the path of the network namespace of the node; "": that of process 1. Nothing is
	// installed there, and its addresses are the sources of probes.
	Host string
}

// Envoy is the process of an Envoy, as the kernel reports it for a connection.
type Envoy struct {
	PID   int32    // in the PID namespace of the agent; 0 if it is not visible
	Pidfd *os.File // nil if the process is not certain
	UID   uint32   // in the user namespace of the agent
}

// Errors about the process of an Envoy.
var (
	errHidden = errors.New("the agent cannot see the process of its Envoy; run the agent in the PID namespace of the " +
		"node (in a pod: hostPID: true), and connect the Envoy over a unix socket")
	errEnded   = errors.New("its Envoy has ended")
	errHostNet = errors.New("its Envoy is in the network namespace of the node, where nothing is redirected; " +
		"run the pod without hostNetwork")
	errOwnNet = errors.New("its Envoy is in the network namespace of the agent, where nothing is redirected; " +
		"run it in another pod")
)

// Install redirects the traffic of a pod, as the spec says. It adds the user of the Envoy to
// EnvoyUsers, and the addresses of the node to ProbeSources if there are ProbePorts. An equal
// installation for the same Dataplane stays unchanged. Another one is replaced without a gap,
// except that of a command. It returns the inode of the namespace, and whether it has changed
// anything.
func (p *Pods) Install(e Envoy, dataplane string, s Spec) (inode uint64, changed bool, err error) {
	n, err := p.open(e)
	if err != nil {
		return 0, false, err
	}
	defer n.Close()
	user, err := n.envoyUser(e)
	if err != nil {
		return 0, false, err
	}
	s.EnvoyUsers = append(slices.Clone(s.EnvoyUsers), user)
	if len(s.ProbePorts) > 0 {
		if s.ProbeSources, err = p.HostAddresses(); err != nil {
			return 0, false, err
		}
	}
	s.Normalize()
	if err := s.Validate(); err != nil {
		return 0, false, err
	}
	if old, err := readRecord(recordPath(p.Dir, n.Inode)); err == nil && old.Dataplane == dataplane &&
		old.Spec.equal(&s) {
		if loaded, err := n.hasChains(&s); err != nil || loaded {
			return n.Inode, false, err
		}
	}
	if _, err = install(n, &s, p.Dir, Record{Dataplane: dataplane}); errors.Is(err, errInstalledByCommand) {
		err = fmt.Errorf("%w; remove it with nearside intercept uninstall --netns %s", err, n.Path)
	}
	return n.Inode, err == nil, err
}

// open opens the network namespace of a process. The process has not ended by then, so its ID is
// not that of another one.
func (p *Pods) open(e Envoy) (*Namespace, error) {
	if e.Pidfd == nil || e.PID <= 0 {
		return nil, errHidden
	}
	host, err := namespaceInode(p.host())
	if err != nil {
		return nil, fmt.Errorf("find the network namespace of the node: %w", err)
	}
	n, err := OpenNamespace(fmt.Sprintf("/proc/%d/ns/net", e.PID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errEnded
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	switch err := unix.PidfdSendSignal(int(e.Pidfd.Fd()), 0, nil, 0); {
	case errors.Is(err, unix.ESRCH) || unix.Fstat(int(n.handle), &st) != nil || st.Ino != n.Inode:
		n.Close()
		return nil, errEnded
	case n.Inode == host:
		n.Close()
		return nil, errHostNet
	case n.Path == "":
		n.Close()
		return nil, errOwnNet
	}
	return n, nil
}

func (p *Pods) host() string {
	if p.Host != "" {
		return p.Host
	}
	return hostNetns()
}

// envoyUser returns the user of an Envoy as the rules of the namespace see it: in the user
// namespace that owns the network namespace, which is another one in pods with hostUsers: false.
func (n *Namespace) envoyUser(e Envoy) (uint32, error) {
	fd, err := unix.IoctlRetInt(int(n.handle), unix.NS_GET_USERNS)
	if err != nil {
		return 0, explain(fmt.Errorf("find the user namespace that owns %s: %w", n, err), SysAdmin)
	}
	defer unix.Close(fd)
	var owner unix.Stat_t
	if err := unix.Fstat(fd, &owner); err != nil {
		return 0, fmt.Errorf("find the user namespace that owns %s: %w", n, err)
	}
	inode := func(path string) (uint64, error) {
		st, err := os.Stat(path)
		if err != nil {
			return 0, explain(fmt.Errorf("read the user namespace %s: %w", path, err), SysPtrace)
		}
		return st.Sys().(*syscall.Stat_t).Ino, nil
	}
	own, err := inode("/proc/self/ns/user")
	if err != nil || own == owner.Ino {
		return e.UID, err
	}
	theirs, err := inode(fmt.Sprintf("/proc/%d/ns/user", e.PID))
	if err != nil {
		return 0, err
	}
	if theirs != owner.Ino {
		return 0, fmt.Errorf("its Envoy is in another user namespace than the one that owns %s, so its user there is "+
			"unknown; run it as the pod does", n)
	}
	return mappedUser(fmt.Sprintf("/proc/%d/uid_map", e.PID), e.UID)
}

// mappedUser returns the ID that a user has inside of the user namespace of a map
// (user_namespaces(7)).
func mappedUser(path string, uid uint32) (uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read the users of its Envoy: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var inside, outside, count uint32
		if n, _ := fmt.Sscan(lines.Text(), &inside, &outside, &count); n == 3 && uid >= outside && uid-outside < count {
			return inside + (uid - outside), nil
		}
	}
	return 0, fmt.Errorf("uid %d is not mapped in the user namespace of its Envoy", uid)
}

// hasChains reports whether the table of a namespace has all chains of a spec.
func (n *Namespace) hasChains(s *Spec) (bool, error) {
	c, err := n.open()
	if err != nil {
		return false, err
	}
	has, err := n.contentsOf(c)
	if err != nil {
		return false, err
	}
	for _, want := range NewRuleset(s, nil, false).chains {
		if !slices.ContainsFunc(has.chains, func(k *nftables.Chain) bool { return k.Name == want.name && want.is(k) }) {
			return false, nil
		}
	}
	return true, nil
}

// HostAddresses returns the addresses of the node, from which it probes its pods: those of all
// interfaces, such as bridges, without loopback, link-local, and multicast ones.
func (p *Pods) HostAddresses() ([]netip.Prefix, error) {
	n, err := OpenNamespace(p.host())
	if err != nil {
		return nil, fmt.Errorf("find the addresses of the node, from which probes come: %w", err)
	}
	defer n.Close()
	var list []net.Addr
	if err := n.Do(func() (err error) { list, err = net.InterfaceAddrs(); return err }); err != nil {
		return nil, fmt.Errorf("list the addresses of the node, from which probes come: %w", err)
	}
	var out []netip.Prefix
	for _, a := range list {
		x, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		if ip, ok := netip.AddrFromSlice(x.IP); ok && ip.Unmap().IsGlobalUnicast() {
			out = append(out, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the node has no address from which probes could come; remove the annotation " +
			"nearside.io/probe-ports")
	}
	out = outermost(out)
	if len(out) > maxItems {
		return nil, fmt.Errorf("the node has %d addresses from which probes could come, at most %d are allowed; "+
			"use kuma.io/virtual-probes: enabled instead of nearside.io/probe-ports", len(out), maxItems)
	}
	return out, nil
}

// Has reports whether a namespace has an installation for a Dataplane.
func (p *Pods) Has(inode uint64, dataplane string) bool {
	r, err := readRecord(recordPath(p.Dir, inode))
	return err == nil && r.Dataplane == dataplane
}

// Remove removes the installations for a Dataplane that no longer asks for one.
func (p *Pods) Remove(dataplane string) error {
	records, errs := readRecords(p.Dir)
	for i := range records {
		if records[i].Dataplane == dataplane {
			errs = append(errs, uninstallRecord(&records[i], p.Dir))
		}
	}
	return errors.Join(errs...)
}

// Dataplanes returns the Dataplanes for which redirections are installed, sorted.
func (p *Pods) Dataplanes() []string {
	var out []string
	records, _ := readRecords(p.Dir)
	for i := range records {
		if d := records[i].Dataplane; d != "" {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, strings.Compare)
	return slices.Compact(out)
}
