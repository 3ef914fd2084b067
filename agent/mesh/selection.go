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
	for _, spec := range resource.Specs[*resource.MeshService](services) {
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
	candidates := f.ix.all
	name, byService := exact(sel.DataplaneTags, resource.TagService)
	switch {
	case byService && len(sel.DataplaneTags) == 1: // as nearly every selector is
		return f.ix.by[name]
	case byService:
		candidates = f.ix.by[name]
	case len(sel.DataplaneTags) > 0:
		candidates = f.tags.smallest(sel.DataplaneTags, candidates)
	case sel.DataplaneRef != nil:
		return f.ix.ofDataplane(sel.DataplaneRef.Name)
	case sel.DataplaneLabels != nil:
		candidates = f.labels.smallest(sel.DataplaneLabels.MatchLabels, candidates)
	}
	return filter(candidates, func(in *inbound) bool { return f.v.selects(sel, in.dp, in.spec) })
}

// ofDataplane returns the inbounds of one dataplane.
func (ix *inboundIndex) ofDataplane(name string) []*inbound {
	from, _ := slices.BinarySearchFunc(ix.all, name, func(in *inbound, name string) int { return strings.Compare(in.dp.Name, name) })
	to := from
	for to < len(ix.all) && ix.all[to].dp.Name == name {
		to++
	}
	return ix.all[from:to]
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
