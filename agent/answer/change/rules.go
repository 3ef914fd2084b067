package change

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ruleSet holds the rules that policies apply to a proxy, for comparison. It is immutable.
type ruleSet struct {
	kinds    []*kindSet // sorted by kind
	inbounds bool       // of some kind
}

// kindSet holds the rules of one kind.
type kindSet struct {
	kind     explain.KindRules // without warnings
	rules    []oneRule         // in order
	inbounds bool              // some rules apply to inbounds, and name their ports and tags
	text     json.RawMessage   // JSON of kind
}

var noRules, noKind = &ruleSet{}, &kindSet{}

// oneRule is a rule with its scope.
type oneRule struct {
	about string
	conf  json.RawMessage
}

// ruleCache caches the rules of classes of proxies, and their differences.
type ruleCache struct {
	sets  map[rulesKey]*ruleSet
	kinds map[kindKey]*kindSet
	pairs map[[2]*ruleSet]*rulesPair
	items map[[2]*kindSet][]changedItem
}

func newRuleCache() ruleCache {
	return ruleCache{map[rulesKey]*ruleSet{}, map[kindKey]*kindSet{}, map[[2]*ruleSet]*rulesPair{},
		map[[2]*kindSet][]changedItem{}}
}

// rulesKey identifies the rules of proxies that are in one class and have the same inbounds.
type rulesKey struct {
	match    *policy.Match
	inbounds string // "" if no rules apply to inbounds
}

// kindKey identifies the rules of a kind in the same way.
type kindKey struct {
	rules    *policy.KindRules
	inbounds string
}

// rulesPair is the difference between two rule sets.
type rulesPair struct {
	items []changedItem
	patch jsonpatch.Patch
}

// maxRuleSets is the maximum number of cached rule sets of a worker.
const maxRuleSets = 4096

// rulesOf returns the rules of a proxy. A missing mesh or dataplane has none.
func (w *worker) rulesOf(m *generate.Mesh, name string) (*ruleSet, error) {
	if m == nil || m.Policies == nil {
		return noRules, nil
	}
	r := m.View.Dataplane(name)
	if r == nil {
		return noRules, nil
	}
	dp, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return noRules, nil // unreachable: no such resource is decoded
	}
	match := w.memo.Match(m.Policies, r)
	key := rulesKey{match: match}
	out := w.rules.sets[key]
	if out != nil && !out.inbounds {
		return out, nil
	}
	named := rulesKey{match, inboundsText(dp)}
	if out = w.rules.sets[named]; out != nil {
		return out, nil
	}
	out = &ruleSet{}
	for i := range m.Policies.Plugins {
		for _, d := range m.Policies.Plugins[i].Kinds {
			k := match.Rules().Kind(d.Kind)
			if k == nil {
				continue
			}
			set, err := w.rulesOfKind(m, r, k, named.inbounds)
			if err != nil {
				return nil, err
			}
			out.kinds, out.inbounds = append(out.kinds, set), out.inbounds || set.inbounds
		}
	}
	slices.SortFunc(out.kinds, func(a, b *kindSet) int { return strings.Compare(a.kind.Type, b.kind.Type) })
	if len(w.rules.sets) > maxRuleSets {
		w.rules = newRuleCache()
	}
	w.rules.sets[key], w.rules.sets[named] = out, out
	return out, nil
}

// rulesOfKind returns the rules of a kind for a dataplane with these inbounds.
func (w *worker) rulesOfKind(m *generate.Mesh, dataplane *resource.Resource, k *policy.KindRules,
	inbounds string) (*kindSet, error) {
	if out := w.rules.kinds[kindKey{k, ""}]; out != nil && !out.inbounds {
		return out, nil
	}
	if out := w.rules.kinds[kindKey{k, inbounds}]; out != nil {
		return out, nil
	}
	out := &kindSet{kind: explain.RulesOfKind(m, dataplane, k)}
	out.list(&out.kind)
	out.inbounds = len(out.kind.FromRules)+len(out.kind.InboundRules) > 0
	var err error
	if out.text, err = json.Marshal(out.kind); err != nil {
		return nil, err
	}
	w.rules.kinds[kindKey{k, ""}], w.rules.kinds[kindKey{k, inbounds}] = out, out
	return out, nil
}

// inboundsText returns the ports and tags of inbounds.
func inboundsText(dp *resource.Dataplane) string {
	var b strings.Builder
	for i := range dp.Networking.Inbound {
		in := &dp.Networking.Inbound[i]
		fmt.Fprintf(&b, "%d %q", in.Port, in.Tags) // fmt sorts maps
	}
	return b.String()
}

