package text

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// fileFaults counts the faults and conflicts of resource files.
func fileFaults(s *api.Status) (n int) {
	for _, f := range s.Files {
		n += len(f.Faults) + len(f.Conflicts)
	}
	return n
}

// HasErrors reports whether the status has more than warnings.
func HasErrors(s *api.Status) bool {
	return fileFaults(s)+len(s.Store.Damaged) > 0 || s.Store.Error != "" ||
		slices.ContainsFunc(s.Checks, func(c api.Check) bool { return !c.OK || c.Error }) ||
		slices.ContainsFunc(s.Problems, func(p api.Problem) bool { return p.Severity == api.SeverityError })
}

func Status(w io.Writer, s *api.Status) {
	state := "ready"
	if !s.Ready {
		state = "NOT READY"
	}
	Printf(w, "%s %s on %s (zone %s), pid %d, up %s: %s\n", s.Info.Product, s.Info.Version, s.Info.Node, s.Info.Zone,
		s.Info.PID, Age(s.Info.Started), state)
	for _, c := range s.Checks {
		mark := "ok  "
		switch {
		case !c.OK || c.Error:
			mark = "FAIL"
		case c.Degraded:
			mark = "WARN"
		}
		Printf(w, "  %s %s: %s\n", mark, c.Name, c.Reason)
	}
	total := 0
	for _, n := range s.Store.Resources {
		total += n
	}
	Printf(w, "resources  %d at revision %d (%s)\n", total, s.Store.Revision, Counts(s.Store.Sources))
	if len(s.Store.Inert) > 0 {
		Printf(w, "  stored, but this version ignores them: %s\n", Counts(s.Store.Inert))
	}
	if s.Store.Error != "" {
		Printf(w, "  FAIL state on disk: %s\n", s.Store.Error)
	}
	if s.Store.SetAside != "" {
		Printf(w, "  a damaged state file was set aside as %s\n", s.Store.SetAside)
	}
	for _, d := range s.Store.Damaged {
		Printf(w, "  FAIL damaged since %s, not in force: %s: %s\n", d.Since.Format(time.RFC3339),
			strings.Join(slices.DeleteFunc([]string{d.Type, d.Mesh, d.Name}, func(s string) bool { return s == "" }), "/"),
			d.Reason)
	}
	if r := s.Reconcile; r != nil {
		Printf(w, "configs    computed %s ago from revision %d in %.1f ms\n", Age(r.At), r.Revision, r.Seconds*1000)
	} else {
		Println(w, "configs    none yet")
	}
	Printf(w, "proxies    %s\n", Counts(s.Proxies))
	if r := s.Refused; r.Total > 0 {
		Printf(w, "refused    %s, the latest %s ago: %s\n", plural.Count(int(r.Total), "stream"), Age(r.At), r.Reason)
	}
	if list := s.RefusedConnections; len(list) > 0 {
		first := Each(list[:min(len(list), 5)], func(p api.ProxyRefusals) string {
			return fmt.Sprintf("%d by %s/%s", p.Count, p.Mesh, p.Name)
		})
		if more := len(list) - len(first); more > 0 {
			first = append(first, "and more by "+plural.Count(more, "other"))
		}
		Printf(w, "outside    refused connections: %s; see nearside passthrough suggest\n",
			strings.Join(first, ", "))
	}
	for _, holder := range slices.Sorted(maps.Keys(s.Holders)) {
		n := s.Holders[holder]
		if holder == "" {
			Printf(w,
				"FIFOs      %d of access logs, open only in the agent: lines that Envoys log while it is down are lost\n", n)
			continue
		}
		Printf(w, "FIFOs      %d of access logs, held by %s while the agent is down\n", n, holder)
	}
	if l := s.LogLines; l != nil {
		dropped, line := uint64(0), ""
		for _, n := range l.Dropped {
			dropped += n
		}
		if dropped > 0 {
			line = " (" + Counts(l.Dropped) + ")"
		}
		Printf(w, "log lines  %d read, %d written, %d in flight, %d spooled, %d dropped%s\n",
			l.Read, l.Written, l.InFlight, l.Spooled, dropped, line)
	}
	if d := s.DNS; d != nil {
		switch {
		case d.State == api.DNSOff:
			Printf(w, "dns        off: %s\n", d.Reason)
		case d.Reason != "":
			Printf(w, "dns        %s on %s: %s\n", d.State, strings.Join(d.Listen, ", "), d.Reason)
		default:
			Printf(w, "dns        %s on %s, queries: %s\n", plural.Count(d.Names, "name"), strings.Join(d.Listen, ", "),
				Counts(d.Queries))
		}
		if d.State != api.DNSOff {
			Printf(w, "  sockets held by %s while the agent is down\n", cmp.Or(d.Holder, "nothing"))
		}
	}
	Printf(w, "files      %d\n", len(s.Files))
	for _, f := range s.Files {
		if f.Missing != "" {
			Printf(w, "  WARN %s: %s, %s\n", f.Path, f.Missing, KeptUntil(f.KeptUntil))
		}
		if f.Exposed != "" {
			fmt.Fprintf(w, "  WARN %s %s\n", f.Path, f.Exposed)
		}
		for _, x := range f.Faults {
			Printf(w, "  FAIL %s\n", x)
		}
		for _, k := range slices.Sorted(maps.Keys(f.Conflicts)) {
			Printf(w, "  FAIL %s: %s is managed by %s\n", f.Path, k, f.Conflicts[k])
		}
	}
	const most = 10
	all, where := len(s.Problems), ""
	if n := fileFaults(s) + len(s.Store.Damaged); n > 0 {
		all, where = all+n, fmt.Sprintf(" (%d above)", n)
	}
	Printf(w, "problems   %d%s\n", all, where)
	for i, p := range s.Problems {
		if i == most {
			Printf(w, "  … and %d more, in nearside status -o yaml\n", len(s.Problems)-most)
			break
		}
		Printf(w, "  %s %s: %s\n", p.Severity, p.Resource, p.Reason)
	}
	if s.Unchecked > 0 {
		Printf(w, "  %s: run the command again\n", Unchecked(s))
	}
}

