package text

import (
	"io"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/base/plural"
)

// RefusalsProposal prints the proposed policy. Notes about omitted connections go to notes.
func RefusalsProposal(w, notes io.Writer, p *traffic.PassthroughProposal) {
	Printf(w, "%s", Layout(p.Policy))
	if p.Policy == "" {
		Printf(notes, "nothing to propose; refused connections in the log: %d\n", p.Refused)
	}
	for i := range p.Allowed {
		Printf(notes, "already allowed: %s\n", p.Allowed[i].String())
	}
	for i := range p.Left {
		Printf(notes, "not proposed: %s: %s\n", p.Left[i].String(), p.Left[i].Reason)
	}
	for _, n := range []struct {
		count  int
		format string
	}{
		{p.More, "less frequent destinations that were not examined: %d; raise --limit\n"},
		{p.Long, "warning: skipped lines that are too long: %d\n"},
		{p.Forgotten, "warning: connections to rare destinations that were not counted, because there are too many: %d\n"},
	} {
		if n.count > 0 {
			Printf(notes, n.format, n.count)
		}
	}
}

// ReachableProposal prints the proposed fragment to w and the table to notes, or only the table to
// w.
func ReachableProposal(w, notes io.Writer, p *traffic.ReachableProposal, table bool) {
	out := notes
	if table {
		out = w
	} else {
		Printf(w, "%s", Layout(p.Fragment))
		if p.Fragment == "" {
			Printf(notes, "nothing to propose; lines read: %d, with traffic to services of the mesh: %d\n",
				p.Lines.Read, p.Lines.Used)
		}
	}
	if len(p.Backends) > 0 {
		const most = 50
		t := NewTable(out, "BACKEND", "LINES", "LAST", "PERMISSION", "REACHABLE", "PROPOSED", "WHY")
		yes := map[bool]string{true: "yes", false: "no"}
		for i := range p.Backends {
			e := &p.Backends[i]
			if i >= most && !table {
				break
			}
			why := e.Why
			if e.Shared > 0 {
				why += ", or another service with that name"
			}
			if e.Unlisted {
				why += "; " + e.Reason
			}
			t.Row(e.Destination.String(), strconv.Itoa(e.Lines), e.Last, e.Permission, yes[e.Reachable], yes[e.Proposed], why)
		}
		t.Flush()
		if n := len(p.Backends) - most; n > 0 && !table {
			Printf(out, "and %d more; -o table has all\n", n)
		}
	}
	reachableNotes(notes, p)
}

// reachableNotes prints other observations from the logs.
func reachableNotes(notes io.Writer, p *traffic.ReachableProposal) {
	for i := range p.Backends {
		if e := &p.Backends[i]; e.Unlisted {
			Printf(notes, "called but not reachable: %s, %s: %s\n",
				e.Destination.String(), plural.Count(e.Lines, "line"), e.Reason)
		} else if e.Why == traffic.WhyDenied {
			Printf(notes, "called but not permitted: %s, %s; allow it with a MeshTrafficPermission\n",
				e.Destination.String(), plural.Count(e.Lines, "line"))
		}
	}
	for _, d := range p.Direct {
		Printf(notes, "called by instance address, bypassing the mesh: %s, %s, of %s; call the service by "+
			"its name\n", d.Address, plural.Count(d.Lines, "line"), strings.Join(Texts(d.Backends), ", "))
	}
	for _, u := range p.Unknown {
		Printf(notes, "not a service of the mesh: %s, %s\n", u.Name, plural.Count(u.Lines, "line"))
	}
	for _, n := range []struct {
		count int
		what  string
	}{
		{p.Lines.Foreign, "not in a format of the proxy"},
		{p.Lines.Ambiguous, "ambiguous between several services"},
		{p.Lines.NoTime, "without a time"},
		{p.Lines.Long, "too long"},
		{p.Lines.More, "beyond the limit of names and addresses"},
	} {
		if n.count > 0 {
			Printf(notes, "skipped lines, %s: %d\n", n.what, n.count)
		}
	}
}
