package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// tagRoute is the matcher of rules about the requests of one route; its value is the hash in httpMatches of _rules.
const tagRoute = "__rule-matches-hash__"

// item looks for the rules that an item of a policy went into.
func (p *Proxy) item(k *policy.KindRules, r *resource.Resource, in List, i int, t *resource.TargetRef, about *Policy) Item {
	conf, source := itemOf(r, in, i)
	out := Item{Field: source.Field, TargetRef: t, Places: []Place{}}
	if t != nil {
		out.About = words(t)
	}
	own := leavesOf(conf)
	add := func(rule *policy.Rule, place Place) bool {
		if !holds(rule, r, i) {
			return false
		}
		place.Fields = p.sets(rule, in, own, source)
		place.Effect = effectOf(place.Fields)
		out.Places = append(out.Places, place)
		return true
	}
	switch in {
	case Default:
		add(k.Proxy, Place{On: OnProxy})
	case From:
		for j := range k.From {
			f := &k.From[j]
			at := p.inbounds([]int{f.Inbound})
			if len(at) == 0 {
				continue
			}
			for _, rule := range f.Rules {
				add(rule, Place{On: OnInbound, Inbound: &at[0], Matchers: rule.Subset})
			}
			for _, route := range f.Routes {
				for _, rule := range route.Rules {
					add(rule, Place{On: OnInbound, Inbound: &at[0], Route: route.Route.Name, Matchers: rule.Subset})
				}
			}
		}
	case To:
		p.destinations(k, add)
	}
	for _, pl := range out.Places {
		about.addOutbounds(pl.Outbounds)
	}
	switch {
	case len(out.Places) == 0:
		out.Reason = p.unplaced(in, t, about)
	case len(own) == 0:
		out.Reason = "the conf is empty"
	}
	out.Effect = sumOf(out.Places, func(pl Place) string { return pl.Effect })
	return out
}

// destinations offers the rules that outbounds of the proxy take, each with its outbounds, and then those of routes.
func (p *Proxy) destinations(k *policy.KindRules, add func(*policy.Rule, Place) bool) {
	var order []*policy.Rule
	groups := map[*policy.Rule][]Destination{}
	tags := map[string]Destination{}
	for _, s := range p.services {
		if s.ID.Kind == mesh.KindTag {
			tags[s.ID.Name] = destinationOf(s)
		}
		rule := k.ServiceRule(s)
		if rule == nil {
			continue
		}
		if groups[rule] == nil {
			order = append(order, rule)
		}
		groups[rule] = append(groups[rule], destinationOf(s))
	}
	for _, rule := range order {
		add(rule, Place{On: OnOutbounds, Outbounds: groups[rule]})
	}
	for _, rule := range k.To {
		route, service := "", ""
		for _, t := range rule.Subset {
			switch {
			case t.Not:
			case t.Key == tagRoute:
				route = t.Value
			case t.Key == resource.TagService:
				service = t.Value
			}
		}
		d, ok := tags[service]
		if route == "" || !ok || groups[rule] != nil {
			continue
		}
		add(rule, Place{On: OnRoute, Route: route, Outbounds: []Destination{d}})
	}
	for _, rule := range k.ToResources {
		if rule.Resource.Kind == "MeshHTTPRoute" && groups[&rule.Rule] == nil {
			add(&rule.Rule, Place{On: OnRoute, Route: rule.Resource.Name})
		}
	}
}

// holds reports whether a rule was merged from an item.
func holds(r *policy.Rule, p *resource.Resource, i int) bool {
	return r != nil && slices.ContainsFunc(r.Origins, func(o policy.Origin) bool { return o.Item == i && o.Policy.Key == p.Key })
}

// sets says which fields of an item are in force in a rule.
func (p *Proxy) sets(rule *policy.Rule, in List, own []leaf, source Source) []Set {
	merged := p.Fields(rule, in)
	out := make([]Set, 0, len(own))
	for _, l := range own {
		s := Set{Path: l.path, Value: l.value, By: []Source{}}
		i := slices.IndexFunc(merged, func(f Field) bool { return f.Path == l.path })
		switch {
		case i < 0: // the value is a mapping in one policy and none in the other: the later took its place
			s.By = append(s.By, lastOther(merged, l.path)...)
		case slices.Contains(merged[i].By, source):
			s.InForce = true
		default:
			s.By = append(s.By, merged[i].By...)
		}
		out = append(out, s)
	}
	return out
}

// lastOther returns where the fields come from that stand above or below a path.
func lastOther(merged []Field, path string) []Source {
	for _, f := range merged {
		if strings.HasPrefix(f.Path, path) || strings.HasPrefix(path, f.Path) {
			return f.By
		}
	}
	return nil
}

// unplaced says why no rule of the proxy was made from an item.
func (p *Proxy) unplaced(in List, t *resource.TargetRef, about *Policy) string {
	switch {
	case in == From && len(about.Inbounds) == 0:
		return "no inbound is selected, and from is about connections that arrive"
	case in == From:
		return fmt.Sprintf("no client can be told by %s; the warnings say more", words(t))
	case in == To && len(p.services) == 0:
		return "the dataplane has no outbounds"
	case in == To && about.Route != nil:
		return "no outbound of the dataplane has the route"
	case in == To:
		return fmt.Sprintf("no outbound of the dataplane leads to %s", words(t))
	}
	return ""
}

func (out *Policy) addOutbounds(list []Destination) {
	for _, d := range list {
		if !slices.Contains(out.Outbounds, d) {
			out.Outbounds = append(out.Outbounds, d)
		}
	}
}

// sum derives the effect of the policy from those of its items.
func (out *Policy) sum() {
	out.Effect = sumOf(out.Items, func(it Item) string { return it.Effect })
}

// quench takes all that the policy says out of force.
func (out *Policy) quench() {
	for i := range out.Items {
		it := &out.Items[i]
		it.Effect = EffectNone
		for j := range it.Places {
			it.Places[j].Effect = EffectNone
			for k := range it.Places[j].Fields {
				it.Places[j].Fields[k].InForce = false
			}
		}
	}
}

func effectOf(fields []Set) string {
	return sumOf(fields, func(s Set) string {
		if s.InForce {
			return EffectAll
		}
		return EffectNone
	})
}

// sumOf is all or none where every part is, else part.
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

// words names a targetRef: its kind, name and what else it says. Nil is the whole mesh.
func words(t *resource.TargetRef) string {
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
