package inspect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// maxFieldTrials bounds the configs that are made to find one field.
const maxFieldTrials = 48

// saysWhom says whether a field, at some depth, says whom a policy is about: without it the policy would be about others.
func saysWhom(name string, depth int) bool {
	switch name {
	case "targetRef":
		return true
	case "type", "mesh", "name", "labels", "sources", "destinations", "selectors":
		return depth == 0
	}
	return false
}

// field returns the innermost field of a policy that holds all of what shapes the suspects: it goes down the document as
// long as there is one part, and only one, without which they would be another thing. Parts without which the document
// is not valid cannot be tried.
func (s *blameSearch) field(policy *resource.Resource) string {
	if s.q.Decode == nil {
		return ""
	}
	key := s.fieldKey(policy)
	if path, ok := s.q.Fields[key]; ok {
		return path
	}
	s.q.Fields[key] = ""
	s.q.Fields[key] = findField(policy, s.q.Decode, s.differs(policy), func() bool { return s.trials >= maxBlameTrials })
	return s.q.Fields[key]
}

// differs says whether the suspects that a policy shapes would be another thing with a policy in its place; of those that
// the check refuses for this policy alone, whether it would not.
func (s *blameSearch) differs(policy *resource.Resource) func(*resource.Resource) bool {
	return func(instead *resource.Resource) bool {
		p, err := s.generate(s.q.Mesh.With(instead))
		if err != nil {
			return false
		}
		unfit := s.refused(p)
		return slices.ContainsFunc(s.suspects, func(r suspect) bool {
			if !r.shapedBy(policy) {
				return false
			}
			if s.unfit[r.ID] && s.alone(policy, &r) {
				return !unfit[r.ID]
			}
			now := p.Resource(r.ID)
			return now == nil || now.Version != r.Resource.Version
		})
	}
}

// fieldKey is the same for a policy that shapes resources of the same role, which may be those of other proxies.
func (s *blameSearch) fieldKey(policy *resource.Resource) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %x", policy.Key, policy.Digest)
	for _, r := range s.suspects {
		if r.shapedBy(policy) {
			fmt.Fprintf(&b, " %s %s %s", r.By, r.ID.TypeURL, role(r.ID.Name))
		}
	}
	return b.String()
}

// role is a name without the address of the proxy: inbound:10.0.0.1:80 is inbound:80.
func role(name string) string {
	first, _, _ := strings.Cut(name, ":")
	if last := strings.LastIndexByte(name, ':'); last > len(first) {
		return first + name[last:]
	}
	return name
}

// alone says whether a suspect of the check would not be one without a policy.
func (s *blameSearch) alone(policy *resource.Resource, r *suspect) bool {
	return slices.ContainsFunc(r.owners, func(o owner) bool { return o.policy == policy && o.evidence == xds.BlameAlone })
}

func (r *suspect) shapedBy(policy *resource.Resource) bool {
	return slices.ContainsFunc(r.owners, func(o owner) bool { return o.policy == policy })
}

// findField returns the innermost field of a policy without which differs is true of what is left, "" for none. spent
// ends the search.
func findField(policy *resource.Resource, decode func([]byte) (*resource.Resource, error), differs func(*resource.Resource) bool, spent func() bool) string {
	text, err := resource.Marshal(policy)
	if err != nil {
		return ""
	}
	doc, err := jsonpatch.Decode(text)
	if err != nil {
		return ""
	}
	f := fieldSearch{policy: policy, doc: doc, decode: decode, differs: differs, over: spent}
	f.down(doc)
	return f.words()
}

// fieldSearch goes down one policy.
type fieldSearch struct {
	policy  *resource.Resource
	doc     any
	decode  func([]byte) (*resource.Resource, error)
	differs func(*resource.Resource) bool
	over    func() bool
	trials  int
	tokens  []string
}

// down goes on from a value that holds all of it.
func (f *fieldSearch) down(v any) {
	var names []string
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if !saysWhom(name, len(f.tokens)) {
				names = append(names, name)
			}
		}
	case []any:
		for i := range v {
			names = append(names, strconv.Itoa(i))
		}
	}
	found := ""
	for _, name := range names {
		if len(names) > 1 && !f.matters(name) {
			continue
		}
		if found != "" {
			return // it takes more than one
		}
		found = name
	}
	if found == "" || f.spent() {
		return
	}
	f.tokens = append(f.tokens, found)
	switch v := v.(type) {
	case map[string]any:
		f.down(v[found])
	case []any:
		i, _ := strconv.Atoi(found)
		f.down(v[i])
	}
}

// spent says that no more can be tried.
func (f *fieldSearch) spent() bool {
	return f.trials > maxFieldTrials || f.over()
}

// matters says whether it would be another thing without a part of the policy.
func (f *fieldSearch) matters(name string) bool {
	if f.trials++; f.spent() {
		return false
	}
	patch := jsonpatch.Patch{{Op: jsonpatch.Remove, Path: jsonpatch.FormatPointer(append(slices.Clone(f.tokens), name))}}
	doc, err := patch.Apply(f.doc)
	if err != nil {
		return false
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return false
	}
	r, err := f.decode(text)
	return err == nil && r.Key == f.policy.Key && f.differs(r)
}

// words writes the path as documents do: spec.to[0].default.
func (f *fieldSearch) words() string {
	var b strings.Builder
	v := f.doc
	for _, t := range f.tokens {
		switch x := v.(type) {
		case map[string]any:
			writeKey(&b, t)
			v = x[t]
		case []any:
			i, _ := strconv.Atoi(t)
			b.WriteString("[" + t + "]")
			v = x[i]
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}
