package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/precedence"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// item is one entry of from, rules or to, with the policy around it.
type item struct {
	origin Origin
	ref    *resource.TargetRef
	conf   resource.Conf
	subset Subset // the services or clients selected by tags
	// matches are the clients that an entry of rules selects; nil selects all.
	matches []resource.ClientMatch
	rules   bool // whether it is an entry of rules
	tags    bool // whether tags can express the selection
	keys    []resourceID
	rank    int // position in the merge order
}

// Share makes [Match.Rules] use a cache of the rules of kinds, which must belong to the view.
func (m *Match) Share(known map[[32]byte]*KindRules) { m.shared = known }

// Rules returns the merged policies.
func (m *Match) Rules() *Rules {
	if m.rules != nil {
		return m.rules
	}
	out := &Rules{kinds: make(map[string]*KindRules, len(m.kinds)), legacy: m.legacy, index: m.index}
	for i := range m.kinds {
		k := m.shared[m.kinds[i].print]
		if k == nil {
			k = m.index.buildKind(&m.kinds[i], m.outside)
			m.shared[m.kinds[i].print] = k
		}
		out.kinds[k.Kind] = k
		out.Warnings = append(out.Warnings, k.Warnings...)
	}
	m.rules = out
	return out
}

func (x *Index) buildKind(m *matchedKind, outside bool) *KindRules {
	k := &KindRules{Kind: m.kind}
	b := builder{x: x, k: k, outside: outside}
	for i := range m.policies {
		k.Policies = append(k.Policies, m.policies[i].policy)
	}
	b.proxy(m.policies)
	to := b.toItems(m.policies)
	b.to(to)
	b.toResources(to)
	b.from(m.policies)
	slices.SortFunc(k.Warnings, func(a, b mesh.Warning) int {
		return cmp.Or(a.Resource.Compare(b.Resource), strings.Compare(a.Reason, b.Reason))
	})
	k.Warnings = slices.Compact(k.Warnings)
	return k
}

// builder builds the rules of one kind for one proxy.
type builder struct {
	x       *Index
	k       *KindRules
	outside bool // the proxy represents a destination outside the mesh
	apart   bool // each rule acts separately
}

func (b *builder) warnf(p *resource.Resource, format string, args ...any) {
	b.k.Warnings = append(b.k.Warnings, mesh.Warning{Resource: p.Key, Reason: fmt.Sprintf(format, args...)})
}

// merge merges items into one rule.
func merge(s Subset, items []item) *Rule {
	confs := make([]resource.Conf, len(items))
	for i := range items {
		confs[i] = items[i].conf
	}
	r := &Rule{Subset: s, Conf: resource.Merge(confs...), Origins: make([]Origin, len(items))}
	for i := range items {
		r.Origins[i] = items[i].origin
	}
	return r
}

func (b *builder) proxy(list []matched) {
	var items []item
	for i := range list {
		if c := list[i].spec.Default; c != nil {
			items = append(items, item{origin: Origin{Policy: list[i].policy}, conf: c})
		}
	}
	if len(items) > 0 {
		b.k.Proxy = merge(nil, items)
	}
}

// toItems lists the to items of the policies in order of increasing precedence.
func (b *builder) toItems(list []matched) []item {
	var out []item
	for i := range list {
		p, spec := list[i].policy, list[i].spec
		for j := range spec.To {
			if spec.To[j].Conf == nil {
				continue
			}
			it := item{origin: Origin{p, j}, ref: &spec.To[j].TargetRef, conf: spec.To[j].Conf}
			if list[i].sel.Route != nil {
				out = append(out, b.routeItems(it, list[i].sel.Route)...)
				continue
			}
			b.target(&it)
			out = append(out, it)
		}
	}
	return out
}

// target resolves the targetRef of an item.
func (b *builder) target(it *item) {
	t := it.ref
	switch t.Kind {
	case kindMesh:
		it.tags = true
		it.keys = []resourceID{{key: resource.Key{Kind: kindMesh, Name: b.x.View.Name}}}
		if t.Name != "" && t.Name != b.x.View.Name {
			it.tags, it.keys = false, nil
		}
		return
	case "MeshServiceSubset":
		it.tags = true
		it.subset = SubsetOf(t.Tags)
		it.subset = append(Subset{{Key: resource.TagService, Value: t.Name}}, it.subset...)
		return
	case "MeshSubset":
		it.tags, it.subset = true, SubsetOf(t.Tags)
		return
	}
	keys := b.x.Resolve(it.origin.Policy, t)
	for _, k := range keys {
		id := resourceID{k, t.SectionName}
		if port := b.x.View.Port(k, t.SectionName); port != nil {
			id.section = mesh.SectionName(port.Section, port.Port) // merges policies that name the port differently
		}
		it.keys = append(it.keys, id)
	}
	// A MeshService is also a value of kuma.io/service: in every mode a dataplane may have an
	// outbound defined by tags.
	if t.Kind == mesh.KindMeshService && t.Name != "" && t.SectionName == "" && t.Namespace == "" &&
		mayTag(it.origin.Policy, t.Name) {
		it.tags = true
		it.subset = Subset{{Key: resource.TagService, Value: t.Name}}
	}
}