// rulesDiff returns the difference between the rules of a proxy: for each kind, the rules after the
// change, then the removed ones, without causes; and the patch of the rules by kind.
func (w *worker) rulesDiff(from, to *ruleSet) (*rulesPair, error) {
	key := [2]*ruleSet{from, to}
	if p := w.rules.pairs[key]; p != nil {
		return p, nil
	}
	out := &rulesPair{}
	was, is := map[string]any{}, map[string]any{}
	a, b := from.kinds, to.kinds
	for len(a) > 0 || len(b) > 0 {
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = strings.Compare(a[0].kind.Type, b[0].kind.Type)
		}
		before, after := noKind, noKind
		if order <= 0 {
			before, a = a[0], a[1:]
		}
		if order >= 0 {
			after, b = b[0], b[1:]
		}
		if before == after {
			continue
		}
		items, err := w.kindItems(before, after)
		if err != nil {
			return nil, err
		}
		out.items = append(out.items, items...)
		if before != noKind {
			was[before.kind.Type] = before.text
		}
		if after != noKind {
			is[after.kind.Type] = after.text
		}
	}
	out.patch = append(jsonpatch.Patch{}, jsonpatch.Diff(was, is)...)
	w.rules.pairs[key] = out
	return out, nil
}

// list names the rules of a kind. Names within a kind are distinct.
func (s *kindSet) list(k *explain.KindRules) {
	seen := map[string]int{}
	add := func(conf json.RawMessage, about string) {
		if seen[about]++; seen[about] > 1 {
			about = fmt.Sprintf("%s (%d)", about, seen[about])
		}
		s.rules = append(s.rules, oneRule{about, conf})
	}
	if k.ProxyRule != nil {
		add(k.ProxyRule.Conf, "the proxy")
	}
	for i := range k.ToRules {
		add(k.ToRules[i].Conf, "to "+aboutTags(k.ToRules[i].Matchers, "all services"))
	}
	for i := range k.ToResourceRules {
		r := &k.ToResourceRules[i]
		about := "to " + r.ResourceMeta.Type + "/" + r.ResourceMeta.Name
		switch {
		case r.ResourceMeta.Type == kindMesh:
			about = "to all MeshService resources"
		case r.ResourceSectionName != "":
			about += ", port " + r.ResourceSectionName
		}
		for _, conf := range r.Conf {
			add(conf, about)
		}
	}
	for i := range k.Clients() {
		f := &k.Clients()[i]
		for j := range f.Rules {
			about := fmt.Sprintf("inbound %d, from %s", f.Inbound.Port, aboutTags(f.Rules[j].Matchers, "all clients"))
			if m := f.Rules[j].Match; m != nil {
				about = fmt.Sprintf("inbound %d, from %s", f.Inbound.Port, m)
			}
			if route := f.Rules[j].Route; route != nil {
				about += ", requests of " + route.Type + "/" + route.Name
			}
			add(f.Rules[j].Conf, about)
		}
	}
	for i := range k.InboundRules {
		f := &k.InboundRules[i]
		for _, r := range f.Rules {
			if o := r.Origin[0]; f.Apart {
				add(r.Conf[0], fmt.Sprintf("inbound %d, rules[%d] of %s", f.Inbound.Port, o.RuleIndex, o.ResourceMeta.Name))
			}
		}
	}
}

// aboutTags describes tags of matchers.
func aboutTags(tags []policy.Tag, none string) string {
	if len(tags) == 0 {
		return none
	}
	out := make([]string, len(tags))
	for i, t := range tags {
		op := "="
		if t.Not {
			op = "!="
		}
		out[i] = t.Key + op + t.Value
	}
	return strings.Join(out, ", ")
}

// kindItems returns the changed rules of a kind.
func (w *worker) kindItems(from, to *kindSet) ([]changedItem, error) {
	key := [2]*kindSet{from, to}
	if out, ok := w.rules.items[key]; ok {
		return out, nil
	}
	was, is := map[string]json.RawMessage{}, map[string]bool{}
	for _, r := range from.rules {
		was[r.about] = r.conf
	}
	var out []changedItem
	for _, r := range to.rules {
		is[r.about] = true
		before, had := was[r.about]
		if had && string(before) == string(r.conf) {
			continue
		}
		if !had {
			before = json.RawMessage("{}")
		}
		fields, err := jsonpatch.FieldsBetween(before, r.conf)
		if err != nil {
			return nil, err
		}
		if !had || len(fields) > 0 {
			out = append(out, changedItem{to.kind.Type, r.about, actionOf(had, true), fields})
		}
	}
	for _, r := range from.rules {
		if !is[r.about] {
			out = append(out, changedItem{typ: from.kind.Type, name: r.about, action: api.ActionDeleted})
		}
	}
	w.rules.items[key] = out
	return out, nil
}
