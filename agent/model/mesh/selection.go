package mesh

import (
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// pair is a tag or label that a selector requires.
type pair struct{ key, value string }

// groups holds the candidates for each pair that some selector requires. A selector scans only the
// smallest group among its pairs.
type groups[T any] map[pair][]T

// want creates groups for the pairs of a selector. The value "*" matches any value and needs none.
func (g groups[T]) want(selector map[string]string) {
	for k, v := range selector {
		if v != "*" {
			g[pair{k, v}] = nil
		}
	}
}

// put adds x to the group of a pair, if that group exists.
func (g groups[T]) put(key, value string, x T) {
	p := pair{key, value}
	if list, ok := g[p]; ok {
		g[p] = append(list, x)
	}
}

// smallest returns the smallest group among the pairs of a selector, or otherwise if it has no
// pairs.
func (g groups[T]) smallest(selector map[string]string, otherwise []T) []T {
	best := otherwise
	for k, v := range selector {
		if v == "*" {
			continue
		}
		if list := g[pair{k, v}]; len(list) < len(best) {
			best = list // groups of equal size give the same result
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

// newFinder returns a finder for MeshServices, except those that did not change.
func (v *View) newFinder(ix *inboundIndex, services []*resource.Resource, same []unaffected) *finder {
	f := &finder{v: v, ix: ix, tags: groups[*inbound]{}, labels: groups[*inbound]{}}
	for i, r := range services {
		spec, ok := r.Spec.(*resource.MeshService)
		if !ok || same[i].is {
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

// exact returns the single value that a selector requires for a key, if there is one.
func exact(selector map[string]string, key string) (string, bool) {
	val, ok := selector[key]
	return val, ok && val != "*"
}

// find returns the inbounds that a selector selects. Callers must not modify the slice.
func (f *finder) find(service *resource.Resource, sel *resource.MeshServiceSelector) []*inbound {
	candidates := f.ix.all
	name, byService := exact(sel.DataplaneTags, resource.TagService)
	switch {
	case byService && len(sel.DataplaneTags) == 1: // the common case
		return f.ix.by[name]
	case byService:
		candidates = f.ix.by[name]
	case len(sel.DataplaneTags) > 0:
		candidates = f.tags.smallest(sel.DataplaneTags, candidates)
	case sel.DataplaneRef != nil:
		return f.ix.ofDataplane(f.v.referred(service, sel.DataplaneRef.Name))
	case sel.DataplaneLabels != nil:
		candidates = f.labels.smallest(sel.DataplaneLabels.MatchLabels, candidates)
	}
	return filter(candidates, func(in *inbound) bool { return f.v.selects(service, sel, in.dp, in.spec) })
}

// ofDataplane returns the inbounds of one dataplane.
func (ix *inboundIndex) ofDataplane(name string) []*inbound {
	from, _ := slices.BinarySearchFunc(ix.all, name, func(in *inbound, name string) int {
		return strings.Compare(in.dp.Name, name)
	})
	to := from
	for to < len(ix.all) && ix.all[to].dp.Name == name {
		to++
	}
	return ix.all[from:to]
}

func filter[T any](list []T, match func(T) bool) []T {
	var out []T
	for _, x := range list {
		if match(x) {
			out = append(out, x)
		}
	}
	return out
}

// matchesPort reports whether a port of a MeshService leads to an inbound: by target number, by
// target name, or by the port's own number if it has no target.
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

// Contains reports whether labels or tags have every entry of want; the value "*" matches any.
func Contains(have, want map[string]string) bool {
	for k, v := range want {
		if h, ok := have[k]; !ok || (h != v && v != "*") {
			return false
		}
	}
	return true
}

// impliedLabels returns the labels that every resource of a mesh has implicitly.
func impliedLabels() [4]string {
	return [...]string{resource.LabelMesh, resource.LabelOrigin, resource.LabelZone, resource.LabelEnv}
}

// label returns one explicit or implied label of a resource. Explicit labels take precedence.
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
		return v.Zone, r.Labels[resource.LabelOrigin] != "global" // a global resource has a zone only by an explicit label
	case resource.LabelEnv:
		if r.Labels[resource.LabelNamespace] != "" {
			return "kubernetes", true
		}
		return "universal", true
	}
	return "", false
}

// eachLabel calls f with the explicit and implied labels of a resource, in no fixed order.
func (v *View) eachLabel(r *resource.Resource, f func(key, value string)) {
	for k, val := range r.Labels {
		f(k, val)
	}
	for _, k := range impliedLabels() {
		if _, explicit := r.Labels[k]; explicit {
			continue
		}
		if val, ok := v.label(r, k); ok {
			f(k, val)
		}
	}
}

// hasLabels reports whether a resource has all given labels, explicit or implied.
func (v *View) hasLabels(r *resource.Resource, want map[string]string) bool {
	for k, val := range want {
		if have, ok := v.label(r, k); !ok || have != val {
			return false
		}
	}
	return true
}

// Labels returns the explicit and implied labels of a resource in a new map.
func (v *View) Labels(r *resource.Resource) map[string]string {
	out := maps.Clone(r.Labels)
	if out == nil {
		out = map[string]string{}
	}
	v.eachLabel(r, func(k, val string) { out[k] = val })
	return out
}

// InboundTags returns the tags of an inbound. The zone defaults to the zone of the node.
func (v *View) InboundTags(tags map[string]string) map[string]string {
	out := maps.Clone(tags)
	if out == nil {
		out = map[string]string{}
	}
	if out[resource.TagZone] == "" {
		out[resource.TagZone] = v.Zone
	}
	return out
}

// hasTags reports whether the tags of an inbound contain every entry of want. The zone defaults to
// the zone of the node; the value "*" matches any value.
func (v *View) hasTags(tags, want map[string]string) bool {
	for k, val := range want {
		have, ok := tags[k]
		if k == resource.TagZone && have == "" {
			have, ok = v.Zone, true
		}
		if !ok || have != val && val != "*" {
			return false
		}
	}
	return true
}

// referred returns the name of the dataplane that a dataplaneRef of a service names: in the
// namespace of the service first, where Kuma's controller leaves the namespace out.
func (v *View) referred(service *resource.Resource, name string) string {
	for _, qualified := range Qualified(service, name, "") {
		if v.Dataplane(qualified) != nil {
			return qualified
		}
	}
	return name
}

// Selects reports whether a MeshService of the mesh selects an inbound of a dataplane, ready or
// not.
func (v *View) Selects(service, dataplane *resource.Resource, in *resource.Inbound) bool {
	spec, ok := service.Spec.(*resource.MeshService)
	return ok && v.selects(service, &spec.Selector, dataplane, in)
}

func (v *View) selects(service *resource.Resource, sel *resource.MeshServiceSelector, dataplane *resource.Resource,
	in *resource.Inbound) bool {
	switch {
	case len(sel.DataplaneTags) > 0:
		return v.hasTags(in.Tags, sel.DataplaneTags)
	case sel.DataplaneRef != nil:
		return dataplane.Name == v.referred(service, sel.DataplaneRef.Name)
	case sel.DataplaneLabels != nil:
		return v.hasLabels(dataplane, sel.DataplaneLabels.MatchLabels)
	}
	return false // a service without a selector has no endpoints
}
