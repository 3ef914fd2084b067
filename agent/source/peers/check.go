package peers

import (
	"fmt"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/gossip"
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

// stateCheck compares the resources of the live nodes.
func (s *Source) stateCheck() api.Check {
	out := api.Check{Name: "pool-state", OK: true}
	var late []string
	alive := 0
	for _, m := range s.Members() {
		if m.Self || m.State != api.MemberAlive {
			continue
		}
		if alive++; m.Lag > differsTooLong.Seconds() {
			late = append(late, fmt.Sprintf("%s for %s", m.Name, (time.Duration(m.Lag)*time.Second).String()))
		}
	}
	if len(late) == 0 {
		out.Reason = plural.Form(alive, "1 other live node has the resources of this node",
			"%d other live nodes have the resources of this node")
		return out
	}
	out.Degraded, out.Error = true, true
	out.Reason = "the resources of the pool differ from those of nodes: " + named(late)
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
