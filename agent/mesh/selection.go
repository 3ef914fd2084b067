package mesh

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// pair is one tag or label that something must have.
type pair struct{ key, value string }

// groups holds, for the pairs that selectors ask for, what has them. Every selector then goes through the smallest group
// of its pairs, and not through everything there is.
type groups[T any] map[pair][]T

// want makes room for the pairs of a selector. The value "*" asks for nothing in particular.
func (g groups[T]) want(selector map[string]string) {
	for k, v := range selector {
		if v != "*" {
			g[pair{k, v}] = nil
		}
	}
}

// put adds something to the group of a pair that is asked for.
func (g groups[T]) put(key, value string, x T) {
	p := pair{key, value}
	if list, ok := g[p]; ok {
		g[p] = append(list, x)
	}
}

// smallest returns the smallest group of the pairs of a selector, or otherwise when it asks for none.
func (g groups[T]) smallest(selector map[string]string, otherwise []T) []T {
	best := otherwise
	for k, v := range selector {
		if v == "*" {
			continue
		}
		if list := g[pair{k, v}]; len(list) < len(best) {
			best = list // of two of one size either will do: what is taken from them is the same
		}
	}
	return best
}

// finder finds the inbounds that MeshServices select, in the order of dataplanes and inbounds.
type finder struct {
	v      *View
	ix     *inboundIndex
	tags   groups[*inbound]
	labels groups[*inbound]
}

func (v *View) newFinder(ix *inboundIndex, services []*resource.Resource) *finder {
	f := &finder{v: v, ix: ix, tags: groups[*inbound]{}, labels: groups[*inbound]{}}
	for _, r := range services {
		spec, ok := r.Spec.(*resource.MeshService)
		if !ok {
			continue
		}
		if _, ok := exact(spec.Selector.DataplaneTags, resource.TagService); !ok {
			f.tags.want(spec.Selector.DataplaneTags)
		}
		if l := spec.Selector.DataplaneLabels; l != nil {
			f.labels.want(l.MatchLabels)
		}
	}
	if len(f.tags) > 0 {
		for _, in := range ix.all {
			for k, val := range in.ep.Tags {
				if k != resource.TagZone {
					f.tags.put(k, val, in)
				}
			}
			f.tags.put(resource.TagZone, in.ep.Zone, in)
		}
	}
	if len(f.labels) > 0 {
		for _, in := range ix.all {
			v.eachLabel(in.dp, func(k, val string) { f.labels.put(k, val, in) })
		}
	}
	return f
}

// exact returns the value that a selector wants of a key, when it is one value.
func exact(selector map[string]string, key string) (string, bool) {
	val, ok := selector[key]
	return val, ok && val != "*"
}

// find returns what a selector selects. The slice must not be changed.
func (f *finder) find(sel *resource.MeshServiceSelector) []*inbound {
	switch {
	case len(sel.DataplaneTags) > 0:
		var list []*inbound
		if name, ok := exact(sel.DataplaneTags, resource.TagService); ok { // nearly every selector names the service
			list = f.ix.by[name]
			if len(sel.DataplaneTags) == 1 {
				return list
			}
		} else {
			list = f.tags.smallest(sel.DataplaneTags, f.ix.all)
		}
		return filter(list, func(in *inbound) bool { return in.ep.has(sel.DataplaneTags) })
	case sel.DataplaneRef != nil:
		name := sel.DataplaneRef.Name
		from, _ := slices.BinarySearchFunc(f.ix.all, name, func(in *inbound, name string) int { return strings.Compare(in.dp.Name, name) })
		to := from
		for to < len(f.ix.all) && f.ix.all[to].dp.Name == name {
			to++
		}
		return f.ix.all[from:to]
	case sel.DataplaneLabels != nil:
		want := sel.DataplaneLabels.MatchLabels
		return filter(f.labels.smallest(want, f.ix.all), func(in *inbound) bool { return f.v.hasLabels(in.dp, want) })
	}
	return nil // a service without a selector has no endpoints
}

func filter[T any](list []T, keep func(T) bool) []T {
	var out []T
	for _, x := range list {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}

// eachLabel calls f with the labels that a resource has, those that every resource of the mesh has among them. The order is
// not fixed.
func (v *View) eachLabel(r *resource.Resource, f func(key, value string)) {
	for k, val := range r.Labels {
		f(k, val)
	}
	for _, k := range [...]string{resource.LabelMesh, resource.LabelOrigin, resource.LabelZone, resource.LabelEnv} {
		if _, written := r.Labels[k]; written {
			continue
		}
		if val, ok := v.label(r, k); ok {
			f(k, val)
		}
	}
}

// label returns one of those labels.
func (v *View) label(r *resource.Resource, key string) (string, bool) {
	if val, ok := r.Labels[key]; ok {
		return val, true
	}
	switch key {
	case resource.LabelMesh:
		return v.Name, true
	case resource.LabelOrigin:
		return "zone", true
	case resource.LabelZone:
		return v.Zone, r.Labels[resource.LabelOrigin] != "global" // it is of no zone, unless it says so
	case resource.LabelEnv:
		if r.Labels[resource.LabelNamespace] != "" {
			return "kubernetes", true
		}
		return "universal", true
	}
	return "", false
}

// hasLabels reports whether a resource has all the given labels.
func (v *View) hasLabels(r *resource.Resource, want map[string]string) bool {
	for k, val := range want {
		if have, ok := v.label(r, k); !ok || have != val {
			return false
		}
	}
	return true
}

// matchesPort reports whether a port of a MeshService leads to an inbound: by number, by name, or by its own number where
// it names no target.
func matchesPort(in *resource.Inbound, p *resource.MeshServicePort) bool {
	switch {
	case p.TargetPort == nil:
		return in.Port == p.Port
	case p.TargetPort.String != "":
		return in.Name == p.TargetPort.String
	default:
		return in.Port == p.TargetPort.Int
	}
}
