package account

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Problems returns the losses of lines: listeners without a logger, lines dropped and senders
// refused within the last hour, spools with old lines, collectors that accept no lines, and
// directories that were replaced within the last hour.
func (a *Account) Problems() []api.Problem {
	a.observe()
	return slices.Concat(a.gapProblems(), a.dropProblems(), a.waitProblems(), a.senderProblems(),
		a.directoryProblems())
}

// gapProblems returns one problem for each proxy with listeners without a logger.
func (a *Account) gapProblems() (out []api.Problem) {
	all := a.Gaps()
	for len(all) > 0 {
		first := all[0]
		n := 1
		for n < len(all) && all[n].Mesh == first.Mesh && all[n].Dataplane == first.Dataplane {
			n++
		}
		var sum *api.ListenerTraffic
		since := first.Since
		for _, g := range all[:n] {
			if g.Since.Before(since) {
				since = g.Since
			}
			if g.Traffic != nil {
				sum = cmp.Or(sum, &api.ListenerTraffic{})
				sum.Connections += g.Traffic.Connections
				sum.Requests += g.Traffic.Requests
			}
		}
		all = all[n:]
		traffic := "its Envoy does not report the traffic"
		if sum != nil {
			traffic = fmt.Sprintf("%s and %s since then are in no log", count(sum.Connections, "connection"),
				count(sum.Requests, "request"))
		}
		names := plural.Form(n, "listener "+first.Listener+" has", "%d listeners have")
		out = append(out, api.Problem{Resource: "Dataplane/" + first.Mesh + "/" + first.Dataplane,
			Severity: api.SeverityError, Check: api.ClassLogGap,
			Command: "nearside inspect dataplane " + first.Dataplane + " -m " + first.Mesh + " --type=status",
			Reason: fmt.Sprintf("%s had no access log since %s: %s; %s", names, since.UTC().Format(time.RFC3339),
				first.Reason, traffic)})
	}
	return out
}

// count returns a number with its noun.
func count(n uint64, noun string) string { return plural.Count(int(n), noun) } // #nosec G115 -- a count

// remedies are the remedies for lost lines by cause, and the meanings of the causes.
var remedies = map[string]string{
	"spool-full": "the spool is full: check the collector, or raise accessLog.spool.maxSize",
	"spool-age":  "the lines exceeded accessLog.spool.maxAge: check the collector",
	"spool-bad":  "segments of the spool are damaged: check the disk",
	"disk-full":  "the file or spool cannot be written: free space there, or fix the directory",
	"rejected":   "the collector rejects lines: check its log",
	"stopped":    "they were not delivered before the agent stopped: check the destination",
	"removed":    "the destination was removed before they were delivered",
}

// dropProblems returns one problem for each cause and destination. Destinations on one full file
// system are one problem.
func (a *Account) dropProblems() (out []api.Problem) {
	type group struct {
		lines        uint64
		last         time.Time
		destinations map[string]bool
		command      string
	}
	groups := map[[2]string]*group{} // by cause, and destination or file system
	full := a.fullOf()
	a.mu.Lock()
	now := a.o.Now()
	for _, o := range a.streams {
		for cause, last := range o.lost {
			if now.Sub(last) > lossFor {
				continue
			}
			k := [2]string{cause, o.Destination}
			if mount := full[o.Destination]; mount != "" && cause == "disk-full" {
				k[1] = "the file system " + mount
			}
			g := groups[k]
			if g == nil {
				g = &group{destinations: map[string]bool{}}
				groups[k] = g
			}
			g.lines += o.Dropped[cause]
			g.destinations[o.Destination] = true
			if last.After(g.last) {
				g.last = last
			}
			if path, ok := strings.CutPrefix(o.Destination, "file "); ok && cause == "disk-full" {
				g.command = "df -h " + filepath.Dir(path)
			}
		}
	}
	a.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(groups), func(a, b [2]string) int {
		return cmp.Or(strings.Compare(a[1], b[1]), strings.Compare(a[0], b[0]))
	}) {
		g := groups[k]
		where := k[1]
		if len(g.destinations) > 1 {
			where = fmt.Sprintf("%s on %s", plural.Count(len(g.destinations), "destination"), where)
		}
		out = append(out, api.Problem{Severity: api.SeverityError, Check: api.ClassLogDropped, Command: g.command,
			Reason: fmt.Sprintf("%s for %s dropped (%s), the last one at %s: %s", count(g.lines, "line"), where, k[0],
				g.last.UTC().Format(time.RFC3339), remedies[k[0]])})
	}
	return out
}

