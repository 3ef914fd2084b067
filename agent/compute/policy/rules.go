package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Rules holds the merged policies of one proxy.
type Rules struct {
	Warnings []mesh.Warning // such as unresolved references; each names the policy

	kinds  map[string]*KindRules
	legacy []legacyKind
	index  *Index
}

// Kind returns the rules of a kind, or nil if no policy of it selects the proxy. All methods of
// KindRules accept a nil receiver.
func (r *Rules) Kind(kind string) *KindRules {
	if r == nil {
		return nil
	}
	return r.kinds[kind]
}

// KindRules holds the merged policies of one kind for one proxy.
type KindRules struct {
	Kind string
	// Policies are those that select the proxy, in order of increasing precedence.
	Policies []*resource.Resource
	// Proxy applies to the whole proxy, for kinds with spec.default; nil for none.
	Proxy *Rule
	// To applies to destinations by kuma.io/service tag, the most specific first. The first rule
	// whose subset holds a destination decides.
	To []*Rule
	// ToResources applies to destinations that are resources: service resources, routes, and the
	// mesh for all resources without a specific rule. It is sorted by kind, name, and section.
	ToResources []*ResourceRule
	// From applies to clients, for each inbound that some policy selects, sorted by index.
	From []InboundRules
	// Warnings are the warnings of this kind.
	Warnings []mesh.Warning

	byService  map[string]*Rule
	byResource map[resourceID]*ResourceRule
}

// Rule is one merged conf.
type Rule struct {
	Subset  Subset // the selected clients or destinations; empty for all
	Conf    resource.Conf
	Origins []Origin // the merged items in order of increasing precedence
}

// Origin is an item of a policy.
type Origin struct {
	Policy *resource.Resource
	Item   int // index in from, rules or to; 0 for default
}

// ResourceRule is a rule for one resource.
type ResourceRule struct {
	Rule
	Resource resource.Key      // kind Mesh for all destinations
	Section  string            // port of a service resource by name or number, "" for all
	Labels   map[string]string // of the resource
}

// InboundRules are the rules for the clients of one inbound.
type InboundRules struct {
	Inbound int // index in networking.inbound
	// Rules are disjoint: at most one holds a client. Rules with the most tags come first.
	Rules []*Rule
	// Matched selects clients by matches. The first rule that matches a client decides; Rules apply to
	// clients without a match. For kinds whose rules act separately, it holds each rule of spec.rules
	// once per match, or once with an empty match for all clients, and all that match a client act.
	Matched []*MatchRule
	Apart   bool // the rules of spec.rules act separately
	// Entries are the entries of spec.rules, one rule each, for kinds in which no entry overrides
	// another.
	Entries []*Rule
	// Routes apply only to requests of a route. They come from policies that target a route and
	// have from or rules.
	Routes []RouteRules
	// Overflow is true if there were too many combinations of tags and weaker policies were
	// dropped. A kind that enforces access must then deny what no rule admits.
	Overflow bool

	items []item
}

// RouteRules are the rules for the requests of one route.
type RouteRules struct {
	Route   *resource.Resource
	Rules   []*Rule
	Matched []*MatchRule // like InboundRules.Matched
}

// Subset selects proxies or services by their tags.
type Subset []Tag

// Tag is one condition: the tag has the value, or, with Not, it does not.
type Tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Not   bool   `json:"not"`
}

type resourceID struct {
	key     resource.Key
	section string
}

// Holds reports whether every member of o is a member of s: each condition of s must follow from a
// condition of o.
func (s Subset) Holds(o Subset) bool {
	for _, t := range s {
		if !slices.ContainsFunc(o, func(u Tag) bool { return u.implies(t) }) {
			return false
		}
	}
	return true
}

// implies reports whether t implies u.
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

// SubsetOf returns the subset for tags, sorted by key.
func SubsetOf(tags map[string]string) Subset {
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

// meets reports whether the subsets, which have no negations, can have a common member.
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

func (s Subset) Compare(o Subset) int {
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

// maxRules limits the combinations of tags that are distinguished for one inbound. Their number
// grows exponentially: n tags with two values each have 2^n combinations.
const maxRules = 8192

// partition splits items into groups with no compatible items between them, so that each group can
// be combined separately: items of different groups never select the same client.
func partition(items []item) [][]item {
	if len(items) <= 1 {
		return [][]item{items}
	}
	// Long lists typically consist of items that all name one tag, so group by its value first.
	if groups := byCommonTag(items); len(groups) > 1 {
		var out [][]item
		for _, p := range groups {
			out = append(out, partition(p)...)
		}
		return out
	}
	if len(items) > maxPairs || slices.ContainsFunc(items, func(it item) bool { return len(it.subset) == 0 }) {
		return [][]item{items}
	}
	return components(items)
}

// maxPairs limits the length of lists whose items are compared pairwise. A longer list forms one
// group, which is correct but results in more rules.
const maxPairs = 64

// components groups items that are compatible, directly or transitively.
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

// tagValues holds the values of one tag that a group of items names.
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

// combinations returns the number of subsets for the tags: for each tag, each of its values, and
// none of them. It stops counting above maxRules.
func combinations(tags []tagValues) int {
	n := 1
	for _, t := range tags {
		if n *= len(t.values) + 1; n > maxRules {
			return n
		}
	}
	return n
}

// combine calls emit for every combination of the tags that some item selects, with its items in
// order.
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
	// The items of each value, interleaved in order with those that do not name the tag.
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
