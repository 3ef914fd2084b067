package policy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// from builds the rules for clients, by inbound.
func (b *builder) from(list []matched) {
	byInbound := map[int][]item{}
	routes := map[int]map[*resource.Resource][]item{}
	each := map[int][]*Rule{}
	most := -1
	for i := range list {
		p, spec := list[i].policy, list[i].spec
		b.apart = b.apart || spec.Shape != nil && spec.Shape.RulesApart
		separate := len(spec.Rules) > 0 && spec.Shape != nil && spec.Shape.NewRuleConf != nil
		items := spec.InboundItems()
		for j := range items {
			if items[j].Conf == nil {
				continue
			}
			it := item{origin: Origin{p, j}, ref: &items[j].TargetRef, conf: items[j].Conf, matches: items[j].Matches,
				rules: len(spec.Rules) > 0}
			b.warnForeign(&it)
			if !b.client(&it) {
				continue
			}
			for _, in := range list[i].sel.Inbounds {
				most = max(most, in)
				if r := list[i].sel.Route; r != nil {
					if routes[in] == nil {
						routes[in] = map[*resource.Resource][]item{}
					}
					routes[in][r] = append(routes[in][r], it)
				} else if separate {
					each[in] = append(each[in], merge(nil, []item{it}))
				} else {
					byInbound[in] = append(byInbound[in], it)
				}
			}
		}
	}
	b.rulesAlone(byInbound, each)
	for in := 0; in <= most; in++ {
		if byInbound[in] == nil && routes[in] == nil && each[in] == nil {
			continue
		}
		out := InboundRules{Inbound: in, Entries: each[in], Apart: b.apart}
		out.Matched, out.items = b.matched(byInbound[in])
		out.Rules, out.Overflow = b.clients(out.items)
		out.items = slices.DeleteFunc(out.items, func(it item) bool { return it.rules })
		for r, items := range routes[in] {
			matched, rest := b.matched(items)
			rules, overflow := b.clients(rest)
			out.Routes = append(out.Routes, RouteRules{r, rules, matched})
			out.Overflow = out.Overflow || overflow
		}
		slices.SortFunc(out.Routes, func(a, b RouteRules) int { return a.Route.Key.Compare(b.Route.Key) })
		b.k.From = append(b.k.From, out)
	}
}

// rulesAlone removes the items of from at inbounds that rules select, and warns about their
// policies. A destination outside the mesh is no inbound and keeps both.
func (b *builder) rulesAlone(from map[int][]item, each map[int][]*Rule) {
	if b.outside {
		return
	}
	warned := map[*resource.Resource]bool{}
	for _, in := range slices.Sorted(maps.Keys(each)) {
		for _, it := range from[in] {
			p := it.origin.Policy
			if warned[p] {
				continue
			}
			warned[p] = true
			b.warnf(p, "from has no effect on networking.inbound[%d]: rules of %s %q select this inbound, and then only "+
				"rules decide, even about clients that this policy denies; move the clients into deny or allow of rules",
				in, b.k.Kind, each[in][len(each[in])-1].Origins[0].Policy.DisplayName())
		}
		delete(from, in)
	}
}

// client sets the tags of the clients that an item selects. It reports whether the item has an
// effect.
func (b *builder) client(it *item) bool {
	switch t := it.ref; t.Kind {
	case kindMesh:
		if t.Name != "" && t.Name != b.x.View.Name {
			return false
		}
	case "MeshSubset":
		it.subset = SubsetOf(t.Tags)
	case mesh.KindMeshService, "MeshServiceSubset":
		tags := map[string]string{resource.TagService: t.Name}
		for k, v := range t.Tags {
			if k != resource.TagService {
				tags[k] = v
			}
		}
		it.subset = SubsetOf(tags)
	default:
		b.warnf(it.origin.Policy, "from[%d].targetRef: kind %s does not select clients, so the item has no effect",
			it.origin.Item, t.Kind)
		return false
	}
	return true
}

// clients builds disjoint rules from items. If there are too many combinations of tags, it drops
// the weakest items and sets overflow.
func (b *builder) clients(items []item) (rules []*Rule, overflow bool) {
	if len(items) == 0 {
		return nil, false
	}
	for _, group := range partition(items) {
		tags := valuesOf(group)
		dropped := map[resource.Key]bool{}
		for combinations(tags) > maxRules {
			overflow = true
			p := group[0].origin.Policy
			if !dropped[p.Key] {
				dropped[p.Key] = true
				b.warnf(p, "from: the policies of kind %s have more than %d tag combinations, so some rules of this policy "+
					"were dropped; use fewer tags in from", b.k.Kind, maxRules)
			}
			group = group[max(1, len(group)/16):]
			tags = valuesOf(group)
		}
		combine(group, tags, nil, func(s Subset, of []item) { rules = append(rules, merge(s, of)) })
	}
	slices.SortStableFunc(rules, func(a, b *Rule) int { return cmp.Compare(b.Subset.positive(), a.Subset.positive()) })
	return rules, overflow
}
