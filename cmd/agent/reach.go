package main

import (
	"fmt"
	"io"

	"github.com/nearside-mesh/nearside/agent/client"
)

// reachText writes what a dataplane reaches for people: how many services for which reason, and those that were asked
// for one by one.
func reachText(w io.Writer, r *client.Reachability, backend string) error {
	auto := "do not restrict that"
	if r.Auto {
		auto = "restrict that"
	}
	fmt.Fprintf(w, "REACHES %d of %d services; permissions %s: %s\n", r.Reachable, r.Total, auto, r.AutoBy)
	if len(r.Groups) > 0 {
		t := newTable(w, "REACHABLE", "SERVICES", "REASON", "AS")
		for _, g := range r.Groups {
			names := make([]string, 0, len(g.Examples))
			for _, d := range g.Examples {
				names = append(names, d.String())
			}
			as := some(names)
			if more := g.Count - len(names); more > 0 {
				as = fmt.Sprintf("%s and %d more", some(names), more)
			}
			t.row(yesNo(g.Reachable), fmt.Sprint(g.Count), g.Reason, as)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if r.MoreGroups > 0 {
		fmt.Fprintf(w, "and %d more reasons; --backend says it of one service\n", r.MoreGroups)
	}
	if backend == "" {
		return nil
	}
	if len(r.Items) == 0 {
		fmt.Fprintf(w, "\nthe mesh has no service %s\n", backend)
		return nil
	}
	fmt.Fprintln(w)
	t := newTable(w, "SERVICE", "REACHABLE", "REASON")
	for _, b := range r.Items {
		t.row(b.String(), yesNo(b.Reachable), b.Reason)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if r.MoreItems > 0 {
		fmt.Fprintf(w, "and %d more\n", r.MoreItems)
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
