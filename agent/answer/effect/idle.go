package effect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxEntries limits the entries of a list that are examined.
const maxEntries = 16

// inForce sets the effect of a field whose removal changes the config at a spot.
func (s *fieldSearch) inForce(set *Set, r *removed, at *spot, class int, d decision) {
	set.Effect, set.By = api.EffectAll, append(set.By, d.by...)
	if !d.own {
		set.By = []Source{}
	}
	if effect, reason := s.held(r, at, class); reason != "" {
		set.Effect, set.Reason = effect, reason
		return
	}
	if d.own && d.merged != nil && remains(r.leaf.value, d.merged) == api.EffectPart {
		set.Effect = api.EffectPart
		return
	}
	var list []json.RawMessage
	if json.Unmarshal(r.leaf.value, &list) != nil || len(list) < 2 || len(list) > maxEntries || r.wholly {
		return
	}
	for i := range list {
		path := append(s.pathOf(r.entry, r.leaf), strconv.Itoa(i))
		without := s.doc.policyOf(edit(s.doc.root, path, nil))
		if without == nil {
			continue
		}
		if c := s.compare(nil, removal{path, without}); c.ok && !s.hits(c, at, class) {
			set.Effect = api.EffectPart
		}
	}
}

// held returns the effect of a field that is in force by the generated config at a spot. If
// the Envoy lacks what the field changes there, reason says why.
func (s *fieldSearch) held(r *removed, at *spot, class int) (effect, reason string) {
	if s.p.published == nil || s.p.config == nil || r.from == nil {
		return api.EffectAll, ""
	}
	v, c := Verdict{Effect: api.EffectAll}, r.changes
	if variants := s.variantsIf(r.widened, r); len(variants) > 0 { // other fields of the part are not examined
		if other := s.compare(nil, removal{policy: variants[0]}); len(other.ids) > 0 {
			c = other
		}
	}
	for id := range c.ids {
		if s.hits(changes{ids: idSet{id: true}}, at, class) {
			v.Changed = append(v.Changed, id)
		}
	}
	slices.SortFunc(v.Changed, func(a, b draft.ResourceID) int {
		return cmp.Or(cmp.Compare(a.TypeURL, b.TypeURL), cmp.Compare(a.Name, b.Name))
	})
	s.p.hold(&v, c.from, c.to)
	return v.Effect, v.Held
}

// idle sets the effect of a field whose removal changes nothing at a spot: another source overrides
// it or sets the same value, the value is the default, or nothing there depends on it.
func (s *fieldSearch) idle(set *Set, r *removed, at *spot, class int, services []*mesh.Service, d decision) {
	others := d.lower
	if !d.own {
		others = d.by
	}
	keys, apart := s.keysOf(others)
	equal := api.EffectNone
	if d.own || d.same {
		equal = api.EffectSame
	}
	if len(others) > 0 && apart {
		switch hit, ok := s.matters(keys, r, at, class); {
		case !ok:
			set.Effect = api.EffectUnknown
			return
		case hit:
			set.Effect, set.By = equal, append(set.By, others...)
			return
		}
	} else if len(others) > 0 && !d.own {
		set.Effect, set.By = equal, append(set.By, others...) // by another item of the same policy
		return
	}
	variants := s.variants(r)
	for _, v := range variants {
		switch c := s.compare(keys, removal{policy: v}); {
		case !c.ok:
			set.Effect = api.EffectUnknown
			return
		case s.hits(c, at, class):
			if set.Effect = api.EffectDefault; len(others) > 0 {
				set.Effect, set.By = equal, append(set.By, others...)
			}
			return
		}
	}
	set.Effect = api.EffectNone
	set.Reason = reasonOf(question{mesh: s.x.mesh, dataplane: s.p.dataplane, policy: s.policy, warnings: s.warnings(),
		item: r.entry.Field, path: r.leaf.path, conf: r.entry.item.conf, services: services, inbound: at.inbound})
	switch {
	case set.Reason != "":
	case !d.own:
		set.By = append(set.By, others...)
	case len(variants) == 0: // no other value is valid
		set.Effect = api.EffectDefault
	}
}

// matters reports whether the config at a spot depends on a field if some policies are left out. ok
// is false if the limit of work was reached.
func (s *fieldSearch) matters(without []resource.Key, r *removed, at *spot, class int) (hit, ok bool) {
	list := []removal{r.removal}
	if variants := s.variantsIf(r.widened, r); len(variants) > 0 {
		list = nil
		for _, v := range variants {
			list = append(list, removal{policy: v})
		}
	}
	for _, change := range list {
		c := s.compare(without, change)
		if !c.ok || s.hits(c, at, class) {
			return c.ok, c.ok
		}
	}
	return false, true
}

// keysOf returns the policies of sources without the examined one, and whether it is not among
// them.
func (s *fieldSearch) keysOf(sources []Source) (keys []resource.Key, apart bool) {
	apart = true
	for _, o := range sources {
		k := resource.Key{Kind: o.Type, Mesh: o.Mesh, Name: o.Name}
		if k == s.policy.Key {
			apart = false
		} else if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys, apart
}

// variantsIf returns [fieldSearch.variants], or nil if it is not wanted.
func (s *fieldSearch) variantsIf(wanted bool, r *removed) []*resource.Resource {
	if !wanted {
		return nil
	}
	return s.variants(r)
}

// variants returns the policy with other values of a field.
func (s *fieldSearch) variants(r *removed) []*resource.Resource {
	out, ok := s.others[r]
	if !ok {
		if s.schema == nil {
			_, d, _ := KindOf(s.x.mesh.Policies, s.policy.Kind)
			s.schema = schemaOf(*d)
		}
		out = s.doc.variants(s.pathOf(r.entry, r.leaf), s.schema)
		s.others[r] = out
	}
	return out
}

// warnings returns those of the proxy's config.
func (s *fieldSearch) warnings() []mesh.Warning {
	if s.p.config == nil {
		return nil
	}
	return s.p.config.Warnings
}
