package effect

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// LegacyField is the path of the conf of a legacy policy.
const LegacyField = "conf"

// legacyEntries returns the conf of a source-destination (legacy) policy. These are not merged: one
// policy decides about a connection.
func (l *layout) legacyEntries(r *resource.Resource) []*entry {
	_, _, k := KindOf(l.index, r.Kind)
	spec, ok := r.Spec.(*resource.LegacyPolicy)
	if k == nil || !ok {
		return nil
	}
	it := &item{source: Source{Type: r.Kind, Mesh: r.Mesh, Name: r.Name, Field: LegacyField}, conf: spec.Conf,
		leaves: leavesOf(spec.Conf)}
	if len(it.leaves) == 0 {
		it.leaves = []leaf{{value: []byte("{}")}}
	}
	e := &entry{in: Default, item: it, tokens: []string{LegacyField}}
	e.Item = Item{Field: LegacyField, Places: []Place{}}
	sel := l.index.SelectLegacy(r, l.dataplane, k.Inbound)
	by := func(decides *resource.Resource) func(string) *Source {
		return func(string) *Source {
			if decides.Key == r.Key {
				return nil
			}
			return &Source{Type: decides.Kind, Mesh: decides.Mesh, Name: decides.Name, Field: LegacyField}
		}
	}
	switch {
	case len(spec.Selectors) > 0:
		if decides := l.rules.LegacyProxy(r.Kind); decides != nil {
			e.spots = append(e.spots, &spot{inbound: -1, Place: Place{On: OnProxy}, legacy: by(decides)})
		}
	case k.Inbound:
		inbounds := InboundsOf(l.spec, sel.Inbounds)
		for i, in := range sel.Inbounds {
			list := l.rules.LegacyInbound(r.Kind, in)
			if !slices.ContainsFunc(list, func(o *resource.Resource) bool { return o.Key == r.Key }) {
				continue // inactive, which is reported separately
			}
			decides := list[0]
			if k.AllApply {
				decides = r
			}
			e.spots = append(e.spots, &spot{inbound: in, Place: Place{On: OnInbound, Inbound: &inbounds[i]},
				legacy: by(decides)})
		}
		if ActsOutbound(l.index, r, k, l.dataplane, l.services) {
			l.legacyOutbounds(r, k, e)
		}
	default:
		if l.legacyOutbounds(r, k, e); len(e.spots) == 0 {
			e.Reason = "no outbound of the dataplane leads to a service that destinations match"
		}
	}
	return []*entry{e}
}

// ActsOutbound reports whether a policy for inbound connections also applies to connections that
// leave the mesh at a dataplane that can call these services.
func ActsOutbound(x *policy.Index, r *resource.Resource, k *policy.LegacyKind, dataplane *resource.Resource,
	services []*mesh.Service) bool {
	return k.OutboundToo != nil && x.SelectLegacy(r, dataplane, false).Selected &&
		slices.ContainsFunc(services, func(s *mesh.Service) bool {
			return k.OutboundToo(s) && policy.LegacyReaches(r, s.ID.Name)
		})
}

// legacyOutbounds adds the outbounds that a policy could apply to. Outbounds where the same
// policies decide are grouped.
func (l *layout) legacyOutbounds(r *resource.Resource, k *policy.LegacyKind, e *entry) {
	groups := map[string]*spot{}
	for _, s := range l.services {
		if s.ID.Kind != mesh.KindTag || !policy.LegacyReaches(r, s.ID.Name) || k.OutboundToo != nil && !k.OutboundToo(s) {
			continue
		}
		rules := l.rules.LegacyOutbound(r.Kind, s.ID.Name)
		if rules == nil {
			continue
		}
		decides, key := map[string]*Source{}, ""
		for _, f := range e.item.leaves {
			switch by := k.SupersededAt(l.rules, s, f.path); {
			case by != nil:
				decides[f.path] = &Source{Type: by.Kind, Mesh: by.Mesh, Name: by.Name, Field: "spec"}
				key += by.Key.String()
			case rules.Key != r.Key:
				decides[f.path] = &Source{Type: rules.Kind, Mesh: rules.Mesh, Name: rules.Name, Field: LegacyField}
				key += rules.Key.String()
			}
			key += "\x00"
		}
		at := groups[key]
		if at == nil {
			at = &spot{inbound: -1, Place: Place{On: OnOutbounds}, legacy: func(path string) *Source { return decides[path] }}
			groups[key] = at
			e.spots = append(e.spots, at)
		}
		at.services = append(at.services, s)
	}
}
