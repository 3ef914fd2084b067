package mesh

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Bounds of what is said about lists that lead nowhere.
const (
	maxHints      = 16  // entries that have a warning of their own
	maxNear       = 4   // of them those for which a similar name is looked for
	maxCandidates = 512 // names that one is compared with
	maxNamedPorts = 8
)

// hints tells about entries of the lists that select nothing, of many about the first.
func (r *Reach) hints(warn func(format string, args ...any)) {
	told, more, near := 0, 0, 0
	tell := func(entry func(near bool) string) {
		if told == maxHints {
			more++
			return
		}
		told++
		near++
		warn("%s", entry(near <= maxNear))
	}
	if r.mode == resource.MeshServicesExclusive && r.services != nil && r.tp.ReachableBackends == nil {
		warn("networking.transparentProxying.reachableServices: it is without reachableBackends, and makes nothing reachable: the mode of " +
			"the mesh, Exclusive, leaves tag services out; list MeshServices in reachableBackends.refs, or leave reachableServices out for all")
		return
	}
	for i, name := range r.tp.ReachableServices {
		if r.view.Service(ServiceID{Kind: KindTag, Name: name}) == nil {
			tell(func(near bool) string {
				return fmt.Sprintf("networking.transparentProxying.reachableServices[%d]: there is no service %q", i, name) + r.near(near, KindTag, name, "")
			})
		}
	}
	if r.tp.ReachableBackends != nil {
		for i := range r.tp.ReachableBackends.Refs {
			ref := &r.tp.ReachableBackends.Refs[i]
			if len(r.view.backends(r.dataplane, outboundRef(ref))) == 0 {
				tell(func(near bool) string {
					return fmt.Sprintf("networking.transparentProxying.reachableBackends.refs[%d]: %s", i, r.why(ref, near))
				})
			}
		}
	}
	if more > 0 {
		warn("networking.transparentProxying: %d further entries of its lists lead nowhere", more)
	}
}

// outboundRef is a reference of the list in the form that outbounds have.
func outboundRef(ref *resource.ReachableBackendRef) *resource.OutboundRef {
	out := &resource.OutboundRef{Kind: ref.Kind, Name: ref.Name, Namespace: ref.Namespace, Labels: ref.Labels}
	if ref.Port != nil {
		out.Port = *ref.Port
	}
	return out
}

// why says what a reference names that is not there.
func (r *Reach) why(ref *resource.ReachableBackendRef, near bool) string {
	named := outboundRef(ref)
	named.Port = 0
	if len(ref.Labels) > 0 {
		return "there is no " + describe(named)
	}
	for _, name := range Qualified(r.dataplane, ref.Name, ref.Namespace) {
		list := r.view.ports[resource.Key{Kind: ref.Kind, Mesh: r.view.Name, Name: name}]
		if len(list) == 0 {
			continue
		}
		var ports []string
		for _, s := range list[:min(len(list), maxNamedPorts)] {
			ports = append(ports, fmt.Sprint(s.Port))
		}
		has := strings.Join(ports, ", ")
		if len(list) > maxNamedPorts {
			has += " and others"
		}
		return fmt.Sprintf("%s has no port %d; it has %s", describe(named), *ref.Port, has)
	}
	return "there is no " + describe(named) + r.near(near, ref.Kind, ref.Name, ref.Namespace)
}

// near names a service of a kind that may have been meant, in another namespace or by a similar name, and "" when
// none is near.
func (r *Reach) near(look bool, kind, name, namespace string) string {
	if !look || len(name) < 3 {
		return ""
	}
	var names []string
	last := ""
	for _, s := range r.view.services {
		if s.ID.Kind != kind || len(names) == maxCandidates {
			continue
		}
		have := s.Tag
		if kind != KindTag {
			have = s.Resource.Name
			if ns := s.Labels[resource.LabelNamespace]; ns != "" {
				if base := strings.TrimSuffix(have, "."+ns); base == name && ns != namespace {
					return fmt.Sprintf("; there is one in namespace %q", ns)
				}
				if namespace != "" || r.dataplane.Namespace() == ns {
					have = strings.TrimSuffix(have, "."+ns)
				}
			}
		}
		// Names of another length are never near.
		if d := len(have) - len(name); have != last && d <= max(1, len(name)/3) && -d <= max(1, len(name)/3) {
			names = append(names, have)
			last = have
		}
	}
	if near := resource.Nearest(name, names); near != "" && near != name {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}
