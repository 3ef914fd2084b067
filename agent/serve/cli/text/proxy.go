package text

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Reach writes for people what a dataplane reaches: the number of services per reason, and those of
// the question one by one.
func Reach(w io.Writer, r *explain.Reachability, backend string) {
	auto := "do not restrict reachability"
	if r.Auto {
		auto = "restrict reachability"
	}
	Printf(w, "REACHES %d of %s; permissions %s: %s\n", r.Reachable, plural.Count(r.Total, "service"), auto, r.AutoBy)
	if len(r.Groups) > 0 {
		t := NewTable(w, "REACHABLE", "SERVICES", "REASON", "EXAMPLES")
		for _, g := range r.Groups {
			examples := Some(Texts(g.Examples))
			if more := g.Count - len(g.Examples); more > 0 {
				examples = fmt.Sprintf("%s and %d more", examples, more)
			}
			t.Row(YesNo(g.Reachable), fmt.Sprint(g.Count), g.Reason, examples)
		}
		t.Flush()
	}
	if r.MoreGroups > 0 {
		Printf(w, "and %s; --backend explains one service\n", plural.Count(r.MoreGroups, "more reason"))
	}
	if backend == "" {
		return
	}
	if len(r.Items) == 0 {
		Printf(w, "\nthe mesh has no service %s\n", backend)
		return
	}
	Println(w)
	t := NewTable(w, "SERVICE", "REACHABLE", "REASON")
	for _, b := range r.Items {
		t.Row(b.String(), YesNo(b.Reachable), b.Reason)
	}
	t.Flush()
	if r.MoreItems > 0 {
		Printf(w, "and %d more\n", r.MoreItems)
	}
}

// SavingCells returns the cells of the columns CLUSTERS and SAVED.
func SavingCells(p *api.Proxy) []string {
	if p.Reach == nil {
		return []string{"", ""}
	}
	return []string{fmt.Sprintf("%d/%d", p.Reach.Clusters, p.Reach.Of), bytesText(p.Reach.Bytes)}
}

// WrittenAt returns a policy and its field.
func WrittenAt(p api.FlowPolicy) string {
	return TypeAndName(p.Type, p.Name) + " " + p.Field
}

// Blame writes the policies that shape a rejected resource, one per line.
func Blame(w io.Writer, indent string, blame []api.Blame) {
	for _, b := range blame {
		Printf(w, "%s%s", indent, blamed(b))
		if len(b.Paths) > 0 {
			Printf(w, ": %s", strings.Join(b.Paths, ", "))
		}
		Println(w)
	}
}

// blamed returns a policy with its field and the evidence against it.
func blamed(b api.Blame) string {
	s := TypeAndName(b.Type, b.Name)
	if b.Field != "" {
		s += " " + b.Field
	}
	switch b.Evidence {
	case api.BlameAlone:
		s += " (without it, the resource equals the last accepted version)"
	case api.BlameChanged:
		s += " (changed after the last accepted version)"
	case api.BlameShapes:
		s += " (shapes the resource; there is no further evidence)"
	case api.BlameHost:
		s += " (shapes the resource, but the cause is on the host of the Envoy)"
	}
	return s
}

// ProxyStatus writes the sync status of a proxy.
func ProxyStatus(w io.Writer, p *api.Proxy) {
	Printf(w, "%s/%s: %s", cmp.Or(p.Mesh, p.Type.Kind()), p.Name, p.State)
	if p.Reason != "" {
		Printf(w, ": %s", p.Reason)
	}
	Println(w)
	for _, x := range p.Problems {
		Printf(w, "%s: %s\n", x.Severity, x.Reason)
	}
	for _, c := range p.Clients {
		Printf(w, "\nnode %s: %s %s, %s, %s ago, %s\n", c.NodeID, c.UserAgent, c.Version, c.Peer,
			Age(c.ConnectedAt), plural.Count(c.Streams, "stream"))
		t := NewTable(w, "TYPE", "RESOURCES", "SENT", "ACKED", "LAST-UPDATED", "UPDATES", "REJECTED")
		reported, since := 0, time.Time{}
		for _, x := range c.Types {
			rejected := ""
			if x.NACK != nil {
				rejected = x.NACK.Version + ": " + x.NACK.Reason
			}
			updated := x.AckedAt
			if x.SentAt.After(updated) {
				updated = x.SentAt
			}
			if x.Reported > 0 && (since.IsZero() || x.ReportedAt.Before(since)) {
				since = x.ReportedAt
			}
			reported += x.Reported
			when := Age(updated)
			if x.Reported > 0 && x.Responses == 0 {
				when = "before " + when
			}
			t.Row(ShortType(x.TypeURL), fmt.Sprint(x.Resources), x.SentVersion, x.AckedVersion, when, fmt.Sprint(x.Responses),
				rejected)
		}
		t.Flush()
		if reported > 0 {
			Printf(w, "the client already had %s when its stream began %s ago; earlier updates are not counted\n",
				plural.Count(reported, "resource"), Age(since))
		}
		for _, x := range c.Types {
			for _, h := range x.Held {
				Printf(w, "withheld: %s: %s%s\n", h.Name, OneLine(h.Reason), Instead(h.Without))
				Blame(w, "  because of ", h.Policies)
			}
		}
	}
	if len(p.Refused) > 0 {
		Println(w)
		Refused(w, p.Refused, "")
	}
	if n := p.RefusedConnections; n != nil && *n > 0 {
		Printf(w, "\nrefused: %s to destinations outside the mesh since Envoy started; "+
			"see nearside passthrough suggest --dataplane %s\n", plural.Count(int(*n), "connection"), p.Name)
	}
	for _, l := range p.InspectionTimeouts {
		Printf(w, "\ninspection: %s of %s sent too little before the timeout since Envoy started\n",
			plural.Count(int(l.Count), "client"), l.Listener)
	}
	if n, r := p.LogWritesFailed, p.LogReopensFailed; n != nil && r != nil && *n+*r > 0 {
		Printf(w, "\nlost: Envoy failed to write access logs %d times and to reopen them %d times since it started; "+
			"each failure lost lines\n", *n, *r)
	}
	logAccounts(w, p)
	inForce(w, p.InForce)
}

