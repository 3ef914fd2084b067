package effect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// layout says to which parts of a proxy the rules of policies apply.
type layout struct {
	index     *policy.Index
	rules     *policy.Rules
	dataplane *resource.Resource
	spec      *resource.Dataplane
	services  []*mesh.Service // that the workload can call, without duplicates
	merged    *Merged
	kinds     map[string]map[itemID][]*spot
}

func newLayout(m *generate.Mesh, rules *policy.Rules, dataplane *resource.Resource, spec *resource.Dataplane) *layout {
	l := &layout{index: m.Policies, rules: rules, dataplane: dataplane, spec: spec, merged: NewMerged(),
		kinds: map[string]map[itemID][]*spot{}}
	outbounds, _ := m.Policies.Outbounds(dataplane)
	l.services = ServicesOf(outbounds)
	return l
}

// ServicesOf returns the services of outbounds without duplicates, sorted by kind and name.
func ServicesOf(outbounds []mesh.Outbound) []*mesh.Service {
	var out []*mesh.Service
	seen := map[mesh.ServiceID]bool{}
	for i := range outbounds {
		if s := outbounds[i].Service; !seen[s.ID] {
			seen[s.ID] = true
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *mesh.Service) int {
		return cmp.Or(cmp.Compare(a.ID.Kind, b.ID.Kind), cmp.Compare(a.ID.Name, b.ID.Name))
	})
	return out
}

// spot is a place with the rule that applies there.
type spot struct {
	Place
	in       List
	rule     *policy.Rule // nil for a legacy policy
	services []*mesh.Service
	inbound  int // index, or -1
	// legacy returns the source that decides about a field of a legacy policy at this spot instead of
	// it, or nil.
	legacy func(path string) *Source
	only   idSet // resources of the spot, if it has no rule
}

// entry is an item of a policy with its spots.
type entry struct {
	Item
	in     List
	item   *item
	tokens []string // of its conf in the document
	spots  []*spot
}

// entries returns the items of a policy that selects the dataplane.
func (l *layout) entries(r *resource.Resource) []*entry {
	spec, ok := r.Spec.(*resource.Policy)
	if !ok {
		return l.legacyEntries(r)
	}
	var out []*entry
	add := func(in List, i int, t *resource.TargetRef, about string) {
		it := l.merged.items.get(r, in, i)
		e := &entry{in: in, item: it, tokens: tokensOf(it.source.Field), spots: l.spots(r.Kind)[itemID{r.Key, in, i}]}
		e.Item = Item{Field: it.source.Field, TargetRef: t, About: about, Places: []Place{}}
		switch {
		case len(e.spots) == 0:
			e.Reason = l.noPlaceReason(r, in, t)
		case len(it.leaves) == 0:
			e.Reason = "the conf is empty"
		}
		out = append(out, e)
	}
	for i := range spec.From {
		add(From, i, &spec.From[i].TargetRef, TargetText(&spec.From[i].TargetRef))
	}
	for i := range spec.Rules {
		add(From, i, nil, clientsText(spec.Rules[i].Matches))
	}
	for i := range spec.To {
		add(To, i, &spec.To[i].TargetRef, TargetText(&spec.To[i].TargetRef))
	}
	if spec.Default != nil {
		add(Default, 0, nil, "")
	}
	return out
}

