package attribute

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxFieldTrials limits the configs that are generated to find one field.
const maxFieldTrials = 48

// Field returns the path of the innermost field of a policy that has the whole effect. It descends
// into the document while exactly one child is such that gone returns true for the config generated
// without it. It returns "" if there is no such field. It cannot test a child that the document
// needs to be valid.
func (s *Search) Field(m *generate.Mesh, policy *resource.Resource, gone func(*generate.Proxy) bool) string {
	if s.Decode == nil {
		return ""
	}
	text, err := resource.Marshal(policy)
	if err != nil {
		return ""
	}
	doc, err := jsonpatch.Decode(text)
	if err != nil {
		return ""
	}
	f := fieldSearch{Search: s, mesh: m, policy: policy, doc: doc, gone: gone}
	f.down(doc)
	return strings.TrimPrefix(f.path.String(), ".")
}

// fieldSearch is the search within one policy.
type fieldSearch struct {
	*Search
	mesh   *generate.Mesh
	policy *resource.Resource
	doc    any
	gone   func(*generate.Proxy) bool
	tried  int
	tokens []string
	path   strings.Builder // path to the current value in document syntax: .spec.to[0].default
}

// selects reports whether the field at this depth selects the proxies or services of a policy.
// Without such a field the policy would apply to others.
func selects(name string, depth int) bool {
	switch name {
	case "targetRef":
		return true
	case "type", "mesh", "name", "labels", "sources", "destinations", "selectors":
		return depth == 0
	}
	return false
}

// down continues the search within v, which has the whole effect.
func (f *fieldSearch) down(v any) {
	object, isObject := v.(map[string]any)
	list, _ := v.([]any)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !selects(name, len(f.tokens)) {
			names = append(names, name)
		}
	}
	for i := range list {
		names = append(names, strconv.Itoa(i))
	}
	found := ""
	for _, name := range names {
		if len(names) > 1 && !f.matters(name) {
			continue
		}
		if found != "" {
			return // more than one child is needed
		}
		found = name
	}
	if found == "" || f.tried > maxFieldTrials || f.Spent() {
		return
	}
	f.tokens = append(f.tokens, found)
	if isObject {
		jsonpatch.WriteKey(&f.path, found)
		f.down(object[found])
		return
	}
	f.path.WriteString("[" + found + "]")
	i, _ := strconv.Atoi(found)
	f.down(list[i])
}

// matters reports whether the effect disappears if the policy lacks the child name.
func (f *fieldSearch) matters(name string) bool {
	if f.tried++; f.tried > maxFieldTrials || f.Spent() {
		return false
	}
	p := f.lacking(f.mesh, f.policy, f.doc, append(slices.Clone(f.tokens), name))
	return p != nil && f.gone(p)
}

// lacking generates the config with a policy that lacks a field. doc is the document of the policy.
// It returns nil if there is no such config.
func (s *Search) lacking(m *generate.Mesh, policy *resource.Resource, doc any, tokens []string) *generate.Proxy {
	patch := jsonpatch.Patch{{Op: jsonpatch.Remove, Path: jsonpatch.FormatPointer(tokens)}}
	doc, err := patch.Apply(doc)
	if err != nil {
		return nil
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil
	}
	r, err := s.Decode(text)
	if err != nil || r.Key != policy.Key {
		return nil
	}
	p, err := s.In(m.With(r))
	if err != nil {
		return nil
	}
	return p
}
