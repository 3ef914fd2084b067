package change

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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
	kinds    []explain.KindRules // sorted by kind, without warnings
	rules    []oneRule           // all rules, in order
	inbounds bool                // some rules apply to inbounds, and name their ports and tags
}

var noRules = &ruleSet{}

// oneRule is a rule with its scope.
type oneRule struct {
	kind, about string
	conf        json.RawMessage
}

// ruleCache caches the rules of classes of proxies, and their differences.
type ruleCache struct {
	sets  map[rulesKey]*ruleSet
	pairs map[[2]*ruleSet]*rulesPair
}

func newRuleCache() ruleCache {
	return ruleCache{map[rulesKey]*ruleSet{}, map[[2]*ruleSet]*rulesPair{}}
}

// rulesKey identifies the rules of proxies that are in one class and have the same inbounds.
type rulesKey struct {
	match    *policy.Match
	inbounds string // "" if no rules apply to inbounds
}

// rulesPair is the difference between two rule sets.
type rulesPair struct {
	items []changedItem
	patch jsonpatch.Patch
}

// maxRuleSets is the maximum number of cached rule sets of a worker.
const maxRuleSets = 4096

// rulesOf returns the rules of a proxy. A missing mesh or dataplane has none.
func (w *worker) rulesOf(m *generate.Mesh, name string) *ruleSet {
	if m == nil || m.Policies == nil {
		return noRules
	}
	r := m.View.Dataplane(name)
	if r == nil {
		return noRules
	}
	dp, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return noRules // unreachable: no such resource is decoded
	}
	match := w.memo.Match(m.Policies, r)
	key := rulesKey{match: match}
	out := w.rules.sets[key]
	if out != nil && !out.inbounds {
		return out
	}
	named := rulesKey{match, inboundsText(dp)}
	if out = w.rules.sets[named]; out != nil {
		return out
	}
	out = &ruleSet{kinds: explain.RulesByKind(m, r, match.Rules())}
	for i := range out.kinds {
		out.list(&out.kinds[i])
		out.inbounds = out.inbounds || len(out.kinds[i].FromRules)+len(out.kinds[i].InboundRules) > 0
	}
	if len(w.rules.sets) > maxRuleSets {
		w.rules = newRuleCache()
	}
	w.rules.sets[key], w.rules.sets[named] = out, out
	return out
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

// rulesDiff returns the difference between the rules of a proxy.
func (w *worker) rulesDiff(from, to *ruleSet) (*rulesPair, error) {
	key := [2]*ruleSet{from, to}
	if p := w.rules.pairs[key]; p != nil || from == to {
		return cmp.Or(p, &rulesPair{patch: jsonpatch.Patch{}}), nil
	}
	items, err := ruleItems(from, to)
	if err != nil {
		return nil, err
	}
	patch, err := rulesPatch(from, to)
	if err != nil {
		return nil, err
	}
	p := &rulesPair{items, patch}
	w.rules.pairs[key] = p
	return p, nil
}

// list names the rules of a kind. Names within a kind are distinct.
func (s *ruleSet) list(k *explain.KindRules) {
	seen := map[string]int{}
	add := func(conf json.RawMessage, about string) {
		if seen[about]++; seen[about] > 1 {
			about = fmt.Sprintf("%s (%d)", about, seen[about])
		}
		s.rules = append(s.rules, oneRule{k.Type, about, conf})
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
	for i := range k.FromRules {
		f := &k.FromRules[i]
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

// ruleItems returns the changed rules without causes: for each kind, the rules after the change,
// then the removed ones.
func ruleItems(from, to *ruleSet) ([]changedItem, error) {
	type id struct{ kind, about string }
	was, is := map[id]json.RawMessage{}, map[id]bool{}
	kinds := map[string]bool{}
	for _, r := range from.rules {
		was[id{r.kind, r.about}], kinds[r.kind] = r.conf, true
	}
	for _, r := range to.rules {
		is[id{r.kind, r.about}], kinds[r.kind] = true, true
	}
	var out []changedItem
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for _, r := range to.rules {
			before, had := was[id{r.kind, r.about}]
			if r.kind != kind || had && string(before) == string(r.conf) {
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
				out = append(out, changedItem{r.kind, r.about, actionOf(had, true), fields})
			}
		}
		for _, r := range from.rules {
			if r.kind == kind && !is[id{r.kind, r.about}] {
				out = append(out, changedItem{typ: r.kind, name: r.about, action: api.ActionDeleted})
			}
		}
	}
	return out, nil
}

// rulesPatch returns the patch between two rule sets, by kind.
func rulesPatch(from, to *ruleSet) (jsonpatch.Patch, error) {
	var docs [2]any
	for i, s := range [...]*ruleSet{from, to} {
		byKind := make(map[string]any, len(s.kinds))
		for j := range s.kinds {
			b, err := json.Marshal(s.kinds[j])
			if err != nil {
				return nil, err
			}
			byKind[s.kinds[j].Type] = json.RawMessage(b)
		}
		docs[i] = byKind
	}
	return append(jsonpatch.Patch{}, jsonpatch.Diff(docs[0], docs[1])...), nil
}
