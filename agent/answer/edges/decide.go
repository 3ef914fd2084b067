package edges

import (
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// reached returns what a class of dataplanes reaches.
func (g *Graph) reached(class int) []reachBits {
	r := &g.reaches[class]
	if r.services != nil {
		return r.services
	}
	r.services = make([]reachBits, len(g.v.Services()))
	if g.m.Policies == nil {
		return r.services
	}
	all := g.m.Policies.Reach(r.dataplane)
	for i, s := range g.v.Services() {
		v := all.Of(s)
		if v.Reachable {
			r.services[i] |= reachable
		}
		switch v.Cause {
		case mesh.CauseListed, mesh.CauseLabels, mesh.CauseOutbound:
			r.services[i] |= listed
		}
	}
	return r.services
}

// decisions returns the decisions about a class of clients.
func (g *Graph) decisions(class int) []bits {
	c := &g.clients[class]
	if c.decided != nil {
		return c.decided
	}
	c.decided = make([]bits, len(g.classes))
	var permitted *policy.Permissions
	for i := range g.classes {
		g.each(c, &g.classes[i], &permitted, func(d decision) {
			if d.allowed {
				c.decided[i] |= allowed
			} else {
				c.decided[i] |= denied
			}
		})
	}
	return c.decided
}

// each calls f with each decision about a client at a destination. permitted caches what is needed
// for several destinations of a client.
func (g *Graph) each(c *clientClass, d *destination, permitted **policy.Permissions, f func(decision)) {
	switch {
	case d.outside != nil:
		f(decision{allowed: !g.m.Denied(c.dataplane, g.v.VirtualOutbound(d.outside))})
	case d.unknown != nil:
		if *permitted == nil {
			if g.guarded == nil {
				g.guarded = g.m.Permitting()
			}
			*permitted = g.guarded.Permissions(nil, c.dataplane)
		}
		if *permitted == nil {
			f(decision{allowed: true})
			return
		}
		p := (*permitted).Of(d.unknown)
		f(decision{p.Allowed, p.By})
	case len(d.gates) == 0:
		f(decision{allowed: true})
	default:
		for _, x := range d.gates {
			f(x.decide(&c.client, d.serverName))
		}
	}
}
