package probe

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// examine examines the host of a proxy. It runs in the goroutine of Run.
func (p *Prober) examine(x *proxy, files []string) *finding.Host {
	dir := filepath.Join(p.o.Root, "proc", strconv.Itoa(int(x.peer.PID)))
	h := &finding.Host{OpenFiles: openFiles(dir), Workers: workers(dir)}
	own, err := os.Readlink(filepath.Join(p.o.Root, "proc/self/ns/mnt"))
	its, itsErr := os.Readlink(filepath.Join(dir, "ns/mnt"))
	known := err == nil && itsErr == nil
	if known && its != own || x.peer.Foreign {
		return h // it has a different view of the file system
	}
	h.Guessed = !known
	who := user{peer: x.peer, all: overrides(dir, x.peer.UID)}
	for _, f := range files {
		if why := p.unwritable(who, f); why != "" {
			if h.Unwritable == nil {
				h.Unwritable = map[string]string{}
			}
			h.Unwritable[f] = why
		}
	}
	servers := nameServers(filepath.Join(p.o.Root, "etc/resolv.conf"))
	if x.servers == "" {
		x.servers = servers
	}
	if servers != "" && servers != x.servers {
		h.Resolver = fmt.Sprintf("/etc/resolv.conf names %s, and named %s when this Envoy connected",
			clip.Value(servers), clip.Value(x.servers))
	}
	return h
}

// user is the user who opens files.
type user struct {
	peer access.Peer
	all  bool // can open any file
}

// maxProc limits the bytes read from a file in /proc.
const maxProc = 64 << 10

func readSmall(path string) []byte {
	f, err := os.Open(path)
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

// openFiles returns the hard limit of open files of a process (proc_pid_limits(5)), to which Envoy
// raises its soft limit. It returns 0 if the limit is unknown or there is none.
func openFiles(dir string) uint64 {
	for line := range bytes.Lines(readSmall(filepath.Join(dir, "limits"))) {
		if rest, ok := bytes.CutPrefix(line, []byte("Max open files")); ok {
			if f := strings.Fields(string(rest)); len(f) >= 2 {
				n, _ := strconv.ParseUint(f[1], 10, 64) // "unlimited" is 0
				return n
			}
		}
	}
	return 0
}

// workers returns the number of Envoy's worker threads, which are named wrk:worker_N.
func workers(dir string) int {
	tasks, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return 0
	}
	n := 0
	for _, t := range tasks {
		if bytes.HasPrefix(readSmall(filepath.Join(dir, "task", t.Name(), "comm")), []byte("wrk:worker_")) {
			n++
		}
	}
	return n
}

// overrides reports whether a process can open files regardless of their modes, because it has
// CAP_DAC_OVERRIDE (capabilities(7)).
func overrides(dir string, uid uint32) bool {
	const dacOverride = 1
	for line := range bytes.Lines(readSmall(filepath.Join(dir, "status"))) {
		if rest, ok := bytes.CutPrefix(line, []byte("CapEff:")); ok {
			if set, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 16, 64); err == nil {
				return set&(1<<dacOverride) != 0
			}
		}
	}
	return uid == 0
}

// nameServers returns the name servers of a resolv.conf(5) in order, or "" if there are none or it
// cannot be read.
func nameServers(path string) string {
	var out []string
	for line := range strings.Lines(string(readSmall(path))) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "nameserver" && !slices.Contains(out, f[1]) {
			out = append(out, f[1])
		}
	}
	return strings.Join(out, ", ")
}