// routeItems turns an item of a policy that targets a route into one for each of the route's rules.
func (b *builder) routeItems(it item, route *resource.Resource) []item {
	spec, ok := route.Spec.(*resource.Policy)
	if !ok {
		return nil
	}
	byKey := it
	byKey.keys = []resourceID{{key: route.Key}}
	out := []item{byKey}
	for i := range spec.To {
		names, ok := spec.To[i].Conf.(RouteConf)
		if !ok {
			continue
		}
		for _, n := range names.RouteNames() {
			one := it
			one.tags = true
			one.subset = Subset{{Key: resource.TagService, Value: spec.To[i].TargetRef.Name}, {Key: tagRoute, Value: n}}
			out = append(out, one)
		}
	}
	return out
}

// to builds the rules by tags. They have no negations: the first rule that holds a destination
// decides, and rules with more tags come first.
func (b *builder) to(items []item) {
	byService := map[string][]item{}
	var services []string
	var everyone []item
	for i, it := range items {
		if !it.tags {
			continue
		}
		it.rank = i
		if len(it.subset) == 0 {
			everyone = append(everyone, it)
			continue
		}
		name, _ := it.subset.get(resource.TagService)
		if _, ok := byService[name]; !ok {
			services = append(services, name)
		}
		byService[name] = append(byService[name], it)
	}
	common := newCommon(everyone)
	b.k.byService = make(map[string]*Rule, len(services)+1)
	if len(everyone) > 0 {
		r := common.merge(Subset{}, nil)
		b.k.To, b.k.byService[""] = append(b.k.To, r), r
	}
	slices.Sort(services)
	for _, name := range services {
		// Each route has its own items in addition to those for the whole service.
		var whole []item
		routes := map[Tag][]item{}
		var names []Tag
		for _, it := range byService[name] {
			if len(it.subset) < 2 {
				whole = append(whole, it)
				continue
			}
			t := it.subset[1]
			if routes[t] == nil {
				names = append(names, t)
			}
			routes[t] = append(routes[t], it)
		}
		if len(whole) > 0 {
			r := common.merge(whole[0].subset, whole)
			b.k.To, b.k.byService[name] = append(b.k.To, r), r
		}
		for _, t := range names {
			all := slices.Concat(whole, routes[t])
			slices.SortStableFunc(all, func(a, b item) int { return a.rank - b.rank })
			b.k.To = append(b.k.To, common.merge(routes[t][0].subset, all))
		}
	}
	slices.SortStableFunc(b.k.To, func(a, b *Rule) int {
		return cmp.Or(cmp.Compare(len(b.Subset), len(a.Subset)), a.Subset.Compare(b.Subset))
	})
}

// toResources builds the rules for resources. An item for the mesh applies to each resource, and an
// item for a service applies to each of its ports.
func (b *builder) toResources(items []item) {
	list := slices.DeleteFunc(slices.Clone(items), func(it item) bool { return len(it.keys) == 0 })
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, b item) int {
		return precedence.Items(a.origin.Policy, b.origin.Policy, a.ref, b.ref)
	})
	about := map[resource.Key][]item{}
	ids := map[resourceID]bool{}
	var everyone []item
	for i := range list {
		it := &list[i]
		it.rank = i
		for _, id := range it.keys {
			ids[id] = true
			if id.key.Kind == kindMesh {
				everyone = append(everyone, *it)
			} else {
				about[id.key] = append(about[id.key], *it)
			}
		}
	}
	common := newCommon(everyone)
	b.k.byResource = make(map[resourceID]*ResourceRule, len(ids))
	for id := range ids {
		var applicable []item
		for _, it := range about[id.key] {
			if it.covers(id) {
				applicable = append(applicable, it)
			}
		}
		r := &ResourceRule{Rule: *common.merge(nil, applicable), Resource: id.key, Section: id.section,
			Labels: b.x.labels(id.key)}
		b.k.byResource[id] = r
		b.k.ToResources = append(b.k.ToResources, r)
	}
	slices.SortFunc(b.k.ToResources, func(a, b *ResourceRule) int {
		return cmp.Or(a.Resource.Compare(b.Resource), strings.Compare(a.Section, b.Section))
	})
}

// covers reports whether an item applies to a resource, directly or through its service or mesh.
func (it *item) covers(id resourceID) bool {
	return slices.ContainsFunc(it.keys, func(k resourceID) bool {
		return k.key.Kind == kindMesh || k.key == id.key && (k.section == "" || k.section == id.section)
	})
}

// labels returns the labels of a service resource.
func (x *Index) labels(k resource.Key) map[string]string {
	if ports := x.View.Ports(k); len(ports) > 0 {
		return ports[0].Labels
	}
	return nil
}
