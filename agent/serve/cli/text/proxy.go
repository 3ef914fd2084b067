package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Reach writes what a dataplane reaches for people: how many services for which reason, and
// those that were asked for one by one.
func Reach(w io.Writer, r *explain.Reachability, backend string) error {
	auto := "do not restrict that"
	if r.Auto {
		auto = "restrict that"
	}
	Printf(w, "REACHES %d of %d services; permissions %s: %s\n", r.Reachable, r.Total, auto, r.AutoBy)
	if len(r.Groups) > 0 {
		t := NewTable(w, "REACHABLE", "SERVICES", "REASON", "AS")
		for _, g := range r.Groups {
			as := Some(Texts(g.Examples))
			if more := g.Count - len(g.Examples); more > 0 {
				as = fmt.Sprintf("%s and %d more", as, more)
			}
			t.Row(yesNo(g.Reachable), fmt.Sprint(g.Count), g.Reason, as)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if r.MoreGroups > 0 {
		Printf(w, "and %d more reasons; --backend says it of one service\n", r.MoreGroups)
	}
	if backend == "" {
		return nil
	}
	if len(r.Items) == 0 {
		Printf(w, "\nthe mesh has no service %s\n", backend)
		return nil
	}
	Println(w)
	t := NewTable(w, "SERVICE", "REACHABLE", "REASON")
	for _, b := range r.Items {
		t.Row(b.String(), yesNo(b.Reachable), b.Reason)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.MoreItems > 0 {
		Printf(w, "and %d more\n", r.MoreItems)
	}
	return nil
}

// SavingCells are CLUSTERS and SAVED of a proxy.
func SavingCells(p *api.Proxy) []string {
	if p.Reach == nil {
		return []string{"", ""}
	}
	return []string{fmt.Sprintf("%d/%d", p.Reach.Clusters, p.Reach.Of), bytesText(p.Reach.Bytes)}
}

// WrittenAt names a policy and the field of it.
func WrittenAt(p api.FlowPolicy) string {
	return TypeAndName(p.Type, p.Name) + " " + p.Field
}

// Blame writes who shapes what a proxy rejects, one on each line.
func Blame(w io.Writer, indent string, blame []api.Blame) {
	for _, b := range blame {
		Printf(w, "%s%s", indent, blamed(b))
		if len(b.Paths) > 0 {
			Printf(w, ": %s", strings.Join(b.Paths, ", "))
		}
		Println(w)
	}
}

// blamed names a policy with its field and what speaks for it.
func blamed(b api.Blame) string {
	s := TypeAndName(b.Type, b.Name)
	if b.Field != "" {
		s += " " + b.Field
	}
	switch b.Evidence {
	case api.BlameAlone:
		s += " (without it, this would be as it was accepted last)"
	case api.BlameChanged:
		s += " (changed since this was accepted last)"
	case api.BlameShapes:
		s += " (it shapes this; nothing more speaks for it)"
	case api.BlameHost:
		s += " (it shapes this, and is not the cause: the reason lies on the host of the Envoy)"
	}
	return s
}
