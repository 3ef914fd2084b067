package change

import (
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
)

// ruleSet holds the rules that policies apply to a proxy, for comparison.
type ruleSet struct {
	kinds []explain.KindRules // sorted by kind, without warnings
	rules []oneRule           // all rules, in order
}

// oneRule is a rule with its scope.
type oneRule struct {
	kind, about string
	conf        json.RawMessage
}

// rulesOf returns the rules of a proxy. A missing mesh or dataplane has none.
func rulesOf(m *generate.Mesh, name string) (*ruleSet, error) {
	kinds, err := explain.RulesByKind(m, name)
	out := &ruleSet{kinds: kinds}
	for i := range kinds {
		out.list(&kinds[i])
	}
	return out, err
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
