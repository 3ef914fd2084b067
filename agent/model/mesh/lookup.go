package mesh

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// MeshService returns the MeshService resource with a key, nil for none and for one that is derived
// from tags.
func (v *View) MeshService(k resource.Key) *resource.Resource {
	if k.Kind != KindMeshService || k.Mesh != v.Name {
		return nil
	}
	return findByName(v.meshServices, k.Name)
}

// MeshServices returns the MeshService resources, sorted by name; those that are derived from tags
// are not among them. The slice must not be changed.
func (v *View) MeshServices() []*resource.Resource { return v.meshServices }

// Ports returns the ports of a MeshService, MeshExternalService or MeshMultiZoneService, in the
// order of the resource; also of a MeshService that is derived from tags. The slice must not be
// changed.
func (v *View) Ports(k resource.Key) []*Service { return v.ports[k] }

// Port returns the port of a service resource that a sectionName means: the one of that name, else
// the one of that number; nil for none, and for "".
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
	// MeshService, MeshServiceSubset, MeshExternalService or MeshMultiZoneService
	Kind      string            `json:"kind"`
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Tags      map[string]string `json:"tags,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Port      uint32            `json:"port,omitempty"`
}

// String names the reference in a message.
func (r BackendRef) String() string {
	s := describe(&resource.OutboundRef{Kind: r.Kind, Name: r.Name, Namespace: r.Namespace, Labels: r.Labels,
		Port: r.Port})
	if len(r.Tags) > 0 {
		s += fmt.Sprintf(" with tags %v", r.Tags)
	}
	return s
}

// Backend finds what a reference of a resource leads to. A MeshService without port, labels and
// namespace is a value of kuma.io/service where there is one, in every mode of MeshServices, else a
// service resource. False when there is no such service resource; a tag that nothing carries leads
// to no endpoints.
func (v *View) Backend(from *resource.Resource, ref BackendRef) (Outbound, bool) {
	tag := ref.Kind == "MeshServiceSubset"
	if ref.Kind == KindMeshService && ref.Port == 0 && len(ref.Labels) == 0 && ref.Namespace == "" {
		tag = v.Service(ServiceID{KindTag, ref.Name}) != nil
	}
	if !tag {
		s := v.backend(from,
			&resource.OutboundRef{Kind: ref.Kind, Name: ref.Name, Namespace: ref.Namespace, Port: ref.Port, Labels: ref.Labels})
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

// backend finds the service port that a reference of a dataplane names, nil for none.
func (v *View) backend(from *resource.Resource, ref *resource.OutboundRef) *Service {
	if found := v.backends(from, ref); len(found) > 0 {
		return found[0]
	}
	return nil
}

// backends finds the service ports that a reference of a dataplane can mean, one of each service,
// in the order of their names: the first counts. A reference without a namespace means the
// dataplane's own.
func (v *View) backends(from *resource.Resource, ref *resource.OutboundRef) []*Service {
	if len(ref.Labels) > 0 {
		var out []*Service
		for _, s := range v.services {
			if s.ID.Kind == ref.Kind && (ref.Port == 0 || s.Port == ref.Port) && s.labelled(ref.Labels) {
				out = append(out, s)
			}
		}
		slices.SortStableFunc(out, func(a, b *Service) int { return a.Resource.Compare(b.Resource) })
		return slices.CompactFunc(out, func(a, b *Service) bool { return a.Resource == b.Resource })
	}
	for _, name := range Qualified(from, ref.Name, ref.Namespace) {
		for _, s := range v.ports[resource.Key{Kind: ref.Kind, Mesh: v.Name, Name: name}] {
			if ref.Port == 0 || s.Port == ref.Port {
				return []*Service{s}
			}
		}
	}
	return nil
}

// backendWarning is the warning about what an outbound's reference finds, "" when that is one
// service.
func backendWarning(ref *resource.OutboundRef, found []*Service) string {
	switch {
	case len(found) == 1:
		return ""
	case len(found) > 1:
		var names []string
		for _, s := range found[1:] {
			names = append(names, s.Resource.Name)
		}
		return fmt.Sprintf("%d services match %s, and an outbound leads to one: %s is used, the first by name, and not %s; "+
			"give a name, or labels that match only one", len(found), describe(ref), found[0].Resource.Name, list(names, ", "))
	case !slices.Contains(serviceKinds(), ref.Kind):
		return fmt.Sprintf("there is no kind %s of services: give one of %s; the outbound is left out",
			ref.Kind, list(serviceKinds(), ", "))
	}
	return fmt.Sprintf("there is no %s: the outbound is left out", describe(ref))
}

// serviceKinds are the kinds of service resources.
func serviceKinds() []string {
	return []string{KindMeshService, KindMeshExternalService, KindMeshMultiZoneService}
}

// Qualified returns the resource names that a reference of a resource can mean, the most specific
// first: without a namespace the resource's own is looked at before none.
func Qualified(from *resource.Resource, name, namespace string) []string {
	if namespace != "" {
		return []string{name + "." + namespace}
	}
	if ns := from.Namespace(); ns != "" {
		return []string{name + "." + ns, name}
	}
	return []string{name}
}

func describe(ref *resource.OutboundRef) string {
	s := ref.Kind
	if len(ref.Labels) > 0 {
		s += " with labels " + describePairs(ref.Labels)
	} else {
		s += fmt.Sprintf(" %q", ref.Name)
	}
	if ref.Namespace != "" {
		s += fmt.Sprintf(" in namespace %q", ref.Namespace)
	}
	if ref.Port != 0 {
		s += fmt.Sprintf(" with port %d", ref.Port)
	}
	return s
}
