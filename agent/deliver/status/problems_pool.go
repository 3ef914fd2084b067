package status

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// namesakeProblems returns one problem for each name that several living nodes of the pool have. It
// is an error on these nodes, because the others refuse one of them.
func (t *Tracker) namesakeProblems(context.Context, *Facts) (out []api.Problem) {
	if t.Nodes == nil {
		return nil
	}
	members := t.Nodes.Members()
	for i := range members {
		name := members[i].Name
		is := func(m api.Member) bool { return m.Name == name && m.Lives() }
		if name == "" || slices.IndexFunc(members, is) != i {
			continue // listed with the first member of this name
		}
		var nodes []string
		severity := api.SeverityWarning
		for _, m := range members {
			if !is(m) {
				continue
			}
			who := m.Address + " with the key " + m.ID
			if m.Self {
				who, severity = "this node at "+who, api.SeverityError
			}
			nodes = append(nodes, who)
		}
		if len(nodes) > 1 {
			out = append(out, api.Problem{Severity: severity, Check: api.ClassNameTwice, Reason: fmt.Sprintf(
				"%d living nodes have the name %s: %s; set another node.name on all but one of them, and restart these",
				len(nodes), name, strings.Join(nodes, "; "))})
		}
	}
	return out
}
