package mesh

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// MeshService returns the MeshService resource with a key, nil for none and for one that is derived from tags.
func (v *View) MeshService(k resource.Key) *resource.Resource {
	if k.Kind != KindMeshService || k.Mesh != v.Name {
		return nil
	}
	i, ok := slices.BinarySearchFunc(v.meshServices, k.Name, func(r *resource.Resource, name string) int { return strings.Compare(r.Name, name) })
	if !ok {
		return nil
	}
	return v.meshServices[i]
}

// MeshServices returns the MeshService resources, sorted by name; those that are derived from tags are not among them. The
// slice must not be changed.
func (v *View) MeshServices() []*resource.Resource { return v.meshServices }

// Ports returns the ports of a MeshService, MeshExternalService or MeshMultiZoneService, in the order of the resource; also
// of a MeshService that is derived from tags. The slice must not be changed.
func (v *View) Ports(k resource.Key) []*Service { return v.ports[k] }

// Port returns the port of a service resource that a sectionName means: the one of that name, else the one of that number;
// nil for none, and for "".
func (v *View) Port(k resource.Key, section string) *Service {
	if section == "" {
		return nil
	}
	for _, s := range v.ports[k] {
		if s.Section == section {
			return s
		}
	}
	for _, s := range v.ports[k] {
		if SectionName("", s.Port) == section {
			return s
		}
	}
	return nil
}

// Gateway reports whether some gateway carries a value of kuma.io/service.
func (v *View) Gateway(service string) bool { return v.gateways[service] }

// Serves reports whether an inbound that a MeshService selects is behind one of its ports.
func (v *View) Serves(port *Service, in *resource.Inbound) bool {
	return port.port == nil || matchesPort(in, port.port)
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

// BackendRef names a destination of a route, as policies write it.
type BackendRef struct {
	Kind      string            `json:"kind"` // MeshService, MeshServiceSubset, MeshExternalService or MeshMultiZoneService
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Tags      map[string]string `json:"tags,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Port      uint32            `json:"port,omitempty"`
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
// kuma.io/service where there is one, else a service resource. False when there is no such service resource; a tag that nothing
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
