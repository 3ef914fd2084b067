package policy

import (
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// workloads finds the services of the dataplanes that policies name. It looks at all dataplanes at most once.
type workloads struct {
	x       *Index
	byLabel map[string]map[string][]*resource.Resource // made when it is first needed
	keys    []string                                   // of tags by which services are known; made when first needed
}

// wants are the tags of the inbounds that a policy with a targetRef of kind Dataplane selects, as far as services select
// workloads by them, sorted.
func (w *workloads) wants(p *resource.Resource, t *resource.TargetRef) []wanted {
	if w.keys == nil {
		w.keys = w.x.selectorKeys()
	}
	found := map[string]map[string]string{}
	for d, dp := range resource.Specs[*resource.Dataplane](w.candidates(p, t)) {
		for _, i := range w.x.Select(p, d).Inbounds {
			have := dp.Networking.Inbound[i].Tags
			var b []byte
			for _, k := range w.keys {
				b = append(append(b, have[k]...), 0)
			}
			if have[resource.TagService] == "" || found[string(b)] != nil {
				continue
			}
			tags := make(map[string]string, len(w.keys))
			for _, k := range w.keys {
				if v, ok := have[k]; ok {
					tags[k] = v
				}
			}
			found[string(b)] = tags
		}
	}
	out := make([]wanted, 0, len(found))
	for _, k := range slices.Sorted(maps.Keys(found)) {
		out = append(out, wanted{tags: found[k]})
	}
	return out
}

// selectorKeys are the tags by which services are known and that dataplanes have, sorted. The zone is not one: a dataplane
// here is of this one, whether it says so or not.
func (x *Index) selectorKeys() []string {
	keys := map[string]bool{resource.TagService: true}
	for _, spec := range resource.Specs[*resource.MeshService](x.View.MeshServices()) {
		for key := range spec.Selector.DataplaneTags {
			keys[key] = true
		}
	}
	delete(keys, resource.TagZone)
	return slices.Sorted(maps.Keys(keys))
}

// candidates are the dataplanes that may be meant.
func (w *workloads) candidates(p *resource.Resource, t *resource.TargetRef) []*resource.Resource {
	all := w.x.View.Dataplanes()
	if t.Name != "" {
		var out []*resource.Resource
		for _, name := range mesh.Qualified(p, t.Name, t.Namespace) {
			if d := w.x.View.Dataplane(name); d != nil {
				out = append(out, d)
			}
		}
		return out
	}
	if len(t.Labels) == 0 {
		return all
	}
	if w.byLabel == nil {
		w.byLabel = map[string]map[string][]*resource.Resource{}
		for _, d := range all {
			for k, v := range w.x.View.Labels(d) {
				if w.byLabel[k] == nil {
					w.byLabel[k] = map[string][]*resource.Resource{}
				}
				w.byLabel[k][v] = append(w.byLabel[k][v], d)
			}
		}
	}
	for k, v := range t.Labels {
		if list := w.byLabel[k][v]; len(list) < len(all) {
			all = list
		}
	}
	return all
}

// kubernetesService takes a value of kuma.io/service apart that is made as NAME_NAMESPACE_svc_PORT; names of Kubernetes
// have no underscores.
func kubernetesService(service string) (name, namespace, port string, ok bool) {
	parts := strings.Split(service, "_")
	if len(parts) != 4 || parts[2] != "svc" {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[3], true
}
