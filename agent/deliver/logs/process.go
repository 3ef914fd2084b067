package logs

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

// processOf identifies the process of a peer by pid and start time, until the next reboot, or
// returns "".
func (m *Manager) processOf(p access.Peer) string {
	if !p.Local || p.PID <= 0 {
		return ""
	}
	start := m.startOf(strconv.Itoa(int(p.PID)))
	if start == "" {
		return ""
	}
	return strconv.Itoa(int(p.PID)) + " " + start
}

// lives reports whether a process identified by processOf still exists.
func (m *Manager) lives(process string) bool {
	pid, start, ok := strings.Cut(process, " ")
	return ok && filepath.IsLocal(pid) && m.startOf(pid) == start
}

// startOf returns the start time of a process in clock ticks (proc_pid_stat(5), field 22), or "" if
// it does not exist or is a zombie.
func (m *Manager) startOf(pid string) string {
	b := m.readProc(pid + "/stat")
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name before it may contain any character
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}

// maxProc limits the size of a file read from /proc, in bytes.
const maxProc = 4 << 20

func (m *Manager) readProc(name string) []byte {
	f, err := os.Open(filepath.Join(m.o.Proc, name))
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProc))
	if err != nil {
		return nil
	}
	return b
}

// unreachable returns why a proxy cannot access the agent's run directory, and a remedy, or "" if
// it can or that is unknown.
func (m *Manager) unreachable(p access.Peer, known bool) string {
	const remedy = "connect its Envoy to the agent of its host, over the xDS socket, " +
		"or use a backend that the Envoy writes itself"
	if p.Pod != nil {
		return ""
	}
	if !p.Local {
		host, _, err := net.SplitHostPort(p.Addr)
		if ip := net.ParseIP(host); err == nil && ip != nil && !ip.IsLoopback() {
			return "its Envoy runs on another host (" + clip.Value(host) + "), without " + m.o.Dir + ": " + remedy
		}
		return ""
	}
	if !known || p.PID <= 0 {
		return ""
	}
	pid := strconv.Itoa(int(p.PID))
	own, err := os.Readlink(filepath.Join(m.o.Proc, "self/ns/mnt"))
	its, itsErr := os.Readlink(filepath.Join(m.o.Proc, pid, "ns/mnt"))
	if err != nil || itsErr != nil || own == its {
		return ""
	}
	here, ok := mountOf(m.readProc("self/mountinfo"), m.o.Dir)
	there, found := mountOf(m.readProc(pid+"/mountinfo"), m.o.Dir)
	if !ok || found && there == here {
		return ""
	}
	return "its Envoy (pid " + pid + ") has another mount namespace, in which " + m.o.Dir +
		" is not the agent's directory: mount the agent's paths.run there under the same path"
}

// location is the kernel's identity of a directory.
type location struct{ device, path string }

// mountOf returns the location of a directory according to a mountinfo file
// (proc_pid_mountinfo(5)). It does not access the file system, because a process may have mounted
// anything there.
func mountOf(info []byte, dir string) (at location, ok bool) {
	longest := -1
	for line := range strings.Lines(string(info)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		root, point := unescape(f[3]), unescape(f[4])
		rest, err := filepath.Rel(point, dir)
		if err != nil || rest != "." && !filepath.IsLocal(rest) || len(point) < longest {
			continue
		}
		longest = len(point) // the last mount at one point wins
		at, ok = location{f[2], filepath.Join(root, rest)}, true
	}
	return at, ok
}

// MountPoint returns the mount point of the file system of a path, without access to it: the file
// system may hang.
func (m *Manager) MountPoint(path string) string {
	longest := "/"
	for line := range strings.Lines(string(m.readProc("self/mountinfo"))) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		point := unescape(f[4])
		if rest, err := filepath.Rel(point, path); err == nil && filepath.IsLocal(rest) && len(point) > len(longest) {
			longest = point
		}
	}
	return longest
}

// unescape decodes the octal escapes of space, tab, newline, and backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
