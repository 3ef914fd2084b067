package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Match holds the policies of one proxy. It is not safe for concurrent use.
type Match struct {
	// Fingerprint is a hash of all inputs of the proxy's rules except the proxy and the services
	// that it reaches. Equal fingerprints mean equal rules.
	Fingerprint [32]byte

	index   *Index
	outside bool          // the proxy represents a destination outside the mesh
	kinds   []matchedKind // kinds with a policy that selects the proxy, in order of application
	legacy  []legacyKind
	rules   *Rules                  // nil until they are merged
	shared  map[[32]byte]*KindRules // see Share

	legacyPolicies []*resource.Resource
}

type matchedKind struct {
	kind     string
	policies []matched // in order of increasing precedence
	print    [32]byte  // hash of the policies, their selections, and their destinations
}

type matched struct {
	policy *resource.Resource
	spec   *resource.Policy
	sel    Selection
}

// Reads returns how much of the dataplane the plugins of the policies read. Legacy policies rank by
// the dataplane's tags.
func (m *Match) Reads() Reads {
	out := ReadsRules
	for i := range m.kinds {
		out = max(out, m.plugin(m.kinds[i].kind).Reads)
	}
	for i := range m.legacy {
		out = max(out, ReadsTags, m.plugin(m.legacy[i].kind).Reads)
	}
	return out
}

// ByName reports whether a plugin of the policies matches parts of the draft by names; see
// [Plugin.ByName].
func (m *Match) ByName() bool {
	return slices.ContainsFunc(m.kinds, func(k matchedKind) bool { return m.plugin(k.kind).ByName }) ||
		slices.ContainsFunc(m.legacy, func(k legacyKind) bool { return m.plugin(k.kind).ByName })
}

func (m *Match) plugin(kind string) *Plugin { return &m.index.Plugins[m.index.plugins[kind]] }

// Destinations calls f with each destination of the policies of [Plugin.Kinds] other than the
// outbounds' own services.
func (m *Match) Destinations(f func(p *resource.Resource, ref BackendRef)) {
	for i := range m.kinds {
		list := m.plugin(m.kinds[i].kind).Destinations
		for j := 0; list != nil && j < len(m.kinds[i].policies); j++ {
			p := m.kinds[i].policies[j].policy
			for _, ref := range list(p) {
				f(p, ref)
			}
		}
	}
}

// LegacyDestinations reports whether legacy policies change the destinations of outbounds.
func (m *Match) LegacyDestinations() bool {
	return slices.ContainsFunc(m.legacy, func(k legacyKind) bool {
		return slices.ContainsFunc(m.plugin(k.kind).Legacy, func(l LegacyKind) bool {
			return l.Kind == k.kind && l.Destinations != nil
		})
	})
}

// Policies returns all matched policies in order of application.
func (m *Match) Policies() []*resource.Resource {
	var out []*resource.Resource
	for i := range m.kinds {
		for j := range m.kinds[i].policies {
			out = append(out, m.kinds[i].policies[j].policy)
		}
	}
	return append(out, m.legacyPolicies...)
}

// Match selects the policies of a dataplane.
func (x *Index) Match(dataplane *resource.Resource) *Match {
	return x.match(x.selector(dataplane), nil)
}

// match selects the policies of the kinds for which of returns true; a nil of selects all.
func (x *Index) match(s *selector, of func(kind string) bool) *Match { return x.matchOf(s, of, nil) }

