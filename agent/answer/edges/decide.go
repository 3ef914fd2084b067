package edges

import (
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxKept bounds the bytes of decisions that a graph keeps. Beyond it, they are computed again for
// each page.
const maxKept = 8 << 20

// keeps reports whether a list of decisions fits into what the graph keeps.
func (g *Graph) keeps(n int) bool {
	if g.kept+n > maxKept {
		return false
	}
	g.kept += n
	return true
}

// reached returns what a class of dataplanes reaches.
func (g *Graph) reached(class int) []reachBits {
	r := &g.reaches[class]
	if r.services != nil {
		return r.services
	}
	out := make([]reachBits, len(g.v.Services()))
	if g.keeps(len(out)) {
		r.services = out
	}
	if g.m.Policies == nil {
		return out
	}
	all := g.m.Policies.Reach(r.dataplane)
	of := func(s *mesh.Service) {
		v := all.Of(s)
		if v.Reachable {
			out[s.Index] |= reachable
		}
		switch v.Cause {
		case mesh.CauseListed, mesh.CauseLabels, mesh.CauseOutbound:
			out[s.Index] |= listed
		}
	}
	dp, ok := r.dataplane.Spec.(*resource.Dataplane)
	if ok && dp.Networking.TransparentProxying == nil { // reaches only its outbounds
		g.v.EachOutbound(r.dataplane, func(_ int, s *mesh.Service) {
			if s.Index >= 0 {
				of(s)
			}
		})
		return out
	}
	for _, s := range g.v.Services() {
		of(s)
	}
	return out
}

// decisions returns the decisions about a class of clients.
func (g *Graph) decisions(class int) []bits {
	c := &g.clients[class]
	if c.decided != nil {
		return c.decided
	}
	out := make([]bits, len(g.classes))
	if g.keeps(len(out)) {
		c.decided = out
	}
	var permitted *policy.Permissions
	var byGate []bits
	for i := range g.classes {
		d := &g.classes[i]
		if len(d.gates) > 0 && d.serverName == "" {
			if byGate == nil {
				byGate = g.gates.decide(&c.client)
			}
			for _, x := range d.gates {
				out[i] |= byGate[x.id]
			}
			continue
		}
		g.each(c, d, &permitted, func(d decision) { out[i] |= bitsOf(d) })
	}
	return out
}

func bitsOf(d decision) bits {
	if d.allowed {
		return allowed
	}
	return denied
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