// logAccounts writes the accounts of access logs.
func logAccounts(w io.Writer, p *api.Proxy) {
	for i := range p.AccessLogs {
		l := &p.AccessLogs[i]
		Printf(w, "\naccess log to %s, %s\n", l.Destination, plural.Count(l.Listeners, "listener"))
		if l.Traffic != nil && l.Logged != nil {
			Printf(w, "  Envoy: %s, %s, and %s of all its file loggers since it started\n",
				plural.Count(int(l.Traffic.Connections), "connection"), plural.Count(int(l.Traffic.Requests), "request"),
				plural.Count(int(*l.Logged), "write")) // #nosec G115 -- counts
		}
		dropped := ""
		if len(l.Dropped) > 0 {
			dropped = ", dropped: " + Counts(l.Dropped)
		}
		Printf(w, "  agent: %d read, %d passed on, %d in flight%s\n", l.In, l.Written, l.InFlight, dropped)
	}
	for _, g := range p.LogGaps {
		traffic := ""
		if g.Traffic != nil {
			traffic = fmt.Sprintf("; %s and %s are in no log", plural.Count(int(g.Traffic.Connections), "connection"),
				plural.Count(int(g.Traffic.Requests), "request")) // #nosec G115 -- counts
		}
		Printf(w, "\nno access log: %s since %s: %s%s\n", g.Listener, Time(g.Since), OneLine(g.Reason),
			traffic)
	}
}

// Refused writes the clients that are refused, one per line.
func Refused(w io.Writer, list []api.RefusedStream, indent string) {
	for i := range list {
		r := &list[i]
		who := r.User
		if r.Peer.PID > 0 {
			who += fmt.Sprintf(", pid %d", r.Peer.PID)
		}
		if r.Peer.Cgroup != "" {
			who += ", cgroup " + r.Peer.Cgroup
		}
		Printf(w, "%srefused %s: %s (%s), %s since %s, the last %s ago: %s\n", indent, cmp.Or(r.NodeID, "without a node id"),
			r.Cause, who, plural.Count(int(r.Count), "stream"), // #nosec G115 -- a count
			Time(r.Since), Age(r.Last), OneLine(r.Reason))
	}
}

// inForce writes the proxy-wide settings of policies: a line per kind, and a table of what it
// permits.
func inForce(w io.Writer, list []api.InForce) {
	for i := range list {
		f := &list[i]
		Printf(w, "\n%s: %s, by %s\n", f.Type, f.Mode, WrittenAt(f.Decides))
		if len(f.Permits) == 0 {
			continue
		}
		t := NewTable(w, "PROTOCOL", "VALUE", "PORT", "REACHES", "FAMILY", "CLUSTER", "LOG", "BY")
		for _, p := range f.Permits {
			port := "*"
			if p.Port != 0 {
				port = fmt.Sprint(p.Port)
			}
			family := "IPv6"
			switch {
			case p.IPv4 && p.IPv6:
				family = "both"
			case p.IPv4:
				family = "IPv4"
			}
			var logs []string
			for _, l := range p.AccessLogs {
				if !slices.Contains(logs, l.Sink) {
					logs = append(logs, l.Sink)
				}
			}
			by := Each(p.Policies, WrittenAt)
			t.Row(p.Protocol, p.Value, port, p.Reaches, family, p.Cluster, strings.Join(logs, ", "), strings.Join(by, ", "))
		}
		t.Flush()
	}
}

func Proxies(w io.Writer, ps []api.Proxy, wide bool) {
	headers := []string{"MESH", "NAME", "STATE", "CLIENT", "CONNECTED"}
	if wide {
		headers = append(headers, "NODE", "PEER", "RESOURCES", "CLUSTERS", "SAVED")
	}
	t := NewTable(w, append(headers, "REASON")...)
	for _, p := range ps {
		if len(p.Clients) == 0 {
			cells := append([]string{p.Mesh, p.Name, p.State}, make([]string, len(headers)-3)...)
			if wide {
				copy(cells[len(cells)-2:], SavingCells(&p))
			}
			t.Row(append(cells, p.Reason)...)
		}
		for _, c := range p.Clients {
			cells := []string{p.Mesh, p.Name, p.State, strings.TrimSpace(c.UserAgent + " " + c.Version), Age(c.ConnectedAt)}
			if wide {
				n := 0
				for _, t := range c.Types {
					n += t.Resources
				}
				cells = append(append(cells, c.NodeID, c.Peer.String(), fmt.Sprint(n)), SavingCells(&p)...)
			}
			t.Row(append(cells, p.Reason)...)
		}
	}
	t.Flush()
}

// Config writes the resources of a config.
func Config(w io.Writer, c *api.Config) {
	t := NewTable(w, "TYPE", "NAME", "BYTES")
	for _, typ := range slices.Sorted(maps.Keys(c.XDS)) {
		for _, n := range slices.Sorted(maps.Keys(c.XDS[typ])) {
			t.Row(ShortType(typ), n, fmt.Sprint(len(c.XDS[typ][n])))
		}
	}
	t.Flush()
}
