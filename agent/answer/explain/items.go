package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// item explains the effect of an item of a policy.
func (p *Proxy) item(r *resource.Resource, in List, i int, t *resource.TargetRef, about *Policy) Item {
	it := p.items.get(r, in, i)
	out := Item{Field: it.source.Field, TargetRef: t, Places: []Place{}}
	if t != nil {
		out.About = targetText(t)
	}
	for _, at := range p.placesOf(r.Kind)[itemID{r.Key, in, i}] {
		position := *at.place
		position.Fields = p.sets(at.rule, in, it)
		position.Effect = effectOf(position.Fields)
		out.Places = append(out.Places, position)
	}
	switch {
	case len(out.Places) == 0:
		out.Reason = p.noPlaceReason(in, t, about)
	case len(it.leaves) == 0:
		out.Reason = "the conf is empty"
	}
	out.Effect = sumOf(out.Places, func(pl Place) string { return pl.Effect })
	return out
}

// sets returns the fields of an item with their effect in a rule.
func (p *Proxy) sets(rule *policy.Rule, in List, it *item) []Set {
	merged := p.decide(rule, in)
	out := make([]Set, len(it.leaves))
	for i, l := range it.leaves {
		s := &out[i]
		*s = Set{Path: l.path, Value: l.value, Effect: EffectNone, By: []Source{}}
		j := slices.IndexFunc(merged, func(d decided) bool { return d.path == l.path })
		if j < 0 { // a mapping overrides a scalar, or the reverse
			j = slices.IndexFunc(merged, func(d decided) bool {
				return strings.HasPrefix(d.path, l.path) || strings.HasPrefix(l.path, d.path)
			})
		}
		if j < 0 {
			continue
		}
		for _, by := range merged[j].by {
			if by == it && merged[j].path == l.path {
				s.Effect = remains(l.value, merged[j].value)
			} else {
				s.By = append(s.By, by.source)
			}
		}
	}
	return out
}

// noPlaceReason explains why no rule of the proxy contains an item.
func (p *Proxy) noPlaceReason(in List, t *resource.TargetRef, about *Policy) string {
	var isPolicy bool
	if t != nil {
		plugin, _, _ := pluginOf(p.index, t.Kind)
		isPolicy = plugin != nil
	}
	switch {
	case in == From && len(about.Inbounds) == 0:
		return "from applies to inbounds, but no inbound is selected"
	case in == From:
		return fmt.Sprintf("clients cannot be identified by %s; see the warnings", targetText(t))
	case in == To && len(p.services) == 0:
		return "the dataplane has no outbounds"
	case in == To && about.Route != nil:
		return "no outbound of the dataplane has the route"
	case in == To && isPolicy:
		return fmt.Sprintf("no request of the dataplane uses %s", targetText(t))
	case in == To:
		return fmt.Sprintf("no outbound of the dataplane leads to %s", targetText(t))
	}
	return ""
}

// sum derives the effect and the outbounds of the policy from its items.
func (out *Policy) sum() {
	out.Effect = sumOf(out.Items, func(it Item) string { return it.Effect })
	seen := map[Destination]bool{}
	for i := range out.Items {
		for j := range out.Items[i].Places {
			for _, d := range out.Items[i].Places[j].Outbounds {
				if !seen[d] {
					seen[d] = true
					out.Outbounds = append(out.Outbounds, d)
				}
			}
		}
	}
}

// limit marks a field of the policy, or all fields if f.Field is "", as having no effect, or a
// partial effect, in all places.
func (out *Policy) limit(f policy.NoEffect) {
	for i := range out.Items {
		it := &out.Items[i]
		for j := range it.Places {
			position := &it.Places[j]
			for k := range position.Fields {
				set := &position.Fields[k]
				field := strings.TrimSuffix(it.Field+"."+set.Path, ".")
				switch {
				case f.Field != "" && field != f.Field && !strings.HasPrefix(field, f.Field+".") || set.Effect == EffectNone:
				case f.Partial:
					set.Effect = EffectPart
				default:
					set.Effect = EffectNone
				}
			}
			position.Effect = effectOf(position.Fields)
		}
		it.Effect = sumOf(it.Places, func(pl Place) string { return pl.Effect })
	}
}

func effectOf(fields []Set) string {
	return sumOf(fields, func(s Set) string { return s.Effect })
}

// sumOf returns all or none if each part has that effect, and part otherwise.
func sumOf[T any](parts []T, effect func(T) string) string {
	all, none := true, true
	for _, p := range parts {
		switch effect(p) {
		case EffectAll:
			none = false
		case EffectNone:
			all = false
		default:
			all, none = false, false
		}
	}
	switch {
	case none:
		return EffectNone
	case all:
		return EffectAll
	}
	return EffectPart
}

