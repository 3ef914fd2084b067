package mesh

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// LabelOptional marks a MeshService that is in force only while it selects an inbound, ready or
// not. On Kubernetes, it may describe a Service without a pod in the mesh, whose cluster IP must
// reach the pods directly.
const LabelOptional = "nearside.io/optional"

// addMeshServices adds the ports of each MeshService. Unless the mesh disables service resources,
// it derives a MeshService from each tag service without one.
func (v *View) addMeshServices(ix *inboundIndex, list []*resource.Resource) {
	same := v.unaffected(ix, list)
	f := v.newFinder(ix, list, same)
	for i, r := range list {
		spec, ok := r.Spec.(*resource.MeshService)
		if !ok {
			continue
		}
		if same[i].is {
			v.addAgain(same[i].ports)
			continue
		}
		selected := v.ofItsZone(r, f.find(r, &spec.Selector))
		if len(selected) == 0 && r.Labels[LabelOptional] == "true" {
			continue
		}
		tls := ""
		if spec.Status != nil && spec.Status.TLS != nil {
			tls = spec.Status.TLS.Status
		}
		if v.reusePorts(r.Key, r, selected) {
			continue
		}
		identities := v.identities(spec, selected)
		for i := range spec.Ports {
			p := &spec.Ports[i]
			s := v.newServicePort(r, KindMeshService, "msvc", p.Port, p.AppProtocol)
			s.Section, s.port = p.Name, p
			s.Identities, s.TLSReady, s.TLSNotReady = identities, tls == resource.TLSReady, tls == resource.TLSNotReady
			match := func(in *inbound) bool { return matchesPort(in.spec, p) }
			s.setEndpoints(selected, match)
			v.throughIngresses(s, selected, match)
			v.add(s)
		}
		from := len(v.Warnings)
		v.warnMeshService(r, spec, selected)
		if ports := v.ports[r.Key]; len(ports) > 0 {
			ports[0].warned = slices.Clone(v.Warnings[from:])
		}
	}
	v.warnIdle(list)
	if v.Spec.ServicesMode() != resource.MeshServicesDisabled {
		v.deriveMeshServices(ix, list)
	}
}

// setEndpoints sets the endpoints of a service to the inbounds that match.
func (s *Service) setEndpoints(list []*inbound, match func(*inbound) bool) {
	eps := &EndpointSet{}
	for i, in := range list {
		switch {
		case in.behind || !match(in):
		case !in.ready:
			s.NotReady++
		case eps.has(in):
		default:
			if eps.List == nil {
				eps.List = make([]Endpoint, 0, len(list)-i)
			}
			eps.List = append(eps.List, in.ep)
		}
	}
	s.Endpoints, s.from, s.fixed = eps, list, true
}

// has reports whether an inbound with the same address and port is in the set. Both have the same
// dataplane, whose inbounds are adjacent.
func (s *EndpointSet) has(in *inbound) bool {
	for i := len(s.List) - 1; i >= 0 && s.List[i].Resource == in.dp; i-- {
		if s.List[i].Address == in.ep.Address && s.List[i].Port == in.ep.Port {
			return true
		}
	}
	return false
}

