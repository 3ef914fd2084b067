package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Rules is what all policies say about one proxy.
type Rules struct {
	Warnings []mesh.Warning // references that lead nowhere, and the like; each names the policy

	kinds  map[string]*KindRules
	legacy []legacyKind
	index  *Index
}

// Kind returns the rules of a kind; nil, on which every method is well defined, when no policy of
// it selects the proxy.
func (r *Rules) Kind(kind string) *KindRules {
	if r == nil {
		return nil
	}
	return r.kinds[kind]
}

// KindRules is what the policies of one kind say about one proxy.
type KindRules struct {
	Kind string
	// Policies are those that select the proxy, each stronger than the ones before.
	Policies []*resource.Resource
	// Proxy is about the proxy as a whole, for kinds with spec.default; nil for none.
	Proxy *Rule
	// To is about destinations that are kuma.io/service tags, the most specific first: the first rule
	// whose subset holds a destination decides.
	To []*Rule
	// ToResources is about destinations that are resources: service resources, routes, and the mesh
	// for all that have no rule of their own. Sorted by kind, name and section.
	ToResources []*ResourceRule
	// From is about clients, for each inbound that some policy selects, sorted by index.
	From []InboundRules
	// Warnings are those of this kind.
	Warnings []mesh.Warning

	byService  map[string]*Rule
	byResource map[resourceID]*ResourceRule
}

// Rule is one merged conf.
type Rule struct {
	Subset  Subset // whom it is about; empty for all
	Conf    resource.Conf
	Origins []Origin // what was merged, each over the ones before
}

// Origin is an item of a policy.
type Origin struct {
	Policy *resource.Resource
	Item   int // index in from, rules or to; 0 for default
}

// ResourceRule is a rule about one resource.
type ResourceRule struct {
	Rule
	Resource resource.Key      // kind Mesh for all destinations
	Section  string            // port of a service resource by name or number, "" for all
	Labels   map[string]string // of the resource
}

// InboundRules are the rules about the clients of one inbound.
type InboundRules struct {
	Inbound int // index in networking.inbound
	// Rules are disjoint: at most one holds a client. The one with the most tags comes first.
	Rules []*Rule
	// Matched are rules about clients by their certificates: the first whose match holds for a client
	// decides, and Rules are about those for whom none does.
	Matched []*MatchRule
	// Apart are the entries of spec.rules of kinds in which none overrides another, each a rule.
	Apart []*Rule
	// Routes are rules about requests of a route alone, of policies that target one and have from or
	// rules.
	Routes []RouteRules
	// Overflow is true when there were too many combinations of tags and weaker policies were left
	// out: a kind that guards something must then refuse what no rule admits.
	Overflow bool

	items []item
}

// RouteRules are rules about the requests of one route.
type RouteRules struct {
	Route   *resource.Resource
	Rules   []*Rule
	Matched []*MatchRule // as those of InboundRules
}

// Subset is a group of proxies or services by their tags.
type Subset []Tag

// Tag is one condition: the tag has the value, or with Not it does not.
type Tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Not   bool   `json:"not"`
}

type resourceID struct {
	key     resource.Key
	section string
}

// Holds reports whether every member of o is a member of s: each condition of s must follow from
// one of o.
func (s Subset) Holds(o Subset) bool {
	for _, t := range s {
		if !slices.ContainsFunc(o, func(u Tag) bool { return u.implies(t) }) {
			return false
		}
	}
	return true
}

// implies reports whether what fulfils t fulfils u.
func (t Tag) implies(u Tag) bool {
	switch {
	case t.Key != u.Key:
		return false
	case u.Not == t.Not:
		return t.Value == u.Value
	default:
		return u.Not && t.Value != u.Value
	}
}

// subsetOf makes a subset of tags, sorted by key.
func subsetOf(tags map[string]string) Subset {
	out := make(Subset, 0, len(tags))
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, Tag{Key: k, Value: tags[k]})
	}
	return out
}

func (s Subset) get(key string) (string, bool) {
	for _, t := range s {
		if t.Key == key {
			return t.Value, true
		}
	}
	return "", false
}

