package edges

import "slices"

// cell is an edge to a node.
type cell struct {
	to         int // node
	permission bits
	reach      reachBits
}

// exists reports whether the edge is in the default answer: a proxy has an outbound, and policies
// allow it or a dataplane names the destination.
func (c *cell) exists() bool {
	return c.reach&reachable != 0 && (c.permission&allowed != 0 || c.reach&listed != 0)
}

// Visible reports whether the dataplane of a name may be shown. Nil: all may.
type Visible func(name string) bool

// members returns the visible clients of a node.
func (g *Graph) members(n *node, visible Visible) []int32 {
	if visible == nil {
		return n.members
	}
	return slices.DeleteFunc(slices.Clone(n.members), func(i int32) bool { return !visible(g.callers[i].dataplane.Name) })
}

// group is a set of callers with equal decisions.
type group struct {
	decided []bits
	reached []reachBits
}

func (g *Graph) groups(members []int32) []group {
	type key struct{ client, reach int }
	var known []key
	var out []group
	for _, i := range members {
		c := &g.callers[i]
		k := key{c.client, c.reach}
		if slices.Contains(known, k) {
			continue
		}
		known = append(known, k)
		out = append(out, group{g.decisions(c.client), g.reached(c.reach)})
	}
	return out
}

// cell combines the decisions about the clients of groups at a node. Ports that no client reaches
// do not count if others are reachable.
func (g *Graph) cell(groups []group, to int) cell {
	out := cell{to: to}
	var all bits
	for i := range groups {
		x := &groups[i]
		for _, s := range g.nodes[to].dests {
			p, r := x.decided[g.classOf[s]], x.reached[s]
			all |= p
			out.reach |= r
			if r&reachable != 0 {
				out.permission |= p
			}
		}
	}
	if out.reach&reachable == 0 {
		out.permission = all
	}
	return out
}

// counts holds the numbers of edges.
type counts struct {
	calls, calledBy []int // by node
}

// countAll counts the edges that exist.
func (g *Graph) countAll(visible Visible) *counts {
	if visible == nil && g.counts != nil {
		return g.counts
	}
	out := &counts{make([]int, len(g.nodes)), make([]int, len(g.nodes))}
	for i, n := range g.nodes {
		groups := g.groups(g.members(n, visible))
		if len(groups) == 0 {
			continue
		}
		for to, d := range g.nodes {
			if len(d.dests) == 0 {
				continue
			}
			if c := g.cell(groups, to); c.exists() {
				out.calls[i]++
				out.calledBy[to]++
			}
		}
	}
	if visible == nil {
		g.counts = out
	}
	return out
}