// fullOf returns the mount points of full file systems by destination.
func (a *Account) fullOf() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]string{}
	for _, o := range a.streams {
		if o.Full != "" {
			out[o.Destination] = o.Full
		}
	}
	return out
}

// waitProblems returns the destinations with old lines in their spools, and the collectors that
// accept no lines without an error.
func (a *Account) waitProblems() (out []api.Problem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Now()
	type sum struct {
		lines     uint64
		age, idle time.Duration
	}
	of := map[string]*sum{}
	for _, o := range a.streams {
		s := of[o.Destination]
		if s == nil {
			s = &sum{}
			of[o.Destination] = s
		}
		if o.Kind != api.LogFIFO && o.Kind != api.LogReceiver {
			s.lines += o.Spooled + o.InFlight
		}
		s.age = max(s.age, time.Duration(o.SpoolOldest*float64(time.Second)))
		if o.collector() && o.Health == "" && o.Spooled+o.InFlight > 0 {
			s.idle = max(s.idle, now.Sub(o.progress))
		}
	}
	for _, destination := range slices.Sorted(maps.Keys(of)) {
		s := of[destination]
		if s.age > spoolOld {
			out = append(out, api.Problem{Severity: api.SeverityWarning, Check: api.ClassLogSpool,
				Reason: fmt.Sprintf("%s for %s in a spool, the oldest for %s: check the destination",
					plural.Form(int(s.lines), "1 line waits", "%d lines wait"), // #nosec G115 -- a count
					destination, s.age.Round(time.Second))})
		}
		if s.idle >= stalledAfter {
			out = append(out, api.Problem{Severity: api.SeverityWarning, Check: api.ClassLogCollector,
				Reason: fmt.Sprintf("the collector %s has acknowledged no line for %s while %s: it accepts connections, "+
					"but may not read; check the collector", destination, s.idle.Round(time.Second),
					plural.Form(int(s.lines), "1 line waits", "%d lines wait"))}) // #nosec G115 -- a count
		}
	}
	return out
}

// senderProblems returns the receivers that have refused senders.
func (a *Account) senderProblems() (out []api.Problem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range slices.SortedFunc(maps.Values(a.streams), func(a, b *observed) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		if !o.refused.IsZero() && a.o.Now().Sub(o.refused) <= lossFor {
			out = append(out, api.Problem{Severity: api.SeverityWarning, Check: api.ClassLogSenders,
				Reason: fmt.Sprintf("receiver %s has refused %s, the last at %s, because its limit of open connections was "+
					"reached: raise maxConnections of the receiver, or let senders share connections", o.Name,
					count(o.Refused, "connection"), o.refused.UTC().Format(time.RFC3339))})
		}
	}
	return out
}

// directoryProblems returns the directories that were removed, replaced, or made unsafe.
func (a *Account) directoryProblems() (out []api.Problem) {
	type change struct {
		times uint64
		last  time.Time
	}
	found := map[string]change{} // by directory
	a.mu.Lock()
	for _, o := range a.streams {
		if o.moved.IsZero() || a.o.Now().Sub(o.moved) > lossFor {
			continue
		}
		name := "the spool of " + o.Destination
		if o.Kind == api.LogFIFO || o.Kind == api.LogFile {
			name = filepath.Dir(o.Name)
		}
		c := found[name]
		c.times = max(c.times, o.DirectoryChanges)
		if o.moved.After(c.last) {
			c.last = o.moved
		}
		found[name] = c
	}
	a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(found)) {
		c := found[name]
		out = append(out, api.Problem{Severity: api.SeverityWarning, Check: api.ClassLogDirectory,
			Reason: fmt.Sprintf("%s was removed, replaced, or made unsafe %s, the last time at %s, and was opened again: "+
				"earlier lines are where the files are now; find out who did it", name, count(c.times, "time"),
				c.last.UTC().Format(time.RFC3339))})
	}
	return out
}
