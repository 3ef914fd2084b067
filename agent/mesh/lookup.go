package mesh

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Real returns the MeshService resource with a key, nil for none and for one that is derived from tags.
func (v *View) Real(k resource.Key) *resource.Resource {
	if k.Kind != KindMeshService || k.Mesh != v.Name {
		return nil
	}
	i, ok := slices.BinarySearchFunc(v.meshServices, k.Name, func(r *resource.Resource, name string) int { return strings.Compare(r.Name, name) })
	if !ok {
		return nil
	}
	return v.meshServices[i]
}

// Gateway reports whether some gateway carries a value of kuma.io/service.
func (v *View) Gateway(service string) bool { return v.gateways[service] }

// Serves reports whether an inbound that a MeshService selects is behind one of its ports.
func (v *View) Serves(port *Service, in *resource.Inbound) bool {
	return port.port == nil || matchesPort(in, port.port)
}

// Labels returns the labels of a resource with those that every resource of the mesh has: what is written goes first.
func (v *View) Labels(r *resource.Resource) map[string]string {
	out := map[string]string{
		resource.LabelEnv: "universal", resource.LabelMesh: v.Name, resource.LabelOrigin: "zone", resource.LabelZone: v.Zone,
	}
	if r.Labels[resource.LabelNamespace] != "" {
		out[resource.LabelEnv] = "kubernetes"
	}
	if r.Labels[resource.LabelOrigin] == "global" {
		delete(out, resource.LabelZone) // it is of no zone, unless it says so
	}
	maps.Copy(out, r.Labels)
	return out
}

// indexNames remembers what is looked up by name: the MeshServices and the services of gateways.
func (v *View) indexNames(services []*resource.Resource) {
	v.meshServices = services
	for _, d := range v.dataplanes {
		if spec, ok := d.Spec.(*resource.Dataplane); ok && spec.Networking.Gateway != nil {
			if v.gateways == nil {
				v.gateways = map[string]bool{}
			}
			v.gateways[spec.Networking.Gateway.Tags[resource.TagService]] = true
		}
	}
}

// BackendRef names a destination of a route.
type BackendRef struct {
	Kind      string
	Name      string
	Namespace string
	Tags      map[string]string
	Labels    map[string]string
	Port      uint32
}

// String names the reference in a message.
func (r BackendRef) String() string {
	s := describe(&resource.OutboundRef{Kind: r.Kind, Name: r.Name, Namespace: r.Namespace, Labels: r.Labels, Port: r.Port})
	if len(r.Tags) > 0 {
		s += fmt.Sprintf(" with tags %v", r.Tags)
	}
	return s
}

// Backend finds what a reference of a resource leads to. A MeshService without port, labels and namespace is a value of
// kuma.io/service where there is one, else a real service. False when there is no such real service; a tag that nothing
// carries leads to no endpoints.
func (v *View) Backend(from *resource.Resource, ref BackendRef) (Outbound, bool) {
	tag := ref.Kind == "MeshServiceSubset"
	if ref.Kind == KindMeshService && ref.Port == 0 && len(ref.Labels) == 0 && ref.Namespace == "" {
		tag = v.Spec.ServicesMode() != resource.MeshServicesExclusive && v.Service(ServiceID{KindTag, ref.Name}) != nil
	}
	if !tag {
		s := v.backend(from, &resource.OutboundRef{Kind: ref.Kind, Name: ref.Name, Namespace: ref.Namespace, Port: ref.Port, Labels: ref.Labels})
		if s != nil {
			return Outbound{Service: s}, true
		}
		if ref.Kind != KindMeshService || ref.Port != 0 || len(ref.Labels) > 0 || ref.Namespace != "" {
			return Outbound{}, false
		}
	}
	out := Outbound{Service: v.tagService(ref.Name), Tags: map[string]string{resource.TagService: ref.Name}}
	for k, val := range ref.Tags {
		if k != resource.TagService {
			if out.Subset == nil {
				out.Subset = map[string]string{}
			}
			out.Subset[k] = val
			out.Tags[k] = val
		}
	}
	return out, true
}
