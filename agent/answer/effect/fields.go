package effect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Fields says which fields of a policy are in force on the proxy of a dataplane: for each item, and
// for each place where a rule with the item applies. It returns nil if the policy does not select
// the proxy or fields are not examined.
//
// A field is in force at a place if removing it from the document changes the config there. If the
// document needs the field, the smallest part counts that contains it and can be removed.
func (x *Examiner) Fields(policy *resource.Resource, dataplane string) []Item {
	if x.options.Decode == nil || x.inactive(policy) != "" {
		return nil
	}
	p := x.proxy(dataplane)
	if p == nil {
		return nil
	}
	return x.fieldsOf(policy, x.like(policy, p))
}

// fieldsOf examines the fields of a policy on a proxy.
func (x *Examiner) fieldsOf(policy *resource.Resource, p *proxy) []Item {
	if x.options.Decode == nil {
		return nil
	}
	items, ok := p.fields[policy.Key]
	if !ok {
		items = x.examineFields(policy, p)
		set(&p.fields, policy.Key, items)
	}
	return items
}

func (x *Examiner) examineFields(policy *resource.Resource, p *proxy) []Item {
	s := newFieldSearch(x, policy, p)
	if s == nil {
		return nil
	}
	for _, e := range s.entries {
		for i := range e.item.leaves {
			s.remove(e, &e.item.leaves[i])
		}
	}
	s.verify()
	out := make([]Item, len(s.entries))
	for i, e := range s.entries {
		s.conclude(e)
		out[i] = e.Item
	}
	return out
}

// removed is a field with the effect of its removal.
type removed struct {
	entry *entry
	leaf  *leaf
	removal
	changes
	widened bool // the document needs the field, so a larger part was removed
	wholly  bool // removing it changes the whole config, although not that of the examined outbounds
	unknown bool // the limit of work was reached
}

// remove examines the removal of a field.
func (s *fieldSearch) remove(e *entry, l *leaf) {
	path := s.pathOf(e, l)
	r := &removed{entry: e, leaf: l, removal: s.doc.without(path)}
	r.widened = len(r.path) < len(path)
	r.changes = s.compare(nil, r.removal)
	r.unknown = !r.ok
	s.leaves = append(s.leaves, r)
}

// pathOf returns the path of a field in the document.
func (s *fieldSearch) pathOf(e *entry, l *leaf) []string { return slices.Concat(e.tokens, l.tokens) }

// verify generates the whole config without the fields that change nothing, and compares. If it
// differs, it examines them one by one.
func (s *fieldSearch) verify() {
	var idle []*removed
	var paths [][]string
	for _, r := range s.leaves {
		if !r.unknown && len(r.ids) == 0 {
			idle = append(idle, r)
			paths = append(paths, r.path)
		}
	}
	if len(idle) == 0 {
		return
	}
	if !slices.ContainsFunc(paths, func(p []string) bool { return p == nil }) {
		if all := s.doc.withoutAll(paths); all != nil {
			if c := s.whole(removal{policy: all}); c.ok && len(c.ids) == 0 {
				return
			}
		}
	}
	for _, r := range idle {
		c := s.whole(r.removal)
		r.unknown, r.wholly = !c.ok, len(c.ids) > 0
	}
}

// conclude derives the places of an item and its effect.
func (s *fieldSearch) conclude(e *entry) {
	s.extend(e)
	for _, at := range e.spots {
		if at.On != OnOutbounds {
			p := at.Place
			if p.Fields = s.fields(e, at, -1, at.services); len(p.Fields) > 0 || at.only == nil {
				e.Places = append(e.Places, p)
			}
			continue
		}
		for _, group := range s.classes.split(at.services) {
			p := at.Place
			p.Fields = s.fields(e, at, group.class, group.services)
			for _, service := range group.services {
				p.Outbounds = append(p.Outbounds, DestinationOf(service))
			}
			i := slices.IndexFunc(e.Places, func(o Place) bool {
				return o.On == OnOutbounds && slices.EqualFunc(o.Fields, p.Fields, sameResult)
			})
			if i < 0 {
				e.Places = append(e.Places, p)
			} else {
				e.Places[i].Outbounds = append(e.Places[i].Outbounds, p.Outbounds...)
				joinReasons(e.Places[i].Fields, p.Fields)
			}
		}
	}
	for i := range e.Places {
		p := &e.Places[i]
		slices.SortFunc(p.Outbounds, func(a, b Destination) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
		})
		p.Effect = SumOf(p.Fields, func(f Set) string { return f.Effect })
	}
	e.Effect = SumOf(e.Places, func(p Place) string { return p.Effect })
}

// sameResult reports whether a field has the same effect in two places.
func sameResult(a, b Set) bool {
	return a.Path == b.Path && a.Effect == b.Effect && sameReason(a.Reason, b.Reason) && slices.Equal(a.By, b.By)
}