// warnMeshService warns about a MeshService of this zone that selects no inbound or an unexpected
// one.
func (v *View) warnMeshService(r *resource.Resource, spec *resource.MeshService, selected []*inbound) {
	if !v.local(r) {
		return
	}
	sel := &spec.Selector
	switch {
	case len(spec.Ports) == 0:
		v.warnf(r.Key, "spec.ports is empty: list at least one port")
		return
	case len(sel.DataplaneTags) == 0 && sel.DataplaneLabels == nil && sel.DataplaneRef == nil:
		v.warnf(r.Key, "spec.selector is empty and selects nothing: set dataplaneTags, dataplaneLabels or dataplaneRef")
		return
	case len(selected) == 0 && r.Labels[resource.LabelManagedBy] == managedByKubernetes: // see warnIdle
		return
	case len(selected) == 0:
		v.warnf(r.Key, "spec.selector: no inbound of a dataplane has %s: the service has no endpoints", describeSelector(sel))
		return
	case sel.DataplaneLabels != nil && len(sel.DataplaneLabels.MatchLabels) == 0 && len(sel.DataplaneTags) == 0 &&
		sel.DataplaneRef == nil:
		v.warnf(r.Key, "spec.selector.dataplaneLabels.matchLabels is empty and matches every dataplane: all %d "+
			"inbounds of the mesh are selected; name a label that only dataplanes of this service have", len(selected))
	}
	var ports []string
	for i := range spec.Ports {
		if !slices.ContainsFunc(selected, func(in *inbound) bool { return matchesPort(in.spec, &spec.Ports[i]) }) {
			ports = append(ports, fmt.Sprintf("ports[%d] %s", i, describePort(&spec.Ports[i])))
		}
	}
	if len(ports) > 0 {
		v.warnf(r.Key, "spec.%s: none of the %d selected inbounds matches: set targetPort to the port or the "+
			"name of one", list(ports, ", spec."), len(selected))
	}
}

func describeSelector(sel *resource.MeshServiceSelector) string {
	switch {
	case len(sel.DataplaneTags) > 0:
		return "the tags " + describePairs(sel.DataplaneTags)
	case sel.DataplaneRef != nil:
		return fmt.Sprintf("the name %q", sel.DataplaneRef.Name)
	}
	if len(sel.DataplaneLabels.MatchLabels) == 0 {
		return "any labels"
	}
	return "the labels " + describePairs(sel.DataplaneLabels.MatchLabels)
}

func describePort(p *resource.MeshServicePort) string {
	target := "port " + strconv.FormatUint(uint64(p.Port), 10)
	if t := p.TargetPort; t != nil && t.String != "" {
		target = fmt.Sprintf("targetPort %q", t.String)
	} else if t != nil {
		target = "targetPort " + strconv.FormatUint(uint64(t.Int), 10)
	}
	if p.Name == "" {
		return "(" + target + ")"
	}
	return fmt.Sprintf("(%q, %s)", p.Name, target)
}

// maxListed is the number of names in a message. The message counts the others.
const maxListed = 5

// list joins names for a message.
func list(names []string, sep string) string {
	if len(names) <= maxListed {
		return strings.Join(names, sep)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], sep), len(names)-maxListed)
}

// describePairs formats tags or labels for a message.
func describePairs(m map[string]string) string {
	var out []string
	for _, k := range sortedKeys(m) {
		out = append(out, k+"="+m[k])
	}
	return list(out, ", ")
}

// maxServiceName is Kuma's maximum length of a MeshService's name, in characters.
const maxServiceName = 63

// managedByTags is the kuma.io/managed-by value of MeshServices derived from tags.
const managedByTags = "meshservice-generator"

// deriveMeshServices derives a MeshService from each kuma.io/service tag of universal dataplanes,
// unless a MeshService has that name. As in Kuma, the derived MeshService has the tag's name,
// selects by the tag, and has a port for each inbound of the first dataplane.
func (v *View) deriveMeshServices(ix *inboundIndex, list []*resource.Resource) {
	for _, name := range ix.services {
		for len(list) > 0 && list[0].Name < name { // both are sorted
			list = list[1:]
		}
		if len(list) > 0 && list[0].Name == name {
			continue
		}
		key := resource.Key{Kind: KindMeshService, Mesh: v.Name, Name: name}
		if reason := notDerived(name); reason != "" {
			v.warnf(key, "no MeshService is derived from the tag %s: %s; it remains a tag service", resource.TagService, reason)
			continue
		}
		v.deriveMeshService(key, ix.by[name])
	}
}

// notDerived returns the reason why a tag cannot name a MeshService, or "".
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

