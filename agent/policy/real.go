package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// realServices are the services of a mesh that are resources, by key; those that are derived from tags are among them.
type realServices struct {
	ports map[resource.Key][]*mesh.Service
	keys  map[string][]resource.Key // by kind, in the order of the view
}

func indexReal(v *mesh.View) realServices {
	out := realServices{ports: map[resource.Key][]*mesh.Service{}, keys: map[string][]resource.Key{}}
	for _, s := range v.Services() {
		if s.ID.Kind == mesh.KindTag {
			continue
		}
		if _, ok := out.ports[s.Resource]; !ok {
			out.keys[s.ID.Kind] = append(out.keys[s.ID.Kind], s.Resource)
		}
		out.ports[s.Resource] = append(out.ports[s.Resource], s)
	}
	return out
}

// resolve returns the resources that a targetRef of a policy names: real services, or routes.
func (x *Index) resolve(from *resource.Resource, t *resource.TargetRef) []resource.Key {
	if t.Kind == kindRoute {
		var out []resource.Key
		for _, r := range x.routes(from, t) {
			out = append(out, r.Key)
		}
		return out
	}
	var out []resource.Key
	if len(t.Labels) > 0 {
		for _, k := range x.real.keys[t.Kind] {
			if hasAll(x.real.ports[k][0].Labels, t.Labels) {
				out = append(out, k)
			}
		}
	} else {
		for _, name := range mesh.Qualified(from, t.Name, t.Namespace) {
			if k := (resource.Key{Kind: t.Kind, Mesh: x.View.Name, Name: name}); x.real.ports[k] != nil {
				out = append(out, k)
				break
			}
		}
	}
	if t.SectionName == "" {
		return out
	}
	return slices.DeleteFunc(out, func(k resource.Key) bool {
		return !slices.ContainsFunc(x.real.ports[k], func(s *mesh.Service) bool {
			return s.Section == t.SectionName || mesh.PortSection(s.Port) == t.SectionName
		})
	})
}

// routes returns the MeshHTTPRoutes that a targetRef names.
func (x *Index) routes(from *resource.Resource, t *resource.TargetRef) []*resource.Resource {
	names := mesh.Qualified(from, t.Name, t.Namespace)
	var out []*resource.Resource
	for _, r := range x.Policies(kindRoute) {
		if len(t.Labels) > 0 && hasAll(r.Labels, t.Labels) || len(t.Labels) == 0 && slices.Contains(names, r.Name) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *resource.Resource) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func hasAll(have, want map[string]string) bool {
	for k, v := range want {
		if h, ok := have[k]; !ok || (h != v && v != "*") {
			return false
		}
	}
	return true
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
