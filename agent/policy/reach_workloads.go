package policy

import (
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// workloads finds the services of the dataplanes that policies name. It looks at all dataplanes at most once.
type workloads struct {
	x       *Index
	byLabel map[string]map[string][]*resource.Resource // made when it is first needed
}

// services are the values of kuma.io/service of the inbounds that a policy with a targetRef of kind Dataplane selects,
// sorted.
func (w *workloads) services(p *resource.Resource, t *resource.TargetRef) []string {
	found := map[string]bool{}
	for _, d := range w.candidates(p, t) {
		dp, ok := d.Spec.(*resource.Dataplane)
		if !ok {
			continue
		}
		for _, i := range w.x.Select(p, d).Inbounds {
			found[dp.Networking.Inbound[i].Tags[resource.TagService]] = true
		}
	}
	delete(found, "")
	return slices.Sorted(maps.Keys(found))
}

// candidates are the dataplanes that may be meant.
func (w *workloads) candidates(p *resource.Resource, t *resource.TargetRef) []*resource.Resource {
	all := w.x.View.Dataplanes()
	if t.Name != "" {
		var out []*resource.Resource
		for _, name := range qualified(p, t.Name, t.Namespace) {
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
