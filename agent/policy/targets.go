package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// resolve returns the resources that a targetRef of a policy names: services, or routes.
func (x *Index) resolve(from *resource.Resource, t *resource.TargetRef) []resource.Key {
	var out []resource.Key
	switch {
	case x.routing[t.Kind]:
		for _, r := range x.routes(from, t) {
			out = append(out, r.Key)
		}
		return out
	case len(t.Labels) > 0:
		for _, s := range x.View.Services() {
			if s.ID.Kind == t.Kind && mesh.Contains(s.Labels, t.Labels) && !slices.Contains(out, s.Resource) {
				out = append(out, s.Resource)
			}
		}
	default:
		for _, name := range mesh.Qualified(from, t.Name, t.Namespace) {
			if k := (resource.Key{Kind: t.Kind, Mesh: x.View.Name, Name: name}); len(x.View.Ports(k)) > 0 {
				out = append(out, k)
				break
			}
		}
	}
	if t.SectionName == "" {
		return out
	}
	return slices.DeleteFunc(out, func(k resource.Key) bool { return x.View.Port(k, t.SectionName) == nil })
}

// routes returns the policies with routes that a targetRef names.
func (x *Index) routes(from *resource.Resource, t *resource.TargetRef) []*resource.Resource {
	names := mesh.Qualified(from, t.Name, t.Namespace)
	var out []*resource.Resource
	for _, r := range x.Policies(t.Kind) {
		if len(t.Labels) > 0 && mesh.Contains(x.View.Labels(r), t.Labels) || len(t.Labels) == 0 && slices.Contains(names, r.Name) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *resource.Resource) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// describe names a targetRef in a message.
func describe(t *resource.TargetRef) string {
	out := t.Kind
	if t.Name != "" {
		out += fmt.Sprintf(" %q", t.Name)
	}
	if t.Namespace != "" {
		out += fmt.Sprintf(" in namespace %q", t.Namespace)
	}
	if t.SectionName != "" {
		out += fmt.Sprintf(", section %q", t.SectionName)
	}
	for _, m := range []struct {
		name string
		m    map[string]string
	}{{"labels", t.Labels}, {"tags", t.Tags}} {
		if len(m.m) > 0 {
			out += " with " + m.name
			for i, k := range slices.Sorted(maps.Keys(m.m)) {
				if i > 0 {
					out += ","
				}
				out += fmt.Sprintf(" %s: %s", k, m.m[k])
			}
		}
	}
	return out
}