// matchOf is like match. candidates, if not nil, returns the policies of a kind that may select the
// dataplane, in order of increasing precedence.
func (x *Index) matchOf(s *selector, of func(kind string) bool,
	candidates func(kind string) []*resource.Resource) *Match {
	m := &Match{index: x, outside: s.outside, shared: map[[32]byte]*KindRules{}}
	fp, one := fingerprint{h: sha256.New()}, fingerprint{h: sha256.New()}
	plugins, ruled := map[int]bool{}, map[string]bool{}
	for i := range x.kinds {
		k := &x.kinds[i]
		if of != nil && !of(k.kind) {
			continue
		}
		var list []matched
		one.h.Reset()
		policies := k.policies
		if candidates != nil {
			policies = candidates(k.kind)
		}
		for p, spec := range resource.Specs[*resource.Policy](policies) {
			if sel := s.policy(p, spec); sel.Proxy {
				list = append(list, matched{p, spec, sel})
				one.policy(x, p, spec, &sel)
			}
		}
		if len(list) > 0 {
			m.kinds = append(m.kinds, matchedKind{k.kind, list, [32]byte(one.h.Sum(nil))})
			fp.h.Write(m.kinds[len(m.kinds)-1].print[:])
			plugins[x.plugins[k.kind]] = true
			ruled[k.kind] = true
		}
	}
	m.legacy = x.matchLegacy(s, ruled, of, func(kind string, p *resource.Resource) {
		plugins[x.plugins[kind]] = true
		fp.resource(p)
		m.legacyPolicies = append(m.legacyPolicies, p)
	})
	// This includes kinds without a matched policy: if the mesh has TrafficRoutes, an outbound that
	// none of them covers is closed.
	for i := range m.legacy {
		fp.h.Write(append(append([]byte{3}, m.legacy[i].kind...), 0))
	}
	for i := range x.Plugins { // sorted, because the order affects the hash
		if !plugins[i] {
			continue
		}
		for _, d := range x.Plugins[i].Refers {
			for _, r := range x.Refers[d.Kind] {
				fp.resource(r)
			}
		}
	}
	fp.h.Sum(m.Fingerprint[:0])
	return m
}

// fingerprint hashes the matched policies.
type fingerprint struct {
	h hash.Hash
	b []byte
}

func (f *fingerprint) resource(r *resource.Resource) {
	f.b = append(f.b[:0], r.Kind...)
	f.b = append(f.b, 0)
	f.b = append(f.b, r.Name...)
	f.b = append(f.b, 0)
	f.b = append(f.b, r.Digest[:]...)
	f.h.Write(f.b)
}

// policy adds a policy, its selection, and the destinations of its items.
func (f *fingerprint) policy(x *Index, p *resource.Resource, spec *resource.Policy, sel *Selection) {
	f.resource(p)
	f.b = f.b[:0]
	for _, i := range sel.Inbounds {
		f.b = binary.AppendUvarint(f.b, uint64(i)+1)
	}
	f.b = append(f.b, 0)
	f.h.Write(f.b)
	if sel.Route != nil {
		f.resource(sel.Route)
	}
	for i := range spec.To {
		t := &spec.To[i].TargetRef
		if t.Kind == kindMesh {
			continue
		}
		f.b = append(f.b[:0], 1)
		for _, k := range x.Resolve(p, t) {
			f.b = append(f.b, k.String()...)
			f.b = append(f.b, 0)
			if x.routing[t.Kind] {
				for _, r := range x.routes(p, t) {
					f.b = append(f.b, r.Digest[:]...)
				}
			}
		}
		f.h.Write(f.b)
	}
}

// Resolve returns the resources, either services or routes, that a targetRef of a policy names.
func (x *Index) Resolve(from *resource.Resource, t *resource.TargetRef) []resource.Key {
	var out []resource.Key
	switch {
	case x.routing[t.Kind]:
		for _, r := range x.routes(from, t) {
			out = append(out, r.Key)
		}
		return out
	case len(t.Labels) > 0 || t.Name == "" && t.Namespace != "":
		want := t.Labels
		if len(want) == 0 { // all services of a namespace
			want = map[string]string{resource.LabelNamespace: t.Namespace}
		}
		for _, s := range x.View.Services() {
			if s.ID.Kind == t.Kind && mesh.Contains(s.Labels, want) && !slices.Contains(out, s.Resource) {
				out = append(out, s.Resource)
			}
		}
	default:
		for _, name := range qualified(from, t) {
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

// routes returns the route policies that a targetRef names.
func (x *Index) routes(from *resource.Resource, t *resource.TargetRef) []*resource.Resource {
	names := qualified(from, t)
	var out []*resource.Resource
	for _, r := range x.Policies(t.Kind) {
		if len(t.Labels) > 0 && mesh.Contains(x.View.Labels(r), t.Labels) ||
			len(t.Labels) == 0 && slices.Contains(names, r.Name) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *resource.Resource) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Describe formats a targetRef for a message.
func Describe(t *resource.TargetRef) string {
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
