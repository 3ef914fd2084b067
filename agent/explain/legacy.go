package explain

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// legacyField is where the conf of a legacy policy stands.
const legacyField = "conf"

// legacy explains a policy of the legacy generation: nothing is merged there, of the policies for one connection one
// rules alone.
func (p *Proxy) legacy(r *resource.Resource, k *policy.LegacyKind, out *Policy) {
	spec, ok := r.Spec.(*resource.LegacyPolicy)
	if !ok {
		out.Reason = "it is not a policy with sources and destinations or selectors"
		return
	}
	sel := p.index.SelectLegacy(r, p.dataplane, k.Arrives)
	if !sel.Selected {
		out.Reason = sel.Why
		return
	}
	for _, kind := range k.ReplacedBy {
		if by := p.rules.Kind(kind); by != nil && len(by.Policies) > 0 {
			last := by.Policies[len(by.Policies)-1]
			out.Reason = fmt.Sprintf("ended by %s: as long as a policy of kind %s selects the dataplane, those of kind %s do not act on it", last.Key, kind, r.Kind)
			return
		}
	}
	out.Selected = true
	switch {
	case len(spec.Selectors) > 0:
		out.Reason = "selectors match the dataplane"
	case k.Arrives:
		out.Reason = "destinations match inbounds of the dataplane"
	default:
		out.Reason = "sources match the dataplane"
	}
	it := Item{Field: legacyField, Places: []Place{}}
	own := leavesOf(spec.Conf)
	if len(own) == 0 {
		own = []leaf{{"", []byte("{}")}}
	}
	add := func(place Place, by *resource.Resource) {
		for _, l := range own {
			s := Set{Path: l.path, Value: l.value, Effect: EffectAll, By: []Source{}}
			if by.Key != r.Key {
				s.Effect = EffectNone
				s.By = append(s.By, Source{Type: by.Kind, Mesh: by.Mesh, Name: by.Name, Field: legacyField})
			}
			place.Fields = append(place.Fields, s)
		}
		place.Effect = effectOf(place.Fields)
		it.Places = append(it.Places, place)
	}
	switch {
	case len(spec.Selectors) > 0:
		if by := p.rules.LegacyProxy(r.Kind); by != nil {
			add(Place{On: OnProxy}, by)
		}
	case k.Arrives:
		out.Inbounds = p.inbounds(sel.Inbounds)
		for i, in := range sel.Inbounds {
			if list := p.rules.LegacyInbound(r.Kind, in); slices.ContainsFunc(list, func(o *resource.Resource) bool { return o.Key == r.Key }) {
				add(Place{On: OnInbound, Inbound: &out.Inbounds[i]}, r)
			}
		}
	default:
		p.legacyOutbounds(r, add)
		if len(it.Places) == 0 {
			it.Reason = "no outbound of the dataplane leads to what destinations match"
		}
	}
	it.Effect = sumOf(it.Places, func(pl Place) string { return pl.Effect })
	out.Items = append(out.Items, it)
}

// legacyOutbounds groups the outbounds that a policy could rule by the policy that does.
func (p *Proxy) legacyOutbounds(r *resource.Resource, add func(Place, *resource.Resource)) {
	var order []*resource.Resource
	groups := map[*resource.Resource][]Destination{}
	for _, s := range p.services {
		if s.ID.Kind != mesh.KindTag || !policy.LegacyReaches(r, s.ID.Name) {
			continue
		}
		by := p.rules.LegacyOutbound(r.Kind, s.ID.Name)
		if by == nil {
			continue
		}
		if groups[by] == nil {
			order = append(order, by)
		}
		groups[by] = append(groups[by], destinationOf(s))
	}
	for _, by := range order {
		add(Place{On: OnOutbounds, Outbounds: groups[by]}, by)
	}
}
