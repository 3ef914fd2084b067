package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/explain"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// ruleSet is what the policies say about a proxy, as it is compared.
type ruleSet struct {
	kinds []KindRules // sorted by kind, without warnings
	rules []oneRule   // of all of them, in their order
}

// oneRule is a rule with whom it is about.
type oneRule struct {
	kind, about string
	conf        json.RawMessage
}

// rulesOf returns the rules of a proxy; a mesh or a dataplane that is not there has none.
func rulesOf(m *generate.Mesh, name string) (*ruleSet, error) {
	out := &ruleSet{}
	if m == nil || m.Policies == nil {
		return out, nil
	}
	dp := m.View.Dataplane(name)
	if dp == nil {
		return out, nil
	}
	p, err := explain.NewProxy(m.Policies, dp, nil)
	if err != nil {
		return nil, err
	}
	r := &rulesView{view: m.View, p: p, dataplane: dp, metas: map[*resource.Resource]ResourceMeta{}}
	out.kinds = r.kinds(func(*policy.KindRules) {})
	for i := range out.kinds {
		out.kinds[i].Warnings = []string{}
		out.list(&out.kinds[i])
	}
	return out, nil
}

// list names the rules of a kind. Names of one kind are distinct.
func (s *ruleSet) list(k *KindRules) {
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
			about = "to all real services"
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
			if route := f.Rules[j].Route; route != nil {
				about += ", requests of " + route.Type + "/" + route.Name
			}
			add(f.Rules[j].Conf, about)
		}
	}
}

// aboutTags says in words what matchers hold.
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

// ruleItems tells which rules change, the causes left open: of each kind those that there will be, then those that
// will be gone.
func ruleItems(from, to *ruleSet) ([]changedItem, error) {
	type id struct{ kind, about string }
	was, is := map[id]json.RawMessage{}, map[id]bool{}
	byKind := map[string][]oneRule{}
	for _, r := range from.rules {
		was[id{r.kind, r.about}] = r.conf
		byKind[r.kind] = append(byKind[r.kind], r)
	}
	for _, r := range to.rules {
		is[id{r.kind, r.about}] = true
	}
	var out []changedItem
	gone := func(kind string) {
		for _, r := range byKind[kind] {
			if !is[id{r.kind, r.about}] {
				out = append(out, changedItem{typ: r.kind, name: r.about, action: ActionDeleted})
			}
		}
		delete(byKind, kind)
	}
	i := 0
	for _, kind := range unionOfKinds(from.kinds, to.kinds) {
		for ; i < len(to.rules) && to.rules[i].kind == kind; i++ {
			r := &to.rules[i]
			before, had := was[id{r.kind, r.about}]
			item := changedItem{typ: r.kind, name: r.about, action: actionOf(had, true)}
			var err error
			if item.fields, err = confDiffs(before, r.conf); err != nil {
				return nil, err
			}
			if !had || len(item.fields) > 0 {
				out = append(out, item)
			}
		}
		gone(kind)
	}
	return out, nil
}

// confDiffs compares two confs; nil is one without fields.
func confDiffs(from, to json.RawMessage) ([]FieldDiff, error) {
	if string(from) == string(to) {
		return nil, nil
	}
	if from == nil {
		from = json.RawMessage("{}")
	}
	a, err := jsonpatch.Decode(from)
	if err != nil {
		return nil, err
	}
	b, err := jsonpatch.Decode(to)
	if err != nil {
		return nil, err
	}
	return fieldDiffs(a, jsonpatch.Diff(a, b), 0), nil
}

// unionOfKinds merges two lists of kinds, both sorted.
func unionOfKinds(a, b []KindRules) []string {
	var out []string
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Type < b[0].Type:
			out, a = append(out, a[0].Type), a[1:]
		case len(a) == 0 || b[0].Type < a[0].Type:
			out, b = append(out, b[0].Type), b[1:]
		default:
			out, a, b = append(out, a[0].Type), a[1:], b[1:]
		}
	}
	return out
}

// rulesPatch leads from the rules by kind to others.
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

// kinds renders the rules of every kind, sorted by kind, and shows each to also, in the order in which kinds act.
func (r *rulesView) kinds(also func(*policy.KindRules)) []KindRules {
	out := []KindRules{}
	for _, plugin := range r.p.Index().Plugins {
		for _, d := range plugin.Kinds {
			if k := r.p.Rules().Kind(d.Kind); k != nil {
				out = append(out, r.kind(k))
				also(k)
			}
		}
	}
	slices.SortFunc(out, func(a, b KindRules) int { return cmp.Compare(a.Type, b.Type) })
	return out
}