// deriveMeshService takes the ports of the first dataplane by name. (Kuma takes the oldest, on
// which nodes may disagree.) Inbounds of other dataplanes at these ports become endpoints; their
// other ports are dropped with a warning. As in Kuma since labels identify dataplanes, names
// contain the zone if the dataplane has labels.
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
	zone := ""
	if Labeled(ins[0].dp) {
		zone = v.zoneOf(ins[0].dp)
	}
	var ports []*Service
	for _, in := range own {
		port := in.spec.Port
		if slices.ContainsFunc(ports, func(s *Service) bool { return s.Port == port }) {
			continue // same port at another address of the dataplane
		}
		s := &Service{
			ID:       ServiceID{KindMeshService, DestinationName(v.Name, key.Name, "", zone, "msvc", port)},
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

// Labeled reports whether a resource has labels other than those of agents.
func Labeled(r *resource.Resource) bool {
	for k := range r.Labels {
		if !strings.HasPrefix(k, AgentLabels) {
			return true
		}
	}
	return false
}

// AgentLabels is the prefix of labels that only agents read, and that change with the node.
const AgentLabels = "nearside.io/"

// derivedLabels returns the labels that Kuma gives to a derived MeshService.
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

// warnDerived warns about dataplanes whose ports differ from those of the first one.
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
		v.warnf(key,
			"it is derived from the tag %s, and dataplanes with the tag differ in their ports: the ports of %s are used, "+
				"and other ports of %s are ignored; give all of them the same ports, names, and protocols, "+
				"or create the MeshService",
			resource.TagService, own[0].dp.Name, list(others, ", "))
	}
}

// samePort reports whether two inbounds become the same port of a derived service.
func samePort(a, b *inbound) bool {
	return a.spec.Port == b.spec.Port && a.proto == b.proto &&
		SectionName(a.spec.Name, a.spec.Port) == SectionName(b.spec.Name, b.spec.Port)
}

// Derived returns the MeshService derived from tags for a key, in the form of a document, or nil.
// It has no digest and is not part of any set.
func (v *View) Derived(k resource.Key) *resource.Resource {
	ports := v.ports[k]
	if len(ports) == 0 || !ports[0].Derived {
		return nil
	}
	spec := &resource.MeshService{
		Selector: resource.MeshServiceSelector{DataplaneTags: map[string]string{resource.TagService: k.Name}},
	}
	for _, s := range ports {
		spec.Ports = append(spec.Ports, resource.MeshServicePort{Name: s.Section, Port: s.Port,
			TargetPort: &resource.IntOrString{Int: s.Port}, AppProtocol: string(s.Protocol)})
	}
	return &resource.Resource{Key: k, Labels: maps.Clone(ports[0].Labels), Spec: spec}
}

// identities returns the identities of a MeshService's endpoints.
func (v *View) identities(spec *resource.MeshService, selected []*inbound) []string {
	if len(spec.Identities) == 0 {
		return v.provedBy(selected)
	}
	if v.Spec.MTLSEnabled() == nil {
		return nil
	}
	var out []string
	for _, id := range spec.Identities {
		if id.Type == resource.IdentitySPIFFE {
			out = append(out, id.Value)
		} else {
			out = append(out, resource.SPIFFEID(v.Name, id.Value))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// provedBy returns the identities of the dataplanes of inbounds. A proxy has one certificate for
// all services of its inbounds.
func (v *View) provedBy(list []*inbound) []string {
	if v.Spec.MTLSEnabled() == nil {
		return nil
	}
	var out []string
	var last *resource.Resource
	for _, in := range list {
		spec, ok := in.dp.Spec.(*resource.Dataplane)
		if !ok || in.dp == last {
			continue // inbounds of one dataplane are adjacent
		}
		last = in.dp
		for i := range spec.Networking.Inbound {
			other := &spec.Networking.Inbound[i]
			if service := other.Tags[resource.TagService]; service != "" && other.State != resource.InboundIgnored {
				out = append(out, service)
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	for i, service := range out {
		out[i] = resource.SPIFFEID(v.Name, service)
	}
	return out
}
