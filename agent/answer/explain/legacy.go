package explain

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// legacyField is the path of the conf of a legacy policy.
const legacyField = "conf"

// legacy explains a source-destination (legacy) policy. These are not merged: one policy decides
// about a connection.
func (p *Proxy) legacy(r *resource.Resource, k *policy.LegacyKind, out *Policy) {
	spec, ok := r.Spec.(*resource.LegacyPolicy)
	if !ok {
		out.Reason = "it is not a policy with sources and destinations or selectors"
		return
	}
	sel := p.index.SelectLegacy(r, p.dataplane, k.Inbound)
	leaves := p.actsOutbound(r, k)
	if !sel.Selected && !leaves {
		out.Reason = sel.Why
		return
	}
	for _, kind := range k.ReplacedBy {
		if by := p.rules.Kind(kind); by != nil && len(by.Policies) > 0 {
			last := by.Policies[len(by.Policies)-1]
			out.Reason = fmt.Sprintf("superseded by %s: while a policy of kind %s selects the dataplane, "+
				"%s policies do not apply to it", last.Key, kind, r.Kind)
			return
		}
	}
	out.Selected = true
	switch {
	case len(spec.Selectors) > 0:
		out.Reason = "selectors match the dataplane"
	case !sel.Selected:
		out.Reason = "sources match the dataplane, and destinations match services outside the mesh"
	case k.Inbound:
		out.Reason = "destinations match inbounds of the dataplane"
	default:
		out.Reason = "sources match the dataplane"
	}
	it := Item{Field: legacyField, Places: []Place{}}
	own := leavesOf(spec.Conf)
	if len(own) == 0 {
		own = []leaf{{"", []byte("{}")}}
	}
	add := func(position Place, fields []Set) {
		position.Fields, position.Effect = fields, effectOf(fields)
		it.Places = append(it.Places, position)
	}
	switch {
	case len(spec.Selectors) > 0:
		if by := p.rules.LegacyProxy(r.Kind); by != nil {
			add(Place{On: OnProxy}, legacySets(own, r, by, nil))
		}
	case k.Inbound:
		out.Inbounds = p.inbounds(sel.Inbounds)
		for i, in := range sel.Inbounds {
			list := p.rules.LegacyInbound(r.Kind, in)
			if !slices.ContainsFunc(list, func(o *resource.Resource) bool { return o.Key == r.Key }) {
				continue // inactive, which is reported separately
			}
			rules := list[0]
			if k.AllApply {
				rules = r
			}
			add(Place{On: OnInbound, Inbound: &out.Inbounds[i]}, legacySets(own, r, rules, nil))
		}
		if leaves {
			p.legacyOutbounds(r, k, own, add)
		}
	default:
		p.legacyOutbounds(r, k, own, add)
		if len(it.Places) == 0 {
			it.Reason = "no outbound of the dataplane leads to a service that destinations match"
		}
	}
	it.Effect = sumOf(it.Places, func(pl Place) string { return pl.Effect })
	out.Items = append(out.Items, it)
}

// actsOutbound reports whether a policy for inbound connections also applies to connections that
// leave the mesh at this dataplane.
func (p *Proxy) actsOutbound(r *resource.Resource, k *policy.LegacyKind) bool {
	return k.OutboundToo != nil && p.index.SelectLegacy(r, p.dataplane, false).Selected &&
		slices.ContainsFunc(p.services, func(s *mesh.Service) bool {
			return k.OutboundToo(s) && policy.LegacyReaches(r, s.ID.Name)
		})
}

// legacySets returns the fields of a legacy policy r with their effect, where the policy named by
// rules applies. A targetRef policy that supersedes a field takes precedence.
func legacySets(own []leaf, r, rules *resource.Resource, superseded func(path string) *resource.Resource) []Set {
	out := make([]Set, 0, len(own))
	for _, l := range own {
		s := Set{Path: l.path, Value: l.value, Effect: EffectNone, By: []Source{}}
		var by *resource.Resource
		if superseded != nil {
			by = superseded(l.path)
		}
		switch {
		case by != nil:
			s.By = append(s.By, Source{Type: by.Kind, Mesh: by.Mesh, Name: by.Name, Field: "spec"})
		case rules.Key != r.Key:
			s.By = append(s.By, Source{Type: rules.Kind, Mesh: rules.Mesh, Name: rules.Name, Field: legacyField})
		default:
			s.Effect = EffectAll
		}
		out = append(out, s)
	}
	return out
}

// legacyOutbounds adds the outbounds that a policy could apply to. Outbounds with the same result
// are grouped.
func (p *Proxy) legacyOutbounds(r *resource.Resource, k *policy.LegacyKind, own []leaf, add func(Place, []Set)) {
	type group struct {
		to     []Destination
		fields []Set
	}
	var groups []*group
	for _, s := range p.services {
		if s.ID.Kind != mesh.KindTag || !policy.LegacyReaches(r, s.ID.Name) || k.OutboundToo != nil && !k.OutboundToo(s) {
			continue
		}
		rules := p.rules.LegacyOutbound(r.Kind, s.ID.Name)
		if rules == nil {
			continue
		}
		fields := legacySets(own, r, rules, func(path string) *resource.Resource { return k.SupersededAt(p.rules, s, path) })
		i := slices.IndexFunc(groups, func(g *group) bool { return slices.EqualFunc(g.fields, fields, sameResult) })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{fields: fields})
		}
		groups[i].to = append(groups[i].to, destinationOf(s))
	}
	for _, g := range groups {
		add(Place{On: OnOutbounds, Outbounds: g.to}, g.fields)
	}
}

// sameResult reports whether a field has the same effect and sources in two places.
func sameResult(a, b Set) bool {
	return a.Path == b.Path && a.Effect == b.Effect && slices.Equal(a.By, b.By)
}
