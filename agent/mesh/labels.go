package mesh

import (
	"maps"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Contains reports whether labels or tags have every entry of want; the value "*" matches any.
func Contains(have, want map[string]string) bool {
	for k, v := range want {
		if h, ok := have[k]; !ok || (h != v && v != "*") {
			return false
		}
	}
	return true
}

// impliedLabels are the labels that every resource of a mesh has, whether or not they are written.
func impliedLabels() [4]string {
	return [...]string{resource.LabelMesh, resource.LabelOrigin, resource.LabelZone, resource.LabelEnv}
}

// label returns one label of a resource, written or implied. Written labels take precedence.
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
		return v.Zone, r.Labels[resource.LabelOrigin] != "global" // a global resource has a zone only where one is written
	case resource.LabelEnv:
		if r.Labels[resource.LabelNamespace] != "" {
			return "kubernetes", true
		}
		return "universal", true
	}
	return "", false
}

// eachLabel calls f with the written and implied labels of a resource. The order is not fixed.
func (v *View) eachLabel(r *resource.Resource, f func(key, value string)) {
	for k, val := range r.Labels {
		f(k, val)
	}
	for _, k := range impliedLabels() {
		if _, written := r.Labels[k]; written {
			continue
		}
		if val, ok := v.label(r, k); ok {
			f(k, val)
		}
	}
}

// hasLabels reports whether a resource has all the given labels, written or implied.
func (v *View) hasLabels(r *resource.Resource, want map[string]string) bool {
	for k, val := range want {
		if have, ok := v.label(r, k); !ok || have != val {
			return false
		}
	}
	return true
}

// Labels returns the written and implied labels of a resource, in a new map.
func (v *View) Labels(r *resource.Resource) map[string]string {
	out := make(map[string]string, len(r.Labels)+len(impliedLabels()))
	v.eachLabel(r, func(k, val string) { out[k] = val })
	return out
}

// InboundTags are the tags of an inbound with the zone of the node where it names none.
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

// hasTags reports whether the tags of an inbound, with the zone of the node where they name none, have every entry of
// want; the value "*" matches any.
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

// Selects reports whether a MeshService of the mesh selects an inbound of a dataplane, ready or not.
func (v *View) Selects(service, dataplane *resource.Resource, in *resource.Inbound) bool {
	spec, ok := service.Spec.(*resource.MeshService)
	return ok && v.selects(&spec.Selector, dataplane, in)
}

func (v *View) selects(sel *resource.MeshServiceSelector, dataplane *resource.Resource, in *resource.Inbound) bool {
	switch {
	case len(sel.DataplaneTags) > 0:
		return v.hasTags(in.Tags, sel.DataplaneTags)
	case sel.DataplaneRef != nil:
		return dataplane.Name == sel.DataplaneRef.Name
	case sel.DataplaneLabels != nil:
		return v.hasLabels(dataplane, sel.DataplaneLabels.MatchLabels)
	}
	return false // a service without a selector has no endpoints
}
