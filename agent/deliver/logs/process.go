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

// processOf names the process of a peer, for as long as the machine is up: its pid and when it
// began. "" where it is not known.
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

// lives says whether a process is still there that processOf has named.
func (m *Manager) lives(process string) bool {
	pid, start, ok := strings.Cut(process, " ")
	return ok && filepath.IsLocal(pid) && m.startOf(pid) == start
}

// startOf returns when a process began, in clock ticks (proc_pid_stat(5), field 22); "" where there
// is none. One that has ended and waits for its parent is none.
func (m *Manager) startOf(pid string) string {
	b := m.readProc(pid + "/stat")
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name before may hold anything
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}

// maxProc bounds a file of /proc that is read, in bytes.
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

// unreachable says why a proxy does not find what the agent makes in its run directory, and what to
// do; "" where it does, or that is not certain.
func (m *Manager) unreachable(p access.Peer, known bool) string {
	const remedy = "connect its Envoy to the agent of its own host, over the xDS socket, " +
		"or give a backend that the Envoy writes itself"
	if !p.Local {
		host, _, err := net.SplitHostPort(p.Addr)
		if ip := net.ParseIP(host); err == nil && ip != nil && !ip.IsLoopback() {
			return "its Envoy runs on another host (" + clip.Value(host) + "), where there is no " + m.o.Dir + ": " + remedy
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
	return "its Envoy (pid " + pid + ") has a file system of its own, in which " + m.o.Dir +
		" is not that of the agent: mount the agent's paths.run there under the same path"
}

// place is a directory as the kernel knows it.
type place struct{ device, path string }

// mountOf finds in a mountinfo (proc_pid_mountinfo(5)) where a directory lies. Nothing on the file
// system is touched, since a process may have mounted anything there.
func mountOf(info []byte, dir string) (at place, ok bool) {
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
		longest = len(point) // of several at one point the last counts
		at, ok = place{f[2], filepath.Join(root, rest)}, true
	}
	return at, ok
}

// unescape reads the octal forms of space, tab, line break and backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
