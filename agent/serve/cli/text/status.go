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

// HasErrors reports whether the status has more than warnings.
func HasErrors(s *api.Status) bool {
	return slices.ContainsFunc(s.Problems, func(p api.Problem) bool { return p.Severity == api.SeverityError })
}

// Problem returns the subject of a problem, if it is a resource, and the reason.
func Problem(p *api.Problem) string {
	if p.Resource == "" {
		return p.Reason
	}
	return p.Resource + ": " + p.Reason
}

func Status(w io.Writer, s *api.Status) {
	state := "ready"
	if !s.Ready {
		state = "NOT READY"
	}
	Printf(w, "%s %s on %s (zone %s), pid %d, up %s: %s\n", s.Info.Product, s.Info.Version, s.Info.Node, s.Info.Zone,
		s.Info.PID, Age(s.Info.Started), state)
	for _, c := range s.Checks {
		if c.OK && !c.Degraded {
			Printf(w, "  ok   %s: %s\n", c.Name, c.Reason)
		}
	}
	total := 0
	for _, n := range s.Store.Resources {
		total += n
	}
	unknown := slices.ContainsFunc(s.Checks, func(c api.Check) bool { return c.Name == "state" && !c.OK })
	if unknown {
		Println(w, "resources  unknown, because the state cannot be used")
	} else {
		Printf(w, "resources  %d at revision %d (%s)\n", total, s.Store.Revision, Counts(s.Store.Sources))
	}
	if s.Store.SetAside != "" {
		Printf(w, "  a damaged state file was set aside as %s\n", s.Store.SetAside)
	}
	if r := s.Reconcile; r != nil {
		Printf(w, "configs    computed %s ago from revision %d in %.1f ms\n", Age(r.At), r.Revision, r.Seconds*1000)
	} else {
		Println(w, "configs    none yet")
	}
	Printf(w, "proxies    %s\n", Counts(s.Proxies))
	statusOld(w, s.Old)
	if r := s.Refused; r.Total > 0 {
		Printf(w, "refused    %s, the latest %s ago: %s\n", plural.Count(int(r.Total), "stream"), Age(r.At), r.Reason)
	}
	const most = 5
	Refused(w, s.Refused.Streams[:min(len(s.Refused.Streams), most)], "  ")
	if more := len(s.Refused.Streams) - most; more > 0 {
		Printf(w, "  … and %s, in nearside status -o yaml\n", plural.Count(more, "more client"))
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
	if list := s.InspectionTimeouts; len(list) > 0 {
		first := Each(list[:min(len(list), 5)], func(p api.ProxyTimeouts) string {
			return fmt.Sprintf("%d at %s of %s/%s", p.Listeners[0].Count, p.Listeners[0].Listener, p.Mesh, p.Name)
		})
		if more := len(list) - len(first); more > 0 {
			first = append(first, "and more at "+plural.Count(more, "other"))
		}
		Printf(w, "inspection clients that sent too little in time: %s\n", strings.Join(first, ", "))
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
		logLosses(w, l)
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
			upstreams(w, d.Upstreams)
		}
	}
	Printf(w, "files      %d\n", len(s.Files))
	problems(w, s.Problems)
	if s.Unchecked > 0 {
		Printf(w, "  %s: run the command again\n", Unchecked(s))
	}
	if s.Unexamined > 0 {
		Printf(w, "  the effect of %s is not known yet: run the command again\n", plural.Count(s.Unexamined, "policy"))
	}
}

// logLosses writes the other losses of access logs, one per line.
func logLosses(w io.Writer, l *api.LogLines) {
	if l.SpoolOldest >= 1 {
		Printf(w, "  the oldest line in a spool has waited for %.0f s\n", l.SpoolOldest)
	}
	if l.Refused > 0 {
		Printf(w, "  refused %s of senders: the limit of a receiver was reached\n",
			plural.Count(int(l.Refused), "connection")) // #nosec G115 -- a count
	}
	if u := l.Unlogged; u != (api.ListenerTraffic{}) {
		Printf(w, "  in no log, because a destination was not ready: %s and %s\n",
			plural.Count(int(u.Connections), "connection"), plural.Count(int(u.Requests), "request")) // #nosec G115 -- counts
	}
}

// maxProblems limits the problems that the text of a status lists.
const maxProblems = 20

// problems writes the list of problems. A command follows the last of equal commands in a row.
func problems(w io.Writer, list []api.Problem) {
	Printf(w, "problems   %d\n", len(list))
	for i := range list {
		if i == maxProblems {
			Printf(w, "  … and %d more, in nearside status -o yaml\n", len(list)-maxProblems)
			break
		}
		p, mark := &list[i], "WARN"
		if p.Severity == api.SeverityError {
			mark = "FAIL"
		}
		Printf(w, "  %s %s: %s\n", mark, p.Check, Problem(p))
		if i+1 == len(list) || i+1 == maxProblems || list[i+1].Command != p.Command {
			Printf(w, "       run: %s\n", p.Command)
		}
	}
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
		if p.Pod != "" {
			who = "pod " + p.Pod
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
	living := map[string]int{}
	for i := range x.Items {
		if m := &x.Items[i]; m.Lives() {
			living[m.Name]++
		}
	}
	Rows(w, x.Items, func(m api.Member) []string {
		name, state, sync := m.Name, m.State, "no"
		if m.Lives() && living[m.Name] > 1 {
			state += " (another node has this name)"
		}
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
		cells := []string{c.ID, TypeAndName(c.Type, c.Name) + InMesh(c.Mesh), c.State, Time(c.Written), c.Node,
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
