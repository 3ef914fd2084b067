package peers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Checks reports the state of the pool. No check makes the node unready.
func (s *Source) Checks() []api.Check {
	return []api.Check{s.peersCheck(), s.stateCheck(), s.filesCheck()}
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
	problems := s.refused()
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, m := range others {
		keys, longest := s.lasting(m.Node)
		if len(keys) == 0 {
			continue
		}
		diffs := s.diffs[m.Node]
		for i, key := range keys {
			d := diffs[key]
			keys[i] = fmt.Sprintf("%s (%s)", strings.Replace(key, " ", "/", 1), d.text())
		}
		list = append(list, fmt.Sprintf("those of node %s, for %s: %s", m.Name, longest.Round(time.Second), named(keys)))
	}
	if out.Error = len(list) > 0; out.Error {
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

// refused says which versions of the pool this node does not apply, without those in limbo.
func (s *Source) refused() (out []string) {
	list, total := s.node.Refusals()
	for _, x := range []struct{ reason, what string }{
		{engine.ReasonClock, "records dated in the future, which take effect at their date"},
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
			first = ", the first is " + r.Key.String()
		}
		out = append(out, fmt.Sprintf("%s: %d%s: %s", x.what, total[x.reason], first, r.Detail))
	}
	return out
}

// Differing returns how many live members have differed from this node for longer than 30 s, the
// longest time of a difference, and how many live members have other resources in files.
func (s *Source) Differing() (members int, longest time.Duration, files int) {
	others := s.others()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range others {
		if keys, age := s.lasting(m.Node); len(keys) > 0 {
			members, longest = members+1, max(longest, age)
		}
		if d := s.files.differs[m.Node]; d != nil && d.Total > 0 {
			files++
		}
	}
	return members, longest, files
}

// Refused returns the number of versions that this node knows and does not apply, by reason.
func (s *Source) Refused() map[string]int {
	_, total := s.node.Refusals()
	out := map[string]int{}
	for _, reason := range []string{engine.ReasonClock, engine.ReasonDamaged, engine.ReasonLimbo, engine.ReasonLimit,
		engine.ReasonOld} {
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
