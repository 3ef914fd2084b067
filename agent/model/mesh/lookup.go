package mesh

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// MeshService returns the MeshService resource of a key. It is nil if there is none or if the
// service is derived from tags.
func (v *View) MeshService(k resource.Key) *resource.Resource {
	if k.Kind != KindMeshService || k.Mesh != v.Name {
		return nil
	}
	return findByName(v.meshServices, k.Name)
}

// MeshServices returns the MeshService resources sorted by name, without services derived from
// tags. Callers must not modify the slice.
func (v *View) MeshServices() []*resource.Resource { return v.meshServices }

// Ports returns the ports of a MeshService, MeshExternalService, or MeshMultiZoneService in the
// order of the resource. It includes MeshServices derived from tags. Callers must not modify the
// slice.
func (v *View) Ports(k resource.Key) []*Service { return v.ports[k] }

// Port returns the port of a service resource that a sectionName refers to: by name, or else by
// number. It is nil if there is none or section is "".
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

// Gateway reports whether a gateway has the given value of kuma.io/service.
func (v *View) Gateway(service string) bool { return v.gateways[service] }

// Serves reports whether a MeshService selects an inbound and one of its ports leads to it.
func (v *View) Serves(port *Service, in *resource.Inbound) bool {
	return port.port == nil || matchesPort(in, port.port)
}

// indexNames indexes the MeshServices and the services of gateways by name.
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

// BackendRef names the destination of a route, in the form that policies use.
type BackendRef struct {
	// Kind is MeshService, MeshServiceSubset, MeshExternalService, or MeshMultiZoneService.
	Kind      string            `json:"kind"`
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Tags      map[string]string `json:"tags,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Port      uint32            `json:"port,omitempty"`
}

// String formats the reference for a message.
func (r BackendRef) String() string {
	s := describe(&resource.OutboundRef{Kind: r.Kind, Name: r.Name, Namespace: r.Namespace, Labels: r.Labels,
		Port: r.Port})
	if len(r.Tags) > 0 {
		s += fmt.Sprintf(" with tags %v", r.Tags)
	}
	return s
}

// Backend resolves a reference of a resource. A MeshService without port, labels, and namespace is
// a value of kuma.io/service if that exists, in every mode of MeshServices; else it is a service
// resource. The result is false if there is no such service resource. An unused tag value resolves
// to a service without endpoints.
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

// backend returns the service port that a dataplane's reference names, or nil.
func (v *View) backend(from *resource.Resource, ref *resource.OutboundRef) *Service {
	if found := v.backends(from, ref); len(found) > 0 {
		return found[0]
	}
	return nil
}

// backends returns the service ports that a dataplane's reference may name, at most one of each
// service, sorted by name. The first one takes precedence. A reference without a namespace means
// the namespace of the dataplane.
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

// backendWarning returns a warning if an outbound's reference does not resolve to exactly one
// service, else "".
func backendWarning(ref *resource.OutboundRef, found []*Service) string {
	switch {
	case len(found) == 1:
		return ""
	case len(found) > 1:
		var names []string
		for _, s := range found[1:] {
			names = append(names, s.Resource.Name)
		}
		return fmt.Sprintf(
			"%d services match %s, but an outbound leads to one: %s, the first by name, is used instead of %s; "+
				"give a name, or labels that match only one", len(found), describe(ref), found[0].Resource.Name, list(names, ", "))
	case !slices.Contains(serviceKinds(), ref.Kind):
		return fmt.Sprintf("unknown kind of service %s: use one of %s; the outbound is ignored",
			ref.Kind, list(serviceKinds(), ", "))
	}
	return fmt.Sprintf("there is no %s: the outbound is ignored", describe(ref))
}

// serviceKinds returns the kinds of service resources.
func serviceKinds() []string {
	return []string{KindMeshService, KindMeshExternalService, KindMeshMultiZoneService}
}

// Qualified returns the resource names that a reference may mean, the most specific first. A
// reference without a namespace means the namespace of the referring resource first, and then none.
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
