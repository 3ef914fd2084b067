package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// stalledAfter is how long changes may wait for the disk before it counts as stalled.
const stalledAfter = 10 * time.Second

// live reports whether the agent works at all. If not, a restart helps.
func (a *Agent) live() []api.Check {
	reason := a.watchdog.reason()
	return []api.Check{{Name: "reconcile", OK: reason == "", Reason: reason}}
}

// readiness reports whether proxies get their config. Other problems, such as a full disk or a file
// with faults, have a reason but do not make the node unready.
func (a *Agent) readiness() []api.Check {
	out := a.diskChecks()
	if a.suspended == nil {
		out = append(append(out, a.filesCheck(), a.reconcileCheck()), a.dir.WatcherChecks()...)
	}
	out = append(out, a.memoryCheck(), a.logsCheck(), a.resolver.Check())
	out = append(out, a.notes...)
	out = append(out, a.listenersCheck()...)
	out = append(out, a.interceptionCheck()...)
	out = append(out, a.pods.Checks()...)
	if a.peers != nil {
		out = append(out, a.peers.Checks()...)
		if c, ok := a.peers.PublishCheck(); ok {
			out = append(out, c)
		}
	}
	if f := a.deps.LogFile; f != nil {
		if err := f.Health(); err != nil {
			out = append(out, api.Check{Name: "log-file", OK: true, Degraded: true,
				Reason: fmt.Sprintf("log.file: %v; lines written only to stderr: %d", err, f.Dropped())})
		} else if why := logpaths.Future(a.cfg.Load().Log.File, f.FutureBackups()); why != "" {
			out = append(out, api.Check{Name: "log-file", OK: true, Degraded: true, Reason: why})
		}
	}
	if err := a.tokens.Err(); err != nil {
		out = append(out, api.Check{Name: "tokens", OK: true, Degraded: true, Reason: err.Error()})
	}
	return out
}

// diskChecks returns the checks of the state, of free space, and of the audit log. One check names
// a full file system with all that it stops: the check of the state if the state cannot be written,
// otherwise the check of free space.
func (a *Agent) diskChecks() []api.Check {
	state, full, also := a.stateCheck(), a.account.Full(), map[string]string{}
	for mount, n := range full {
		also[mount] = "; " + plural.Form(n, "1 access log on it cannot be written",
			"%d access logs on it cannot be written")
	}
	why, mount := a.audit.Alarm(), ""
	if why != "" && a.audit.Full() {
		mount = a.logs.MountPoint(filepath.Dir(a.audit.Path()))
		also[mount] += "; " + why
	}
	named := map[string]bool{}
	if err := a.store.Health().Err; errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		disk := a.logs.MountPoint(a.cfg.Load().Paths.State)
		named[disk] = true
		state.Reason += also[disk]
	}
	out := []api.Check{state, a.spaceCheck(full, also, named)}
	if why != "" && !named[mount] {
		out = append(out, api.Check{Name: "audit-log", OK: true, Degraded: true, Reason: why,
			Command: "ls -l " + filepath.Dir(a.audit.Path())})
	}
	return out
}

func (a *Agent) stateCheck() api.Check {
	if a.suspended != nil {
		return a.suspendedCheck()
	}
	c := api.Check{Name: "state", OK: true, Degraded: true, Command: "df -h " + a.cfg.Load().Paths.State}
	damaged := a.store.Snapshot().AllDamaged()
	switch h := a.store.Health(); {
	case h.Err != nil:
		c.Error = true
		c.Reason = fmt.Sprintf("the state disk takes no writes and the agent continues in memory (changes that a restart "+
			"would lose: %d) and refuses writes over the API: %v; free space or make it writable", h.Pending, h.Err)
	case !h.Persistent:
		c.Reason = "the state is kept in memory and does not survive a restart"
	case len(damaged) > 0:
		first := damaged[0]
		if i := slices.IndexFunc(damaged, func(d store.Damaged) bool { return d.Holds }); i >= 0 {
			first, c.OK, c.Error = damaged[i], false, true // as if the state could not be used
		}
		c.Command = "nearside status"
		c.Reason = fmt.Sprintf("%s, the first is %s (%s): %s", plural.Form(len(damaged),
			"1 resource cannot be read from the state file", "%d resources cannot be read from the state file"), first.Key,
			first.Reason, first.Remedy())
	case len(h.Quarantined) > 0:
		c.Reason = fmt.Sprintf("%s set aside, the first is %s: %s", plural.Form(len(h.Quarantined),
			"1 stored value could not be loaded and is", "%d stored values could not be loaded and are"),
			h.Quarantined[0].Key, h.Quarantined[0].Reason)
	case h.Pending > 0 && a.deps.Now().Sub(h.PendingSince) > stalledAfter:
		c.Reason = fmt.Sprintf("the state disk stalls: %s on the way to it since %s; writes over the API wait; "+
			"look at the disk", plural.Form(h.Pending, "1 change is", "%d changes are"), h.PendingSince.Format(time.RFC3339))
	case a.unrecordedReason() != "":
		c.Reason = a.unrecordedReason()
	default:
		c.Degraded, c.Reason = false, "every change is on disk"
		if h.Pending > 0 {
			c.Reason = plural.Form(h.Pending, "1 change is", "%d changes are") + " pending"
		}
	}
	return c
}

