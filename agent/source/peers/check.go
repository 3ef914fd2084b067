package peers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Checks reports the state of the pool. No check makes the node unready.
func (s *Source) Checks() []api.Check {
	return []api.Check{s.peersCheck(), s.stateCheck(), s.trustCheck(), s.filesCheck()}
}

// maxNamed limits the nodes and resources that one check names.
const maxNamed = 5

// named returns the first names and the number of the others.
func named(list []string) string {
	if len(list) <= maxNamed {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNamed], ", "), len(list)-maxNamed)
}

// differsTooLong is how long the resources of two nodes may differ before it is an error.
const differsTooLong = 30 * time.Second

// stateCheck reports resources that differ between this node and other live nodes, and versions
// that this node does not apply.
func (s *Source) stateCheck() api.Check {
	out := api.Check{Name: "pool-state", OK: true}
	others := s.others()
	problems, apart := s.refused()
	list, _ := differing(others, s.o.Now(), s.nameOf)
	if out.Error = len(list) > 0 || apart; len(list) > 0 {
		text := "the resources of the pool differ from " + strings.Join(list[:min(len(list), maxNamed)], "; and from ")
		if more := len(list) - maxNamed; more > 0 {
			text += "; and from those of " + plural.Count(more, "other node")
		}
		problems = append([]string{text}, problems...)
	}
	if out.Degraded = len(problems) > 0; out.Degraded {
		out.Reason = strings.Join(problems, "; ")
		return out
	}
	out.Reason = plural.Form(len(others), "1 other live node has the resources of this node",
		"%d other live nodes have the resources of this node")
	return out
}

// differing names the members that have differed from this node for longer than differsTooLong,
// with the entries and the reasons, and returns the longest time.
func differing(members []gossip.Member, now time.Time, name func(engine.NodeID) string) (list []string,
	longest time.Duration) {
	for _, m := range members {
		age := now.Sub(m.Differs)
		if m.Differs.IsZero() || age <= differsTooLong {
			continue
		}
		longest = max(longest, age)
		text := fmt.Sprintf("those of node %s, for %s", m.Name, age.Round(time.Second))
		var entries []string
		for _, d := range m.Differences {
			entry := d.String()
			switch {
			case d.Key != engine.Key{}:
				entry = resource.Key(d.Key).String()
			case d.Node != engine.NodeID{}:
				entry = "items of " + cmp.Or(name(d.Node), d.Node.String())
			}
			entries = append(entries, fmt.Sprintf("%s (%s)", entry, d.Reason))
		}
		if len(entries) > 0 {
			text += ": " + named(entries)
		}
		list = append(list, text)
	}
	return list, longest
}

// nameOf returns the name that the owner of items publishes, or "".
func (s *Source) nameOf(id engine.NodeID) string {
	if o, ok := s.node.OwnedBy(id); ok {
		return o.Name
	}
	d, _ := s.node.Directory(id)
	return d.Name
}

// refused says which versions of the pool this node does not apply, without those in limbo. apart
// reports whether nodes cannot agree before an operator heals the pool.
func (s *Source) refused() (out []string, apart bool) {
	list, total := s.node.Refusals()
	for _, x := range []struct{ reason, what string }{
		{engine.ReasonClock, "records dated in the future, which take effect at their date"},
		{engine.ReasonEra, "records of an era that has not begun here, so nodes cannot agree (run nearside pool heal)"},
		{engine.ReasonLimit, "records refused by a limit of this node"},
		{engine.ReasonDamaged, "saved values of the pool that cannot be read"},
	} {
		i := slices.IndexFunc(list, func(r engine.Refusal) bool { return r.Reason == x.reason })
		if i < 0 {
			continue
		}
		r := &list[i]
		var first string
		switch {
		case r.Node != (engine.NodeID{}):
			first = ", the first is of node " + cmp.Or(s.nameOf(r.Node), r.Node.String())
		case r.Key != (engine.Key{}):
			first = ", the first is " + resource.Key(r.Key).String()
		}
		out = append(out, fmt.Sprintf("%s: %d%s: %s", x.what, total[x.reason], first, r.Detail))
	}
	future := s.future()
	return append(out, future...), len(future) > 0 || total[engine.ReasonEra] > 0
}

