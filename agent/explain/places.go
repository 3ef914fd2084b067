package explain

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// tagRoute is the matcher of rules about the requests of one route; its value is the hash in httpMatches of _rules.
const tagRoute = "__rule-matches-hash__"

// placed is a rule that an item went into, and what of the proxy it is about.
type placed struct {
	rule  *policy.Rule
	place *Place // shared by all items of the rule
}

// placesOf returns the rules of a kind that concern the proxy, by the items that they were merged from.
func (p *Proxy) placesOf(kind string) map[itemID][]placed {
	out, ok := p.places[kind]
	if ok {
		return out
	}
	out = map[itemID][]placed{}
	p.places[kind] = out
	k := p.rules.Kind(kind)
	if k == nil {
		return out
	}
	if k.Proxy != nil {
		p.put(kind, Default, k.Proxy, Place{On: OnProxy})
	}
	for i := range k.From {
		f := &k.From[i]
		at := p.inbounds([]int{f.Inbound})
		if len(at) == 0 {
			continue
		}
		for _, r := range f.Rules {
			p.put(kind, From, r, Place{On: OnInbound, Inbound: &at[0], Matchers: r.Subset})
		}
		for _, route := range f.Routes {
			for _, r := range route.Rules {
				p.put(kind, From, r, Place{On: OnInbound, Inbound: &at[0], Route: route.Route.Name, Matchers: r.Subset})
			}
		}
	}
	taken := p.outbounds(k)
	p.routes(k, taken)
	return out
}

// put notes a rule for each of its items.
func (p *Proxy) put(kind string, in List, r *policy.Rule, place Place) {
	for _, o := range r.Origins {
		id := itemID{o.Policy.Key, in, o.Item}
		p.places[kind][id] = append(p.places[kind][id], placed{r, &place})
	}
}

// outbounds notes the rules that outbounds of the proxy take, each with its outbounds, and returns them.
func (p *Proxy) outbounds(k *policy.KindRules) map[*policy.Rule]bool {
	var order []*policy.Rule
	groups, taken := map[*policy.Rule][]Destination{}, map[*policy.Rule]bool{}
	for _, s := range p.services {
		r := k.ServiceRule(s)
		if r == nil {
			continue
		}
		if !taken[r] {
			taken[r] = true
			order = append(order, r)
		}
		groups[r] = append(groups[r], destinationOf(s))
	}
	for _, r := range order {
		p.put(k.Kind, To, r, Place{On: OnOutbounds, Outbounds: groups[r]})
	}
	return taken
}

// routes notes the rules about requests of single routes of the proxy. The same is said by the resource of a route and
// by its hash; the hash counts where there is no resource.
func (p *Proxy) routes(k *policy.KindRules, taken map[*policy.Rule]bool) {
	known := map[itemID]bool{}
	for _, r := range k.ToResources {
		if routes := p.rules.Kind(r.Resource.Kind); routes == nil || taken[&r.Rule] || !selects(routes, r.Resource) {
			continue
		}
		p.put(k.Kind, To, &r.Rule, Place{On: OnRoute, Route: r.Resource.Name})
		for _, o := range r.Origins {
			known[itemID{o.Policy.Key, To, o.Item}] = true
		}
	}
	dials := map[string]bool{}
	for _, s := range p.services {
		if s.ID.Kind == mesh.KindTag {
			dials[s.ID.Name] = true
		}
	}
	for _, r := range k.To {
		hash, service := "", ""
		for _, t := range r.Subset {
			switch {
			case t.Not:
			case t.Key == tagRoute:
				hash = t.Value
			case t.Key == resource.TagService:
				service = t.Value
			}
		}
		if hash == "" || !dials[service] || taken[r] {
			continue
		}
		place := &Place{On: OnRoute, Route: hash, Outbounds: []Destination{{Name: service}}}
		for _, o := range r.Origins {
			if id := (itemID{o.Policy.Key, To, o.Item}); !known[id] {
				p.places[k.Kind][id] = append(p.places[k.Kind][id], placed{r, place})
			}
		}
	}
}

// selects reports whether a policy is among those that select the proxy.
func selects(k *policy.KindRules, key resource.Key) bool {
	return slices.ContainsFunc(k.Policies, func(p *resource.Resource) bool { return p.Key == key })
}
