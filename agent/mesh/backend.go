package mesh

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// backend finds the service port that a reference of a dataplane names, nil for none.
func (v *View) backend(from *resource.Resource, ref *resource.OutboundRef) *Service {
	if found := v.backends(from, ref); len(found) > 0 {
		return found[0]
	}
	return nil
}

// backends finds the service ports that a reference of a dataplane can mean, one of each service, in the order of their
// names: the first counts. A reference without a namespace means the dataplane's own.
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

// backendWarning is the warning about what an outbound's reference finds, "" when that is one service.
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
		return fmt.Sprintf("there is no kind %s of services: give one of %s; the outbound is left out", ref.Kind, list(serviceKinds(), ", "))
	}
	return fmt.Sprintf("there is no %s: the outbound is left out", describe(ref))
}

// serviceKinds are the kinds of service resources.
func serviceKinds() []string {
	return []string{KindMeshService, KindMeshExternalService, KindMeshMultiZoneService}
}

// Qualified returns the resource names that a reference of a resource can mean, the most specific first: without a
// namespace the resource's own is looked at before none.
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