// KeptUntil says how long the agent retains the resources of a missing file.
func KeptUntil(t time.Time) string {
	if t.IsZero() {
		return "its resources are retained until the directory can be read"
	}
	return "its resources are retained until " + t.Local().Format("15:04:05.000")
}

// Unchecked says how many proxies the problems do not cover.
func Unchecked(s *api.Status) string {
	return plural.Count(s.Unchecked, "disconnected proxy") + " not checked yet"
}

// Whoami writes the identity of the caller.
func Whoami(w io.Writer, x *api.Whoami) {
	roles := strings.Join(x.Roles, ",")
	if x.Operator {
		roles = cmp.Or(roles, "operator")
	}
	t := NewTable(w, "WHO", "ROLES", "VERBS", "BY")
	t.Row(x.Who, roles, strings.Join(x.Verbs, ","), x.How)
	t.Flush()
}

func Can(w io.Writer, c *api.Can) {
	switch {
	case c.Allowed && c.Partial:
		Println(w, "yes, for some of them")
	case c.Allowed:
		Println(w, "yes")
	case c.Partial:
		Printf(w, "no, only for some of them: %s\n", c.Reason)
	default:
		Printf(w, "no: %s\n", c.Reason)
	}
}

func Access(w, notes io.Writer, l *api.AccessList) {
	t := NewTable(w, "ROLE", "SUBJECTS", "VERBS", "KINDS", "MESHES", "NAMES", "FEATURES")
	for _, r := range l.Roles {
		who := strings.Join(Texts(r.Subjects), "; ")
		for _, p := range r.Allow {
			kinds := p.Kinds
			for _, verb := range [...]string{access.VerbInspect, access.VerbUpdate} {
				if p.Covers(access.Action{Verb: verb, Kind: access.KindAgent}) && !slices.Contains(kinds, access.KindAgent) {
					kinds = append(slices.Clone(kinds), access.KindAgent)
				}
			}
			t.Row(r.Name, who, strings.Join(p.Verbs, ","), strings.Join(kinds, ","), allOr(p.Meshes), allOr(p.Names),
				cmp.Or(strings.Join(p.Granted().Names(), ","), "-"))
			who = ""
		}
	}
	if len(l.Roles) > 0 {
		t.Flush()
	}
	if !l.Configured {
		Println(w,
			"no api.roles: users who can open the socket may read; root, the agent's user, and the socket's group may write")
	}
	for _, m := range l.Missing {
		Printf(notes, "warning: %s\n", m)
	}
	Println(w)
	if !l.ProxiesConfigured {
		Println(w,
			"no xds.access: root and the agent's user may be any proxy; the socket's group may be proxies with a stored "+
				"Dataplane that is pinned to them, or with any stored one if xds.unpinned is allow")
		return
	}
	t = NewTable(w, "PEER", "NODES", "BRING", "SERVICES", "TAGS")
	for _, p := range l.Proxies {
		who := p.Matcher.String()
		if p.Certificate != "" {
			who = strings.TrimPrefix(who+", certificate "+p.Certificate, ", ")
		}
		t.Row(who, strings.Join(p.Nodes, ","), fmt.Sprint(p.Bring), strings.Join(p.Services, ","), strings.Join(p.Tags, ","))
	}
	t.Flush()
}