// future reports records in force that are dated ahead: other nodes hold them, and changes of them
// are refused.
func (s *Source) future() []string {
	limit := s.o.Now().Add(futureAfter)
	var first resource.Key
	n := 0
	for _, r := range s.node.Versions() {
		if r.HLC.Time().After(limit) {
			if key := resource.Key(r.Key); n == 0 || key.Compare(first) < 0 {
				first = key
			}
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("records in force that are dated in the future, so nodes cannot agree: %d, "+
		"the first is %s: run nearside pool heal, unless the clock of this node is behind", n, first)}
}

// futureAfter is the distance of a date into the future that no clock within the limits explains.
const futureAfter = 30 * time.Second

// Differing returns how many live members have differed from this node for longer than 30 s, the
// longest time of a difference, and how many live members have other resources in files.
func (s *Source) Differing() (members int, longest time.Duration, files int) {
	others := s.others()
	list, longest := differing(others, s.o.Now(), s.nameOf)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range others {
		if d := s.files.differs[m.Node]; d != nil && d.Total > 0 {
			files++
		}
	}
	return len(list), longest, files
}

// Refused returns the number of versions that this node knows and does not apply, by reason.
func (s *Source) Refused() map[string]int {
	_, total := s.node.Refusals()
	out := map[string]int{}
	for _, reason := range []string{engine.ReasonClock, engine.ReasonDamaged, engine.ReasonLimbo, engine.ReasonLimit,
		engine.ReasonName, engine.ReasonOld, engine.ReasonTrust} {
		out[reason] = total[reason]
	}
	return out
}

// filesCheck compares the file resources of the live nodes.
func (s *Source) filesCheck() api.Check {
	out := api.Check{Name: "pool-files", OK: true}
	list := s.node.Members()
	s.mu.Lock()
	defer s.mu.Unlock()
	var problems []string
	equal := 0
	for _, m := range list {
		diff := s.files.differs[m.Node]
		switch {
		case m.Self || m.State != gossip.StateAlive || diff == nil:
		case diff.Total == 0:
			equal++
		default:
			problems = append(problems, fmt.Sprintf("those of node %s: %s", m.Name, filesText(diff)))
		}
	}
	switch {
	case s.files.large:
		out.Degraded = true
		out.Reason = fmt.Sprintf("this node has too many resources in files to compare them with other nodes: %d",
			len(s.files.digests))
	case len(problems) > 0:
		out.Degraded = true
		more := len(problems) - maxNamed
		out.Reason = "the resources in files differ from " +
			strings.Join(problems[:min(len(problems), maxNamed)], "; and from ")
		if more > 0 {
			out.Reason += "; and from those of " + plural.Count(more, "other node")
		}
		out.Reason += "; distribute equal files, and see nearside members -o json"
	default:
		out.Reason = plural.Form(equal, "1 other live node has equal resources in files",
			"%d other live nodes have equal resources in files")
	}
	return out
}

// filesText names the differences between the file resources of two nodes.
func filesText(diff *api.MemberFiles) string {
	words := map[string]string{api.FileDiffers: "differs", api.FileMissingHere: "missing here",
		api.FileMissingThere: "missing there"}
	var list []string
	for _, d := range diff.Items[:min(len(diff.Items), maxNamed)] {
		name := d.Name
		if d.Mesh != "" {
			name = d.Mesh + "/" + name
		}
		list = append(list, fmt.Sprintf("%s/%s (%s)", d.Type, name, words[d.State]))
	}
	text := strings.Join(list, ", ")
	if more := diff.Total - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
