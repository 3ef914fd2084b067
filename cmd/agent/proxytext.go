package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// reachText writes what a dataplane reaches for people: how many services for which reason, and
// those that were asked for one by one.
func reachText(w io.Writer, r *client.Reachability, backend string) error {
	auto := "do not restrict that"
	if r.Auto {
		auto = "restrict that"
	}
	printf(w, "REACHES %d of %d services; permissions %s: %s\n", r.Reachable, r.Total, auto, r.AutoBy)
	if len(r.Groups) > 0 {
		t := newTable(w, "REACHABLE", "SERVICES", "REASON", "AS")
		for _, g := range r.Groups {
			as := some(texts(g.Examples))
			if more := g.Count - len(g.Examples); more > 0 {
				as = fmt.Sprintf("%s and %d more", as, more)
			}
			t.row(yesNo(g.Reachable), fmt.Sprint(g.Count), g.Reason, as)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if r.MoreGroups > 0 {
		printf(w, "and %d more reasons; --backend says it of one service\n", r.MoreGroups)
	}
	if backend == "" {
		return nil
	}
	if len(r.Items) == 0 {
		printf(w, "\nthe mesh has no service %s\n", backend)
		return nil
	}
	printLine(w)
	t := newTable(w, "SERVICE", "REACHABLE", "REASON")
	for _, b := range r.Items {
		t.row(b.String(), yesNo(b.Reachable), b.Reason)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.MoreItems > 0 {
		printf(w, "and %d more\n", r.MoreItems)
	}
	return nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// savingCells are CLUSTERS and SAVED of a proxy.
func savingCells(p *client.Proxy) []string {
	if p.Reach == nil {
		return []string{"", ""}
	}
	return []string{fmt.Sprintf("%d/%d", p.Reach.Clusters, p.Reach.Of), bytesText(p.Reach.Bytes)}
}

// bytesText is a number of bytes in the largest unit that keeps it above 1.
func bytesText(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// inForce writes what policies let a proxy do as a whole: a line for each kind, and a table where
// it permits one by one.
func (a *app) inForce(list []client.InForce) error {
	for i := range list {
		f := &list[i]
		printf(a.stdout, "\n%s: %s, by %s\n", f.Type, f.Mode, writtenAt(f.Decides))
		if len(f.Permits) == 0 {
			continue
		}
		t := newTable(a.stdout, "PROTOCOL", "VALUE", "PORT", "REACHES", "FAMILY", "CLUSTER", "LOG", "BY")
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
			by := each(p.Policies, writtenAt)
			t.row(p.Protocol, p.Value, port, p.Reaches, family, p.Cluster, strings.Join(logs, ", "), strings.Join(by, ", "))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// writtenAt names a policy and the field of it.
func writtenAt(p client.FlowPolicy) string {
	return typeAndName(p.Type, p.Name) + " " + p.Field
}

// printBlame writes who shapes what a proxy rejects, one on each line.
func printBlame(w io.Writer, indent string, blame []client.Blame) {
	for _, b := range blame {
		printf(w, "%s%s", indent, blamed(b))
		if len(b.Paths) > 0 {
			printf(w, ": %s", strings.Join(b.Paths, ", "))
		}
		printLine(w)
	}
}

// blamed names a policy with its field and what speaks for it.
func blamed(b client.Blame) string {
	s := typeAndName(b.Type, b.Name)
	if b.Field != "" {
		s += " " + b.Field
	}
	switch b.Evidence {
	case client.BlameAlone:
		s += " (without it, this would be as it was accepted last)"
	case client.BlameChanged:
		s += " (changed since this was accepted last)"
	case client.BlameShapes:
		s += " (it shapes this; nothing more speaks for it)"
	case client.BlameHost:
		s += " (it shapes this, and is not the cause: the reason lies on the host of the Envoy)"
	}
	return s
}

// oneLine takes line breaks out of the message of a proxy.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