// allOr returns a list of patterns; an empty list means all.
func allOr(list []string) string { return cmp.Or(strings.Join(list, ","), "*") }

// Members writes the nodes of a gossip pool. wide adds their keys, and why nodes are refused.
func Members(w io.Writer, x *api.Members, wide bool) {
	headers := []string{"NAME", "STATE", "SINCE", "ZONE", "VERSION", "ADDRESS", "REVISION", "IN-SYNC", "FILES", "CLOCK"}
	if wide {
		headers = append(headers, "KEY", "REASON")
	}
	seconds := func(n float64, unit time.Duration) string {
		return time.Duration(n * float64(time.Second)).Round(unit).String()
	}
	Rows(w, x.Items, func(m api.Member) []string {
		name, state, sync := m.Name, m.State, "no"
		if m.Self {
			name += " (this node)"
		}
		if m.AgentLost {
			state += " (its dataplanes respond)"
		}
		if m.Incompatible {
			state += " (incompatible)"
		}
		if m.PacketsLost {
			state += " (UDP blocked)"
		}
		switch {
		case m.InSync:
			sync = "yes"
		case m.Lag >= 1:
			sync = "no, for " + seconds(m.Lag, time.Second)
		}
		files := ""
		switch {
		case m.Files == nil:
		case m.Files.Total == 0:
			files = "same"
		default:
			files = plural.Form(m.Files.Total, "1 differs", "%d differ")
		}
		cells := []string{name, state, Age(m.Since), m.Zone, m.Version, m.Address, m.Revision, sync, files,
			seconds(m.Ahead, time.Millisecond)}
		if wide {
			key := ""
			if m.Signed {
				key = m.ID
			}
			cells = append(cells, key, m.Reason)
		}
		return cells
	}, headers...)
}

// Conflicts writes resource versions that lost to a concurrent write.
func Conflicts(w io.Writer, x *api.Conflicts) {
	headers := []string{"ID", "RESOURCE", "STATE", "WRITTEN", "ON", "WHAT"}
	if x.Nodes > 0 {
		headers = append(headers, "FOUND-ON")
	}
	Rows(w, x.Items, func(c api.ConflictItem) []string {
		what := "changed"
		if c.Deleted {
			what = "deleted"
		}
		cells := []string{c.ID, TypeAndName(c.Type, c.Name) + InMesh(c.Mesh), c.State, c.Written.Format(time.RFC3339), c.Node,
			what}
		if x.Nodes > 0 {
			cells = append(cells, Some(c.FoundOn))
		}
		return cells
	}, headers...)
}

// JoinedList writes which members responded.
func JoinedList(w io.Writer, x *api.JoinedList) {
	for _, m := range x.Items {
		Println(w, m.Address+map[bool]string{true: ": joined", false: ": no answer"}[m.Reached])
	}
}
