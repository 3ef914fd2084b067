package change

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxConflicts is the maximum number of listed conflicts in one mesh.
const maxConflicts = 100

// conflicts finds policies of the same rank that set the same fields to different values, so that
// only their names decide: both select the same proxies with the same targetRef and set a field for
// the same targetRef. At least one policy of a pair must belong to the change. Lists are ignored,
// because many kinds merge them.
func conflicts(m *generate.Mesh, of []*candidate) []mesh.Warning {
	if m == nil || m.Policies == nil {
		return nil
	}
	concerned, kinds := map[resource.Key]bool{}, map[string]bool{}
	for _, c := range of {
		concerned[c.key], kinds[c.key.Kind] = true, true
	}
	var out []mesh.Warning
	for _, plugin := range m.Policies.Plugins {
		for _, d := range plugin.Kinds {
			if !kinds[d.Kind] {
				continue
			}
			ranks := map[string][]*resource.Resource{}
			for _, r := range m.Policies.Policies(d.Kind) {
				if rank, ok := rankOf(r); ok {
					ranks[rank] = append(ranks[rank], r)
				}
			}
			for _, rank := range slices.Sorted(maps.Keys(ranks)) {
				if out = append(out, conflictsIn(ranks[rank], concerned, maxConflicts-len(out))...); len(out) >= maxConflicts {
					return out[:maxConflicts]
				}
			}
		}
	}
	return out
}

// rankOf returns a key that is equal for policies whose precedence depends only on their names.
func rankOf(r *resource.Resource) (string, bool) {
	spec, ok := r.Spec.(*resource.Policy)
	if !ok {
		return "", false
	}
	top := resource.TargetRef{Kind: kindMesh}
	if spec.TargetRef != nil {
		top = *spec.TargetRef
	}
	b, err := json.Marshal(top)
	if err != nil {
		return "", false
	}
	return string(b) + r.Labels[resource.LabelOrigin] + "/" + r.Labels[resource.LabelPolicyRole] + "/" +
		r.Labels[resource.LabelNamespace], true
}

// conflictsIn compares policies of one rank, in ascending precedence, with those of the change.
func conflictsIn(list []*resource.Resource, concerned map[resource.Key]bool, most int) []mesh.Warning {
	var said []statement // highest precedence last
	for _, r := range list {
		said = append(said, statementsOf(r)...)
	}
	winner := map[string]statement{} // by slot
	for _, s := range slices.Backward(said) {
		if _, ok := winner[s.slot]; !ok {
			winner[s.slot] = s
		}
	}
	var out []mesh.Warning
	for _, s := range said {
		w := winner[s.slot]
		if len(out) == most || w.policy == s.policy || w.value == s.value ||
			!concerned[w.policy.Key] && !concerned[s.policy.Key] {
			continue
		}
		out = append(out, mesh.Warning{Resource: s.policy.Key, Reason: fmt.Sprintf(
			"%s: %s is without effect beside %s in %s, which is as specific and whose name comes first; keep one of the two",
			s.field, s.value, w.value, w.policy.Key)})
	}
	return out
}

// statement is a field that a policy sets.
type statement struct {
	policy *resource.Resource
	slot   string // equal for two statements that exclude each other
	field  string // path of the field
	value  string
}

func statementsOf(r *resource.Resource) []statement {
	spec, ok := r.Spec.(*resource.Policy)
	if !ok {
		return nil
	}
	var out []statement
	add := func(list, field string, ref *resource.TargetRef, conf resource.Conf) {
		b, err := json.Marshal(ref)
		if err != nil || conf == nil {
			return
		}
		doc, err := jsonpatch.Decode(confJSON(conf))
		if err != nil {
			return
		}
		scalars(doc, "", func(path, value string) {
			out = append(out, statement{r, list + string(b) + path, field + path, value})
		})
	}
	for i := range spec.To {
		add("to", fmt.Sprintf("spec.to[%d].default", i), &spec.To[i].TargetRef, spec.To[i].Conf)
	}
	items, field := spec.InboundItems(), spec.InboundField()
	for i := range items {
		if len(items[i].Matches) == 0 { // others apply to some requests only
			add("from", fmt.Sprintf("spec.%s[%d].default", field, i), &items[i].TargetRef, items[i].Conf)
		}
	}
	add("default", "spec.default", nil, spec.Default)
	return out
}

func confJSON(conf resource.Conf) []byte {
	b, err := json.Marshal(conf)
	if err != nil { // a decoded conf always has a JSON form
		return []byte("null")
	}
	return b
}

// scalars calls f for every value that is not within a list.
func scalars(v any, path string, f func(path, value string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			scalars(v[k], path+"."+k, f)
		}
	case []any, nil:
	default:
		f(path, string(jsonpatch.Compact(v)))
	}
}
