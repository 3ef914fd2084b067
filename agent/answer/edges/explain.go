package edges

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// explanation finds the reasons for the edges of one client.
type explanation struct {
	g         *Graph
	members   []int32
	permitted map[int]*policy.Permissions // by class of clients
	reach     map[int]*policy.Reach       // by class of lists
	reached   map[int][]reachBits         // by class of lists
}

// explain sets the policy of an edge, and says why.
func (x *explanation) explain(c *cell, e *api.Edge) {
	g := x.g
	var deciding, other *found
	for _, i := range x.members {
		caller := &g.callers[i]
		reached := x.reached[caller.reach]
		if reached == nil {
			reached = g.reached(caller.reach)
			x.reached[caller.reach] = reached
		}
		for _, s := range g.nodes[c.to].dests {
			if e.Reach && reached[s]&reachable == 0 {
				continue
			}
			p := x.permitted[caller.client]
			class := &g.classes[g.classOf[s]]
			g.each(&g.clients[caller.client], class, &p, func(d decision) {
				f := &found{caller, g.v.Services()[s], class, d}
				switch {
				case d.allowed != (c.permission == allowed):
					if other == nil {
						other = f
					}
				case deciding == nil:
					deciding = f
				}
			})
			x.permitted[caller.client] = p
			if deciding != nil && (other != nil || c.permission != allowed|denied) {
				break
			}
		}
		if deciding != nil {
			break
		}
	}
	if deciding == nil { // impossible: a decision is the reason for the permission
		return
	}
	e.Policy, e.Why = x.why(deciding)
	if c.permission == allowed|denied && other != nil {
		_, also := x.why(other)
		e.Why = fmt.Sprintf("some proxies or ports are denied: %s; others are allowed: %s", e.Why, also)
	}
	if why := x.whyReach(c.to, e.Reach); why != "" {
		e.Why += "; " + why
	}
}

// found is a decision about one dataplane and one service.
type found struct {
	caller *caller
	to     *mesh.Service
	class  *destination
	decision
}

// why returns the policy and the reason of a decision.
func (x *explanation) why(f *found) (*api.EdgePolicy, string) {
	g := x.g
	switch {
	case !g.enforced():
		return nil, "mTLS is off in the mesh, so every client is allowed"
	case f.class.plain:
		return nil, "connections to it have no mTLS, so every client is allowed"
	case f.class.outside != nil && f.allowed:
		return x.outside(f), "the destination is outside the mesh, and no policy denies it"
	case f.class.outside != nil:
		return x.outside(f), "the destination is outside the mesh, and no policy allows the client"
	case f.by.Policy == nil && f.allowed:
		return nil, "no permission can select the destination"
	case f.by.Policy == nil:
		return nil, "no permission selects the client"
	}
	p := policyOf(f.by)
	verb := "denied"
	if f.allowed {
		verb = "allowed"
	}
	at := p.Type + "/" + p.Name
	if p.Field != "" {
		at += " " + p.Field
	}
	if f.class.unknown != nil {
		at += " (its inbounds are unknown here, so policies that select only some of them are not considered)"
	}
	return p, fmt.Sprintf("%s by %s", verb, at)
}

// policyOf returns the field of a deciding policy.
func policyOf(by policy.Origin) *api.EdgePolicy {
	_, source := effect.ItemOf(by.Policy, effect.From, by.Item)
	if _, legacy := by.Policy.Spec.(*resource.LegacyPolicy); legacy {
		source.Field = "sources"
	}
	return &api.EdgePolicy{Type: source.Type, Mesh: source.Mesh, Name: source.Name, Field: source.Field}
}

// outside returns the policy that decides about a destination outside the mesh, or nil.
func (x *explanation) outside(f *found) *api.EdgePolicy {
	g := x.g
	for i := range f.to.Outside.List {
		o := g.m.Policies.Outside(f.to.Outside.List[i].Resource.Key)
		switch {
		case o == nil:
			continue
		case o.Kind == mesh.KindMeshExternalService && f.allowed:
			return nil
		case o.Kind == mesh.KindMeshExternalService:
			return &api.EdgePolicy{Type: "Mesh", Mesh: g.v.Name, Name: g.v.Name,
				Field: "routing.defaultForbidMeshExternalServiceAccess"}
		}
		x := &gate{}
		x.fill(g.gates.plugins, o.Rules, 0)
		if d := x.decide(&g.clients[f.caller.client].client, ""); d.allowed == f.allowed && d.by.Policy != nil {
			return policyOf(d.by)
		}
	}
	return nil
}

// whyReach says why a proxy has an outbound to a node, or has none; "" if nothing restricts it.
func (x *explanation) whyReach(to int, reaches bool) string {
	g := x.g
	if g.m.Policies == nil {
		return ""
	}
	for _, i := range x.members {
		c := &g.callers[i]
		reach := x.reach[c.reach]
		if reach == nil {
			reach = g.m.Policies.Reach(c.dataplane)
			x.reach[c.reach] = reach
		}
		for _, s := range g.nodes[to].dests {
			s := g.v.Services()[s]
			v := reach.Of(s)
			if v.Reachable != reaches {
				continue
			}
			if v.Cause == mesh.CauseOpen || v.Cause == mesh.CausePermission || v.Cause == mesh.CauseNoSubject {
				return ""
			}
			why := explain.WhyReach(g.m.Policies, c.spec, s, v)
			if reaches {
				return why.Reason
			}
			return "no outbound: " + why.Reason
		}
	}
	return ""
}