// meets reports whether something can be in both subsets. Neither has negations.
func (s Subset) meets(o Subset) bool {
	for _, t := range s {
		if v, ok := o.get(t.Key); ok && v != t.Value {
			return false
		}
	}
	return true
}

func (s Subset) positive() int {
	n := 0
	for _, t := range s {
		if !t.Not {
			n++
		}
	}
	return n
}

func (s Subset) compare(o Subset) int {
	return slices.CompareFunc(s, o, func(a, b Tag) int {
		if c := cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value)); c != 0 {
			return c
		}
		switch {
		case a.Not == b.Not:
			return 0
		case b.Not:
			return -1
		}
		return 1
	})
}

// maxRules bounds the combinations of tags that are told apart for one inbound. Kinds of a client
// multiply: n tags with two values each make 2^n of them.
const maxRules = 8192

// partition splits items into groups of which none meets another, so that each can be combined by
// itself: an item of one group and an item of another are never about the same client.
func partition(items []item) [][]item {
	if len(items) <= 1 {
		return [][]item{items}
	}
	// Items that all name the same tag part by its value, which is what long lists are like.
	if parts := byCommonTag(items); len(parts) > 1 {
		var out [][]item
		for _, p := range parts {
			out = append(out, partition(p)...)
		}
		return out
	}
	if len(items) > maxPairs || slices.ContainsFunc(items, func(it item) bool { return len(it.subset) == 0 }) {
		return [][]item{items}
	}
	return components(items)
}

// maxPairs bounds the lists in which every item is held against every other. A longer one is one
// group, which costs rules and is not wrong.
const maxPairs = 64

// components groups items that meet, directly or through others.
func components(items []item) [][]item {
	group := make([]int, len(items))
	for i := range group {
		group[i] = i
	}
	for i := range items {
		for j := range i {
			if group[i] != group[j] && items[i].subset.meets(items[j].subset) {
				from, to := max(group[i], group[j]), min(group[i], group[j])
				for k := range group {
					if group[k] == from {
						group[k] = to
					}
				}
			}
		}
	}
	var out [][]item
	for i := range items {
		if group[i] != i {
			continue
		}
		var g []item
		for j := range items {
			if group[j] == i {
				g = append(g, items[j])
			}
		}
		out = append(out, g)
	}
	return out
}

// tagValues are the values of one tag that a group of items names.
type tagValues struct {
	key    string
	values []string // sorted
}

func valuesOf(items []item) []tagValues {
	all := map[string]map[string]bool{}
	for _, it := range items {
		for _, t := range it.subset {
			if all[t.Key] == nil {
				all[t.Key] = map[string]bool{}
			}
			all[t.Key][t.Value] = true
		}
	}
	var out []tagValues
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, tagValues{k, slices.Sorted(maps.Keys(all[k]))})
	}
	return out
}

// combinations is how many subsets the tags make: for each tag, each of its values and none of
// them.
func combinations(tags []tagValues) int {
	n := 1
	for _, t := range tags {
		if n *= len(t.values) + 1; n > maxRules {
			return n
		}
	}
	return n
}

// combine calls emit for every combination of the tags that some item is about, with these items in
// their order.
func combine(items []item, tags []tagValues, at Subset, emit func(Subset, []item)) {
	if len(items) == 0 {
		return
	}
	if len(tags) == 0 {
		emit(slices.Clone(at), items)
		return
	}
	t := tags[0]
	without := 0
	for _, it := range items {
		if _, ok := it.subset.get(t.key); !ok {
			without++
		}
	}
	// The items of each value, with those that do not name the tag in between.
	byValue := make(map[string][]item, len(t.values))
	for _, v := range t.values {
		byValue[v] = make([]item, 0, without+1)
	}
	rest := make([]item, 0, without)
	for _, it := range items {
		if v, ok := it.subset.get(t.key); ok {
			byValue[v] = append(byValue[v], it)
			continue
		}
		rest = append(rest, it)
		for _, v := range t.values {
			byValue[v] = append(byValue[v], it)
		}
	}
	for _, v := range t.values {
		combine(byValue[v], tags[1:], append(at, Tag{Key: t.key, Value: v}), emit)
	}
	for _, v := range t.values {
		at = append(at, Tag{Key: t.key, Value: v, Not: true})
	}
	combine(rest, tags[1:], at, emit)
}