func destinationOf(s *mesh.Service) Destination {
	if s.ID.Kind == mesh.KindTag {
		return Destination{Name: s.ID.Name}
	}
	return Destination{Kind: s.ID.Kind, Name: s.Resource.Name, Port: s.Port}
}

// targetText formats a targetRef with its kind, name, and selectors. Nil is the whole mesh.
func targetText(t *resource.TargetRef) string {
	if t == nil {
		return "Mesh"
	}
	out := t.Kind
	if t.Name != "" {
		out += "/" + t.Name
	}
	var more []string
	for _, f := range []struct{ name, value string }{{"namespace", t.Namespace}, {"sectionName", t.SectionName}} {
		if f.value != "" {
			more = append(more, f.name+": "+f.value)
		}
	}
	for _, m := range []map[string]string{t.Labels, t.Tags} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			more = append(more, k+": "+m[k])
		}
	}
	if len(t.ProxyTypes) > 0 {
		more = append(more, "proxyTypes: "+strings.Join(t.ProxyTypes, ", "))
	}
	if len(more) > 0 {
		out += " {" + strings.Join(more, ", ") + "}"
	}
	return out
}

// clientsText formats the clients that an entry of rules applies to.
func clientsText(list []resource.ClientMatch) string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].String()
	}
	return strings.Join(out, ", ")
}

// tagRoute is the matcher of rules for the requests of one route. Its value is the hash in
// httpMatches of _rules.
const tagRoute = "__rule-matches-hash__"

// placed is a rule that contains an item, with the part of the proxy that it applies to.
type placed struct {
	rule  *policy.Rule
	place *Place // shared by all items of the rule
}

// placesOf returns the rules of a kind for the proxy by the items that they contain.
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
		p.addPlace(kind, Default, k.Proxy, Place{On: OnProxy})
	}
	for i := range k.From {
		f := &k.From[i]
		at := p.inbounds([]int{f.Inbound})
		if len(at) == 0 {
			continue
		}
		for _, m := range f.Matched {
			p.addPlace(kind, From, &m.Rule, Place{On: OnInbound, Inbound: &at[0], Match: &m.Match})
		}
		for _, r := range f.Entries {
			p.addPlace(kind, From, r, Place{On: OnInbound, Inbound: &at[0]})
		}
		for _, r := range f.Rules {
			p.addPlace(kind, From, r, Place{On: OnInbound, Inbound: &at[0], Matchers: r.Subset})
		}
		for _, route := range f.Routes {
			for _, m := range route.Matched {
				p.addPlace(kind, From, &m.Rule, Place{On: OnInbound, Inbound: &at[0], Route: route.Route.Name, Match: &m.Match})
			}
			for _, r := range route.Rules {
				p.addPlace(kind, From, r, Place{On: OnInbound, Inbound: &at[0], Route: route.Route.Name, Matchers: r.Subset})
			}
		}
	}
	taken := p.outbounds(k)
	p.routes(k, taken)
	return out
}

// addPlace registers a rule for each of its items.
func (p *Proxy) addPlace(kind string, in List, r *policy.Rule, position Place) {
	for _, o := range r.Origins {
		id := itemID{o.Policy.Key, in, o.Item}
		p.places[kind][id] = append(p.places[kind][id], placed{r, &position})
	}
}

// outbounds registers the rules that apply to outbounds of the proxy and returns them.
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
		p.addPlace(k.Kind, To, r, Place{On: OnOutbounds, Outbounds: groups[r]})
	}
	return taken
}

// routes registers the rules that apply to individual routes of the proxy. A rule may exist both
// for the resource of a route and for its hash; the hash is used only if there is no resource.
func (p *Proxy) routes(k *policy.KindRules, taken map[*policy.Rule]bool) {
	known := map[itemID]bool{}
	for _, r := range k.ToResources {
		if routes := p.rules.Kind(r.Resource.Kind); routes == nil || taken[&r.Rule] || !selects(routes, r.Resource) {
			continue
		}
		p.addPlace(k.Kind, To, &r.Rule, Place{On: OnRoute, Route: r.Resource.Name})
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
		position := &Place{On: OnRoute, Route: hash, Outbounds: []Destination{{Name: service}}}
		for _, o := range r.Origins {
			if id := (itemID{o.Policy.Key, To, o.Item}); !known[id] {
				p.places[k.Kind][id] = append(p.places[k.Kind][id], placed{r, position})
			}
		}
	}
}

// selects reports whether the policies that select the proxy include key.
func selects(k *policy.KindRules, key resource.Key) bool {
	return slices.ContainsFunc(k.Policies, func(p *resource.Resource) bool { return p.Key == key })
}
