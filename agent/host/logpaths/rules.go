package logpaths

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/rotation"
)

// Owner is a writer of log files.
type Owner string

// Owners. See also [Receiver].
const (
	AuditLog Owner = "the audit log"
	AgentLog Owner = "the log of the agent (log.file)"
	QueryLog Owner = "the log of DNS queries (dns.queryLog.file)"
	Policies Owner = "the access logs of policies"
)

// Receiver returns the owner of a receiver's file.
func Receiver(name string) Owner { return Owner("the receiver " + name + " (accessLog.receivers)") }

// Modes of accessLog.rotation.
const (
	rotateAlways = "always"
	rotateNone   = "none"
)

// Rules are the log paths of a node. A nil *Rules is a node without a known config: Envoys write
// all files without rotation, and no path is refused. Rules are immutable and safe for concurrent
// use.
type Rules struct {
	run      string
	rotation string // accessLog.rotation
	logs     string // paths.logs
	dirs     []area // directories with an owner; the innermost one decides about a file
	files    []file // files of the config
}

// area is a directory.
type area struct {
	path string
	open bool   // policies may name files in it
	what string // description, for a closed one
}

// file is a file with a known owner.
type file struct {
	path  string
	owner Owner
}

// NewRules returns the rules of a node.
func NewRules(c *config.Config) *Rules {
	r := &Rules{run: c.Paths.Run, rotation: c.AccessLog.Rotation, logs: c.Paths.Logs}
	add := func(open bool, what string, paths ...string) {
		for _, p := range paths {
			if p != "" {
				r.dirs = append(r.dirs, area{filepath.Clean(p), open, what})
			}
		}
	}
	add(true, "", c.Paths.Logs)
	add(true, "", c.AccessLog.Directories...)
	add(false, "the audit log", filepath.Join(c.Paths.Logs, "audit"))
	add(false, "the logs of DNS queries", filepath.Join(c.Paths.Logs, "dns"))
	add(false, "the sockets and FIFOs of the agent (paths.run)", c.Paths.Run)
	add(false, "the state of the agent (paths.state)", c.Paths.State)
	for _, d := range c.Resources.Dir {
		add(false, "resource files (resources.dir)", d.Path)
	}
	own := func(owner Owner, path string) {
		if path != "" {
			r.files = append(r.files, file{filepath.Clean(path), owner})
		}
	}
	own(AuditLog, c.AuditLogPath())
	own(AgentLog, c.Log.File)
	own(QueryLog, c.DNS.QueryLog.File)
	for _, x := range c.AccessLog.Receivers {
		own(Receiver(x.Name), x.File)
	}
	return r
}

// RunDir returns the agent's run directory with the FIFOs and sockets that Envoys open.
func (r *Rules) RunDir() string {
	if r == nil {
		return "/run/nearside"
	}
	return cmp.Or(r.run, "/run/nearside")
}

// Refused returns why no policy may name a file, or "" if it may. An Envoy and the agent must both
// not write such a file for a policy.
func (r *Rules) Refused(name string) string {
	if r == nil {
		return ""
	}
	name = filepath.Clean(name)
	if base, what := rotation.OwnerOf(path.Base(name)); base != "" {
		return fmt.Sprintf("its name is that of a %s of %s; use another name", what, base)
	}
	if a := r.area(name); a != nil && !a.open {
		return fmt.Sprintf("%s contains %s, and policies must not write there; use a path below %s", a.path, a.what,
			filepath.Join(r.logs, "access"))
	}
	for _, f := range r.files {
		if sameFile(f.path, name) {
			return fmt.Sprintf("%s belongs to %s; use another path", f.path, f.owner)
		}
	}
	return ""
}

// sameFile reports whether two files share a path, or paths of backups.
func sameFile(a, b string) bool {
	return path.Dir(a) == path.Dir(b) && rotation.Collide(path.Base(a), path.Base(b))
}

// Rotates reports whether the agent writes and rotates a file. own means that its backend sets
// rotation.
func (r *Rules) Rotates(name string, own bool) bool {
	if r == nil {
		return own
	}
	return r.rotation != rotateNone && (own || r.rotation == rotateAlways && r.Inside(name))
}

// Inside reports whether the agent may write a file of a policy at a path.
func (r *Rules) Inside(name string) bool {
	if r == nil {
		return false
	}
	a := r.area(filepath.Clean(name))
	return a != nil && a.open
}

// Outside returns why a path is not [Rules.Inside] the directories for policies.
func (r *Rules) Outside() string {
	return "policies may name files that the agent writes only below paths.logs (" + r.logs + ") and " +
		"accessLog.directories: use a path there, or add the directory to accessLog.directories"
}

// area returns the innermost known directory that contains a file, or nil.
func (r *Rules) area(name string) *area {
	var found *area
	for i := range r.dirs {
		a := &r.dirs[i]
		if !below(a.path, name) || found != nil && len(found.path) > len(a.path) {
			continue
		}
		if found == nil || len(found.path) < len(a.path) || found.open { // a closed one counts for equal paths
			found = a
		}
	}
	return found
}

// below reports whether a clean path is below a directory.
func below(dir, name string) bool {
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/"))
	return ok && len(rest) > 1 && rest[0] == '/'
}

// Unlimited reports whether a path is a stream of a process or a device without a size.
func Unlimited(name string) bool {
	return slices.Contains([]string{"/dev/stdout", "/dev/stderr", "/dev/null", "/dev/fd/1", "/dev/fd/2",
		"/proc/self/fd/1", "/proc/self/fd/2", "/proc/1/fd/1", "/proc/1/fd/2"}, filepath.Clean(name))
}

// defaultLogs is the default of paths.logs.
const defaultLogs = "/var/log/nearside"

// Warning returns the warning about a file that a policy names, or "": it must not be written, or
// it grows without limit, because neither its backend nor the node limits it. limited means that
// the backend sets rotation. Without rules, the directories of the node are the default ones.
func (r *Rules) Warning(name string, limited bool) string {
	if why := r.Refused(name); why != "" {
		return fmt.Sprintf("the file %s is not written: %s", clip.Value(name), why)
	}
	switch {
	case limited, Unlimited(name), r.Inside(name), r == nil && below(defaultLogs, filepath.Clean(name)):
		return ""
	}
	return fmt.Sprintf("the file %s grows without limit, because it is not below paths.logs or accessLog.directories: "+
		"use a path there, or set rotation: none if another program rotates it", clip.Value(name))
}
