package sockets

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/host/tcptable"
)

// OtherHolder describes the process of "nearside hold" that has a socket at an address in this
// network namespace, with its pid and run directory. It returns "" if another program has it too,
// such as a running agent, or if no holder has it. Without the permission to see the files of
// holders, it returns the only one of this host, if there is one. It reads /proc of all processes.
func OtherHolder(at netip.AddrPort) string {
	inodes := bound(at)
	if len(inodes) == 0 {
		return ""
	}
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var holders, hidden []string
	for _, path := range list {
		b, err := os.ReadFile(path)
		words := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
		if err != nil || len(words) < 2 || words[1] != "hold" {
			continue
		}
		dir := filepath.Dir(path)
		what := fmt.Sprintf("%s hold (pid %s", filepath.Base(words[0]), filepath.Base(dir))
		if i := slices.Index(words, "--dir"); i > 0 && i+1 < len(words) {
			what += ", run directory " + words[i+1]
		}
		switch has, err := hasSocket(dir, inodes); {
		case has:
			holders = append(holders, what+")")
		case err != nil:
			hidden = append(hidden, what+")")
		}
	}
	if len(holders) == 0 {
		holders = hidden
	}
	if len(holders) != 1 {
		return ""
	}
	for owners, i := 0, 0; i < len(list); i++ {
		if has, _ := hasSocket(filepath.Dir(list[i]), inodes); has {
			owners++
		}
		if owners > 1 {
			return ""
		}
	}
	return holders[0]
}

// hasSocket reports whether a process has one of the sockets. The error says that its files cannot
// be seen.
func hasSocket(process string, inodes []string) (bool, error) {
	fds := filepath.Join(process, "fd")
	list, err := os.ReadDir(fds)
	if err != nil {
		return false, err
	}
	for _, e := range list {
		to, err := os.Readlink(filepath.Join(fds, e.Name()))
		if inode, ok := strings.CutPrefix(to, "socket:["); err == nil && ok &&
			slices.Contains(inodes, strings.TrimSuffix(inode, "]")) {
			return true, nil
		}
	}
	return false, nil
}

// bound returns the inodes of the sockets in this network namespace that receive what arrives at an
// address, or prevent a socket there.
func bound(at netip.AddrPort) (inodes []string) {
	for _, name := range []string{"udp", "udp6", "tcp", "tcp6"} {
		f, err := os.Open("/proc/thread-self/net/" + name)
		if err != nil {
			continue // the kernel has no IPv6
		}
		const listening = "0A"
		for lines := bufio.NewScanner(f); lines.Scan(); {
			columns := strings.Fields(lines.Text())
			if len(columns) < 10 || strings.HasPrefix(name, "tcp") && columns[3] != listening {
				continue
			}
			if overlaps(columns[1], at) {
				inodes = append(inodes, columns[9])
			}
		}
		_ = f.Close()
	}
	return inodes
}

// overlaps reports whether a local address in the kernel's form has the port of an address, and the
// same IP address, or one of both is unspecified.
func overlaps(local string, at netip.AddrPort) bool {
	a, err := tcptable.Address(local)
	return err == nil && a.Port() == at.Port() &&
		(a.Addr() == at.Addr().Unmap() || a.Addr().IsUnspecified() || at.Addr().IsUnspecified())
}
