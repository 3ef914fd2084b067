package text

import (
	"io"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/base/plural"
)

// RefusalsProposal prints the proposed policy. What the proposal omits goes to notes.
func RefusalsProposal(w, notes io.Writer, p *traffic.PassthroughProposal) {
	Printf(w, "%s", Layout(p.Policy))
	if p.Policy == "" {
		Printf(notes, "nothing to propose; refused connections in the log: %d\n", p.Refused)
	}
	for i := range p.Allowed {
		Printf(notes, "allowed by now: %s\n", p.Allowed[i].String())
	}
	for i := range p.Left {
		Printf(notes, "not proposed: %s: %s\n", p.Left[i].String(), p.Left[i].Reason)
	}
	for _, n := range []struct {
		count  int
		format string
	}{
		{p.More, "destinations that were refused less often and are not looked at: %d; raise --limit\n"},
		{p.Long, "warning: lines that are too long and were left out: %d\n"},
		{p.Forgotten, "warning: connections to rare destinations that were not counted, since there are too many: %d\n"},
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
			Printf(notes, "nothing to propose; lines that were read: %d, of traffic to services of the mesh: %d\n",
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
				why += ", or another one of that name"
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
			Printf(notes, "called and not reachable today: %s, %s: %s\n",
				e.Destination.String(), plural.Count(e.Lines, "line"), e.Reason)
		} else if e.Why == traffic.WhyDenied {
			Printf(notes, "called and not permitted: %s, %s; a MeshTrafficPermission has to allow it\n",
				e.Destination.String(), plural.Count(e.Lines, "line"))
		}
	}
	for _, d := range p.Direct {
		Printf(notes, "called by the address of an instance, past the mesh: %s, %s, of %s; call the service by "+
			"its name\n", d.Address, plural.Count(d.Lines, "line"), strings.Join(Texts(d.Backends), ", "))
	}
	for _, u := range p.Unknown {
		Printf(notes, "no service of the mesh: %s, %s\n", u.Name, plural.Count(u.Lines, "line"))
	}
	for _, n := range []struct {
		count int
		what  string
	}{
		{p.Lines.Foreign, "of no format of the proxy"},
		{p.Lines.Ambiguous, "that may be about several services"},
		{p.Lines.NoTime, "without a time"},
		{p.Lines.Long, "that are too long"},
		{p.Lines.More, "about more names and addresses than are remembered"},
	} {
		if n.count > 0 {
			Printf(notes, "lines left out, %s: %d\n", n.what, n.count)
		}
	}
}
