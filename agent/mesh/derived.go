package mesh

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// maxServiceName is the most characters that the name of a MeshService has, as the reference has it.
const maxServiceName = 63

// managedByTags is the value of kuma.io/managed-by that MeshServices have which are made of tags.
const managedByTags = "meshservice-generator"

// deriveMeshServices makes a MeshService of each kuma.io/service tag of universal dataplanes that none has the name of,
// as the reference does: named as the tag, selecting by it, with a port for each inbound of the first dataplane.
func (v *View) deriveMeshServices(ix *inboundIndex, named map[string]bool) {
	for _, name := range ix.services {
		if named[name] {
			continue
		}
		key := resource.Key{Kind: KindMeshService, Mesh: v.Name, Name: name}
		if reason := notDerived(name); reason != "" {
			v.warnf(key, "no MeshService is derived from the tag %s: %s; it stays a tag service", resource.TagService, reason)
			continue
		}
		v.deriveMeshService(key, ix.by[name])
	}
}

// notDerived says why a tag cannot name a MeshService, "" when it can.
func notDerived(name string) string {
	if len(name) > maxServiceName {
		return fmt.Sprintf("the name has %d characters, at most %d are allowed", len(name), maxServiceName)
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return fmt.Sprintf("%q is not a name: only lower-case letters, digits, '-', '.' and '_' are allowed", name)
		}
	}
	return ""
}

// deriveMeshService takes the ports of the first dataplane by name. (The reference takes the oldest, which not all nodes
// would agree on.) Inbounds of others at these ports are endpoints; their other ports are dropped, with a warning.
func (v *View) deriveMeshService(key resource.Key, ins []*inbound) {
	own := ins[:1]
	for len(own) < len(ins) && ins[len(own)].dp == ins[0].dp {
		own = ins[:len(own)+1]
	}
	if v.reusePorts(key, nil, ins) {
		v.warnDerived(key, own, ins)
		return
	}
	labels, identities := v.derivedLabels(key), v.provedBy(ins)
	var ports []*Service
	for _, in := range own {
		port := in.spec.Port
		if slices.ContainsFunc(ports, func(s *Service) bool { return s.Port == port }) {
			continue // the same port on another address of the dataplane
		}
		s := &Service{
			ID:       ServiceID{KindMeshService, DestinationName(v.Name, key.Name, "", "", "msvc", port)},
			Resource: key, Derived: true, FullName: key.Name, Labels: labels,
			Port: port, Section: SectionName(in.spec.Name, in.spec.Port), Protocol: in.proto, Identities: identities,
		}
		match := func(in *inbound) bool { return in.spec.Port == port }
		s.setEndpoints(ins, match)
		v.throughIngresses(s, ins, match)
		ports = append(ports, s)
	}
	slices.SortFunc(ports, func(a, b *Service) int { return int(a.Port) - int(b.Port) })
	for _, s := range ports {
		v.add(s)
	}
	v.warnDerived(key, own, ins)
}

// derivedLabels are those that the reference gives, and the zone, which it gives in later versions. The name of the
// cluster has no zone.
func (v *View) derivedLabels(key resource.Key) map[string]string {
	if v.prev != nil && v.prev.Zone == v.Zone {
		if before := v.prev.ports[key]; len(before) > 0 && before[0].Derived {
			return before[0].Labels
		}
	}
	return v.Labels(&resource.Resource{Labels: map[string]string{
		resource.LabelDisplayName: key.Name, resource.LabelManagedBy: managedByTags,
	}})
}

// warnDerived warns of dataplanes whose ports are not those of the first.
func (v *View) warnDerived(key resource.Key, own, ins []*inbound) {
	var others []string
	for i := len(own); i < len(ins); {
		n := 1
		for i+n < len(ins) && ins[i+n].dp == ins[i].dp {
			n++
		}
		if !slices.EqualFunc(own, ins[i:i+n], samePort) {
			others = append(others, ins[i].dp.Name)
		}
		i += n
	}
	if len(others) > 0 {
		v.warnf(key, "it is derived from the tag %s, and dataplanes with the tag differ in their ports: the ports of %s are used, "+
			"and other ports of %s are ignored; give all the same ports, names and protocols, or write the MeshService",
			resource.TagService, own[0].dp.Name, list(others, ", "))
	}
}

// samePort reports whether two inbounds make the same port of a derived service.
func samePort(a, b *inbound) bool {
	return a.spec.Port == b.spec.Port && a.proto == b.proto && SectionName(a.spec.Name, a.spec.Port) == SectionName(b.spec.Name, b.spec.Port)
}

// Derived returns the MeshService that a key names when it is made of tags, as a document would have it; nil for others.
// It has no digest and is not part of any set.
func (v *View) Derived(k resource.Key) *resource.Resource {
	ports := v.ports[k]
	if len(ports) == 0 || !ports[0].Derived {
		return nil
	}
	spec := &resource.MeshService{Selector: resource.MeshServiceSelector{DataplaneTags: map[string]string{resource.TagService: k.Name}}}
	for _, s := range ports {
		spec.Ports = append(spec.Ports, resource.MeshServicePort{Name: s.Section, Port: s.Port,
			TargetPort: &resource.IntOrString{Int: s.Port}, AppProtocol: string(s.Protocol)})
	}
	return &resource.Resource{Key: k, Labels: maps.Clone(ports[0].Labels), Spec: spec}
}