func (a *Agent) filesCheck() api.Check {
	c := api.Check{Name: "resource-files", OK: true, Reason: "all files are in force"}
	faulty, missing, conflicts := 0, 0, 0
	for _, f := range a.dir.Files() {
		if len(f.Faults) > 0 {
			faulty++
		}
		if f.Missing != "" {
			missing++
		}
		conflicts += len(f.Conflicts)
	}
	var what []string
	for _, x := range []struct {
		n         int
		one, many string
	}{
		{faulty, "1 file has faults", "%d files have faults"},
		{missing, "1 file is missing or empty, and its content is retained",
			"%d files are missing or empty, and their content is retained"},
		{conflicts, "1 resource is in conflict", "%d resources are in conflict"},
	} {
		if x.n > 0 {
			what = append(what, plural.Form(x.n, x.one, x.many))
		}
	}
	if len(what) > 0 {
		c.Degraded = true
		c.Reason = strings.Join(what, ", ") + "; see nearside status"
	}
	return c
}

// slowAfter is how long a proxy may wait for its first config before the agent counts as slow.
const slowAfter = 5 * time.Second

func (a *Agent) reconcileCheck() api.Check {
	last := a.reconciler.Last()
	if last == nil {
		return api.Check{Name: "config", Reason: "no config was made yet"}
	}
	c := api.Check{Name: "config", OK: true, Reason: fmt.Sprintf("made from revision %d", last.Revision)}
	if n, since := a.rollout.Unserved(); n > 0 {
		if elapsed := a.deps.Now().Sub(since); elapsed > slowAfter {
			c.Degraded = true
			c.Reason = fmt.Sprintf("%s for their config, the first for %s: the agent has too little processor time for so "+
				"many at once; they are served one after the other. Give it more (CPUQuota=, resources.limits.cpu), "+
				"or see nearside debug pprof goroutine", plural.Form(n, "1 proxy waits", "%d proxies wait"),
				elapsed.Round(time.Second))
		}
	}
	return c
}

// minSpace is the recommended free space for the agent's files, in bytes.
const minSpace = 64 << 20

// spaceCheck warns before a directory of the agent is full, and reports the full file systems of
// access logs. It names each file system once, unless another check has named it, and adds it to
// named. also are the effects of full file systems.
func (a *Agent) spaceCheck(full map[string]int, also map[string]string, named map[string]bool) api.Check {
	c := api.Check{Name: "space", OK: true, Reason: "enough free space for state and logs"}
	cfg := a.cfg.Load()
	var reasons []string
	add := func(path, mount, reason string) {
		named[mount] = true
		c.Degraded, c.Command = true, cmp.Or(c.Command, "df -h "+path)
		reasons = append(reasons, reason)
	}
	for _, d := range []struct{ key, path string }{{"paths.state", cfg.Paths.State}, {"paths.logs", cfg.Paths.Logs}} {
		free, err := freeSpace(d.path)
		mount := a.logs.MountPoint(d.path)
		if err != nil || free >= minSpace || named[mount] { // other checks report a missing directory
			continue
		}
		add(d.path, mount, fmt.Sprintf("%s has %d MiB left, less than %d: writes to %s fail soon; free space",
			d.path, free>>20, minSpace>>20, d.key)+also[mount])
	}
	for _, mount := range slices.Sorted(maps.Keys(full)) {
		if !named[mount] {
			add(mount, mount, "the file system "+mount+" is full; free space"+also[mount])
		}
	}
	if c.Degraded {
		c.Reason = strings.Join(reasons, "; ")
	}
	return c
}

// freeSpace returns the bytes that unprivileged users may still write to a file system.
func freeSpace(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}