// extend adds the places that a field of an item changes although no rule with the item applies
// there, such as connections to destinations without an outbound.
func (s *fieldSearch) extend(e *entry) {
	rest := idSet{}
	for _, r := range s.leaves {
		if r.entry == e {
			s.collect(r, rest)
		}
	}
	for _, at := range e.spots {
		switch {
		case at.On == OnProxy || at.On == OnRoute:
			return
		case at.On == OnInbound:
			for id := range rest {
				if s.ofInbound(id, at.inbound) {
					delete(rest, id)
				}
			}
		default:
			for _, group := range s.classes.split(at.services) {
				for id := range s.classIDs(group.class) {
					delete(rest, id)
				}
			}
		}
	}
	base := s.bases[fmt.Sprint([]resource.Key(nil))]
	for id := range rest {
		if base.Resource(id) == nil { // it replaces another one, which has changed too
			delete(rest, id)
		}
	}
	if len(rest) == 0 {
		return
	}
	extra := &spot{in: e.in, inbound: -1, Place: Place{On: OnOutside}, only: rest}
	if e.in == From {
		extra.On = OnProxy
	}
	e.spots = append(e.spots, extra)
}

// collect adds the resources that a field changes.
func (s *fieldSearch) collect(r *removed, ids idSet) {
	variants := s.variantsIf(r.widened, r)
	if len(variants) == 0 {
		maps.Copy(ids, r.ids)
	}
	for _, v := range variants {
		maps.Copy(ids, s.compare(nil, removal{policy: v}).ids)
	}
}

// fields returns the fields of an item with their effect at a spot, for the services of a class.
func (s *fieldSearch) fields(e *entry, at *spot, class int, services []*mesh.Service) []Set {
	out := []Set{}
	for _, r := range s.leaves {
		if r.entry != e {
			continue
		}
		set := Set{Path: r.leaf.path, Value: r.leaf.value, By: []Source{}}
		hit := s.hits(r.changes, at, class)
		if at.only != nil && !hit {
			continue
		}
		d := s.decide(r, at)
		shared := (at.On == OnInbound || at.On == OnRoute) && slices.ContainsFunc(e.spots, func(o *spot) bool {
			return o != at && o.inbound == at.inbound && s.decide(r, o).own
		})
		switch {
		case r.unknown:
			set.Effect = api.EffectUnknown
		case hit && (d.own || !shared) && s.needed(r, at, class), r.wholly && d.own:
			s.inForce(&set, r, at, class, d)
		default:
			s.idle(&set, r, at, class, services, d)
		}
		out = append(out, set)
	}
	return out
}

// needed reports whether the config at a spot depends on a field, given that removing the smallest
// part with it changes the config: other fields of that part may be the cause.
func (s *fieldSearch) needed(r *removed, at *spot, class int) bool {
	if !r.widened || bytes.HasPrefix(r.leaf.value, []byte("[")) { // other values cover only some entries of a list
		return true
	}
	hit, _ := s.matters(nil, r, at, class)
	return hit
}

// decision says which sources decide about a field at a spot.
type decision struct {
	own    bool            // the item does
	by     []Source        // others that do
	lower  []Source        // others with the same value that the item overrides
	merged json.RawMessage // the resulting value; nil if unknown
	same   bool            // others decide, with the same value
}

// decide returns which sources decide about a field at a spot by the rules.
func (s *fieldSearch) decide(r *removed, at *spot) decision {
	switch {
	case at.legacy != nil:
		by := at.legacy(r.leaf.path)
		if by == nil {
			return decision{own: true}
		}
		same := slices.ContainsFunc(s.x.mesh.Policies.Policies(by.Type), func(o *resource.Resource) bool {
			spec, ok := o.Spec.(*resource.LegacyPolicy)
			return ok && o.Name == by.Name && (&item{leaves: leavesOf(spec.Conf)}).has(*r.leaf)
		})
		return decision{by: []Source{*by}, same: same}
	case at.rule == nil:
		return decision{own: true}
	}
	d, it := decision{}, r.entry.item
	merged := s.p.layout(s.x.mesh).merged
	list := merged.decide(at.rule, at.in)
	j := indexOf(list, r.leaf.path)
	if j < 0 {
		return d
	}
	d.merged = list[j].value
	for _, by := range list[j].by {
		if by == it && list[j].path == r.leaf.path {
			d.own = true
		} else {
			d.by = append(d.by, by.source)
			d.same = d.same || by.has(*r.leaf)
		}
	}
	for _, o := range merged.items.of(at.rule, at.in) {
		if o != it && o.has(*r.leaf) && !slices.Contains(list[j].by, o) {
			d.lower = append(d.lower, o.source)
		}
	}
	return d
}

// has reports whether an item sets a field to the same value.
func (it *item) has(l leaf) bool { return bytes.Equal(it.value(l.path), l.value) }