// tokensOf splits the path of a conf, such as "spec.to[0].default".
func tokensOf(field string) []string {
	return strings.FieldsFunc(field, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// rulesAlone reports whether rules decide alone at all given inbounds.
func (l *layout) rulesAlone(r *resource.Resource, inbounds []int) bool {
	return !slices.ContainsFunc(inbounds, func(i int) bool {
		in := l.rules.Kind(r.Kind).Inbound(i)
		return in == nil || len(in.Entries) == 0
	})
}

// noPlaceReason explains why no rule of the proxy contains an item.
func (l *layout) noPlaceReason(r *resource.Resource, in List, t *resource.TargetRef) string {
	sel := l.index.Select(r, l.dataplane)
	routes := t != nil && len(l.index.Policies(t.Kind)) > 0
	switch {
	case in == From && len(sel.Inbounds) == 0:
		return "from applies to inbounds, but no inbound is selected"
	case in == From && t != nil && l.rulesAlone(r, sel.Inbounds):
		return "rules decide alone at the inbounds that it selects"
	case in == From:
		return fmt.Sprintf("clients cannot be identified by %s; see the warnings", TargetText(t))
	case in == To && len(l.services) == 0:
		return "the dataplane has no outbounds"
	case in == To && sel.Route != nil:
		return "no outbound of the dataplane has the route"
	case in == To && routes:
		return fmt.Sprintf("no request of the dataplane uses %s", TargetText(t))
	case in == To:
		return fmt.Sprintf("no outbound of the dataplane leads to %s", TargetText(t))
	}
	return ""
}

// TargetText formats a targetRef with its kind, name, and selectors. Nil is the whole mesh.
func TargetText(t *resource.TargetRef) string {
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

// InboundsOf returns inbounds of a dataplane by index.
func InboundsOf(spec *resource.Dataplane, list []int) []Inbound {
	out := make([]Inbound, 0, len(list))
	for _, i := range list {
		if i >= 0 && i < len(spec.Networking.Inbound) {
			in := &spec.Networking.Inbound[i]
			out = append(out, Inbound{Port: in.Port, Name: in.Name})
		}
	}
	return out
}

// tagRoute is the matcher of rules for the requests of one route. Its value is the hash in
// httpMatches of _rules.
const tagRoute = "__rule-matches-hash__"

// spots returns the rules of a kind for the proxy by the items that they contain.
func (l *layout) spots(kind string) map[itemID][]*spot {
	out, ok := l.kinds[kind]
	if ok {
		return out
	}
	out = map[itemID][]*spot{}
	l.kinds[kind] = out
	k := l.rules.Kind(kind)
	if k == nil {
		return out
	}
	if k.Proxy != nil {
		l.add(kind, &spot{in: Default, rule: k.Proxy, inbound: -1, Place: Place{On: OnProxy}})
	}
	for i := range k.From {
		f := &k.From[i]
		at := InboundsOf(l.spec, []int{f.Inbound})
		if len(at) == 0 {
			continue
		}
		from := func(r *policy.Rule, route *resource.Resource, m *resource.ClientMatch, tags []policy.Tag) {
			if m != nil && *m == (resource.ClientMatch{}) {
				m = nil // all clients
			}
			s := &spot{in: From, rule: r, inbound: f.Inbound,
				Place: Place{On: OnInbound, Inbound: &at[0], Match: m, Matchers: tags}}
			if route != nil {
				s.Route = route.Name
			}
			l.add(kind, s)
		}
		for _, m := range f.Matched {
			from(&m.Rule, nil, &m.Match, nil)
		}
		for _, r := range f.Entries {
			from(r, nil, nil, nil)
		}
		for _, r := range f.Rules {
			from(r, nil, nil, r.Subset)
		}
		for _, route := range f.Routes {
			for _, m := range route.Matched {
				from(&m.Rule, route.Route, &m.Match, nil)
			}
			for _, r := range route.Rules {
				from(r, route.Route, nil, r.Subset)
			}
		}
	}
	l.routes(k, l.outbounds(k))
	return out
}

// add registers a spot for each item of its rule.
func (l *layout) add(kind string, s *spot) {
	for _, o := range s.rule.Origins {
		id := itemID{o.Policy.Key, s.in, o.Item}
		l.kinds[kind][id] = append(l.kinds[kind][id], s)
	}
}

// outbounds registers the rules that apply to outbounds of the proxy and returns them.
func (l *layout) outbounds(k *policy.KindRules) map[*policy.Rule]bool {
	var order []*policy.Rule
	groups, taken := map[*policy.Rule][]*mesh.Service{}, map[*policy.Rule]bool{}
	for _, s := range l.services {
		r := k.ServiceRule(s)
		if r == nil {
			continue
		}
		if !taken[r] {
			taken[r] = true
			order = append(order, r)
		}
		groups[r] = append(groups[r], s)
	}
	for _, r := range order {
		l.add(k.Kind, &spot{in: To, rule: r, inbound: -1, services: groups[r], Place: Place{On: OnOutbounds}})
	}
	return taken
}

// routes registers the rules that apply to individual routes of the proxy. A rule may exist both
// for the resource of a route and for its hash; the hash is used only if there is no resource.
func (l *layout) routes(k *policy.KindRules, taken map[*policy.Rule]bool) {
	known := map[itemID]bool{}
	for _, r := range k.ToResources {
		if routes := l.rules.Kind(r.Resource.Kind); routes == nil || taken[&r.Rule] || !selects(routes, r.Resource) {
			continue
		}
		l.add(k.Kind, &spot{in: To, rule: &r.Rule, inbound: -1, Place: Place{On: OnRoute, Route: r.Resource.Name}})
		for _, o := range r.Origins {
			known[itemID{o.Policy.Key, To, o.Item}] = true
		}
	}
	dials := map[string]*mesh.Service{}
	for _, s := range l.services {
		if s.ID.Kind == mesh.KindTag {
			dials[s.ID.Name] = s
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
		if hash == "" || dials[service] == nil || taken[r] {
			continue
		}
		s := &spot{in: To, rule: r, inbound: -1, services: []*mesh.Service{dials[service]},
			Place: Place{On: OnRoute, Route: hash, Outbounds: []Destination{{Name: service}}}}
		for _, o := range r.Origins {
			if id := (itemID{o.Policy.Key, To, o.Item}); !known[id] {
				l.kinds[k.Kind][id] = append(l.kinds[k.Kind][id], s)
			}
		}
	}
}

// selects reports whether the policies that select the proxy include key.
func selects(k *policy.KindRules, key resource.Key) bool {
	return slices.ContainsFunc(k.Policies, func(p *resource.Resource) bool { return p.Key == key })
}
