package policy

import (
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// class is a set of services that the same policies select, because their tags are equal as far as
// any policy refers to them.
type class struct {
	tags     map[string]string
	policies []*guarded // in order of increasing precedence
}

// vocabulary holds the tag values that policies require. Policies do not distinguish other values.
type vocabulary map[string]map[string]bool

// otherValue represents all values that no policy names. No tag has it.
const otherValue = "\x00"

func newVocabulary(policies []*guarded) vocabulary {
	out := vocabulary{}
	for _, p := range policies {
		for _, w := range p.want {
			w.each(func(k, v string) {
				if out[k] == nil {
					out[k] = map[string]bool{}
				}
				out[k][v] = true
			})
		}
	}
	return out
}

// holds reports whether w includes every value of o.
func (w vocabulary) holds(o vocabulary) bool {
	for k, values := range o {
		for v := range values {
			if !w[k][v] {
				return false
			}
		}
	}
	return true
}

// value returns value if policies distinguish it, otherwise otherValue.
func (w vocabulary) value(key, value string) string {
	if w[key][value] {
		return value
	}
	return otherValue
}

// key appends the tags to b, reduced to the values that policies distinguish.
func (w vocabulary) key(b []byte, keys []string, tags map[string]string) []byte {
	for _, k := range keys {
		if v, ok := tags[k]; ok {
			b = append(append(append(append(b, k...), 0), w.value(k, v)...), 1)
		}
	}
	return b
}

// project reduces tags to the values that policies distinguish.
func (w vocabulary) project(tags map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range tags {
		if w[k] != nil {
			out[k] = w.value(k, v)
		}
	}
	return out
}

// ranked is a policy with one of its alternative tag sets.
type ranked struct {
	p    *guarded
	want wanted
	rank int
}

// buckets indexes policies by one tag of each tag set, kuma.io/service if present, so that few
// policies have to be checked for a service.
type buckets struct {
	all   []ranked
	byTag map[string]map[string][]ranked
}

func newBuckets(policies []*guarded) buckets {
	out := buckets{byTag: map[string]map[string][]ranked{}}
	for rank, p := range policies {
		for _, want := range p.want {
			r := ranked{p, want, rank}
			k, v, ok := want.first()
			if !ok {
				out.all = append(out.all, r)
				continue
			}
			if out.byTag[k] == nil {
				out.byTag[k] = map[string][]ranked{}
			}
			out.byTag[k][v] = append(out.byTag[k][v], r)
		}
	}
	return out
}

// first returns the tag by which a tag set is indexed: kuma.io/service, otherwise the first by
// name. ok is false for an empty set.
func (w wanted) first() (key, value string, ok bool) {
	w.each(func(k, v string) {
		if !ok || k == resource.TagService || key != resource.TagService && k < key {
			key, value, ok = k, v, true
		}
	})
	return key, value, ok
}

// about returns the policies that select services with these tags, in order of increasing
// precedence. Required tags count only if the service is known by them; others belong to individual
// workloads.
func (b *buckets) about(tags map[string]string) []*guarded {
	found := slices.Clone(b.all)
	add := func(list []ranked) {
		for _, r := range list {
			if fits(tags, r.want) {
				found = append(found, r)
			}
		}
	}
	for k, byValue := range b.byTag {
		if v, ok := tags[k]; ok {
			add(byValue[v])
			if v != "*" {
				add(byValue["*"])
			}
			continue
		}
		for _, list := range byValue {
			add(list)
		}
	}
	slices.SortFunc(found, func(a, b ranked) int { return a.rank - b.rank })
	out := make([]*guarded, 0, len(found))
	for i, r := range found {
		if i == 0 || r.p != found[i-1].p {
			out = append(out, r.p)
		}
	}
	return out
}

// fits reports whether the tags of a service satisfy a policy's requirements.
func fits(tags map[string]string, want wanted) bool {
	for k, v := range want.name {
		if have, ok := tags[k]; !ok || have != v && v != "*" {
			return false
		}
	}
	for k, v := range want.tags {
		if have, ok := tags[k]; ok && have != v && v != "*" {
			return false
		}
	}
	return true
}

// classify groups the services into classes and finds the policies of each. If the services are
// unchanged since prev and the policies require no new values, it updates only the classes that a
// changed policy selects.
func (g *guard) classify(x *Index, set *resource.Set, prev *guard) {
	if prev != nil && prev.catalog == g.catalog && prev.words.holds(g.words) {
		g.words = prev.words
		g.follow(prev)
		return
	}
	g.byTags = map[string]*class{}
	keys := slices.Sorted(maps.Keys(g.words))
	var b []byte
	classOf := func(tags map[string]string) *class {
		b = g.words.key(b[:0], keys, tags)
		c := g.byTags[string(b)]
		if c == nil {
			projected := g.words.project(tags)
			c = &class{tags: projected, policies: g.buckets.about(projected)}
			g.byTags[string(b)] = c
			g.classes = append(g.classes, c)
		}
		return c
	}
	exclusive := x.View.Spec.ServicesMode() == resource.MeshServicesExclusive // in which tags are not services
	services := x.View.Services()
	g.of = make([][]*class, len(services))
	byKey := map[resource.Key]*class{}
	for i, s := range services {
		switch {
		case s.ID.Kind == mesh.KindTag && s.Outside == nil && !exclusive:
			g.of[i] = []*class{classOf(tagTags(s.Tag))}
		case s.ID.Kind == mesh.KindMeshService:
			c := byKey[s.Resource]
			if c == nil {
				c = classOf(x.selectorTags(s.Resource))
				byKey[s.Resource] = c
			}
			g.of[i] = []*class{c}
		}
	}
	for i, s := range services {
		if s.ID.Kind == mesh.KindMeshMultiZoneService {
			g.of[i] = selectedClasses(x, set, s, byKey)
		}
	}
}

// selectedClasses returns the classes of the MeshServices that a MeshMultiZoneService selects. A
// client may dial it if one of them admits the client.
func selectedClasses(x *Index, set *resource.Set, s *mesh.Service, byKey map[resource.Key]*class) []*class {
	r := set.Get(s.Resource)
	if r == nil {
		return nil
	}
	spec, ok := r.Spec.(*resource.MeshMultiZoneService)
	if !ok {
		return nil
	}
	var out []*class
	for _, s := range x.View.Services() {
		c := byKey[s.Resource]
		if c != nil && !slices.Contains(out, c) && mesh.Contains(s.Labels, spec.Selector.MeshService.MatchLabels) {
			out = append(out, c)
		}
	}
	return out
}

// follow reuses the classes of prev and updates those that an added, removed, or changed policy
// selects.
func (g *guard) follow(prev *guard) {
	changed := difference(prev.policies, g.policies)
	next := make(map[*class]*class, 8)
	g.classes = slices.Clone(prev.classes)
	for i, c := range g.classes {
		if slices.ContainsFunc(changed, func(p *guarded) bool {
			return slices.ContainsFunc(p.want, func(w wanted) bool { return fits(c.tags, w) })
		}) {
			n := &class{tags: c.tags, policies: g.buckets.about(c.tags)}
			next[c], g.classes[i] = n, n
		}
	}
	if len(next) == 0 {
		g.byTags, g.of = prev.byTags, prev.of
		return
	}
	g.byTags = maps.Clone(prev.byTags)
	for k, c := range g.byTags {
		if n := next[c]; n != nil {
			g.byTags[k] = n
		}
	}
	g.of = slices.Clone(prev.of)
	for i, list := range g.of {
		if slices.ContainsFunc(list, func(c *class) bool { return next[c] != nil }) {
			list = slices.Clone(list)
			for j, c := range list {
				if n := next[c]; n != nil {
					list[j] = n
				}
			}
			g.of[i] = list
		}
	}
}

// difference returns the elements that are in only one of the two lists.
func difference(a, b []*guarded) []*guarded {
	in := make(map[*guarded]int, len(a)+len(b))
	for _, p := range a {
		in[p] |= 1
	}
	for _, p := range b {
		in[p] |= 2
	}
	var out []*guarded
	for _, p := range slices.Concat(a, b) {
		if in[p] != 3 {
			out = append(out, p)
		}
	}
	return out
}
