package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/suffix"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
	"github.com/nearside-mesh/nearside/dns/table"
)

// tagDomain is the suffix of the names of tag services, as in Kuma.
const tagDomain = ".mesh"

// nameMaker assigns names to services. The first claim of a name wins.
type nameMaker struct {
	v         *View
	t         *nameTable
	owner     map[string]nameOwner
	tried     map[virtualip.Owner]int // number of generators that selected each service
	conflicts map[resource.Key][]string
	failures  map[resource.Key][]string // names that each generator failed to make
	overflow  bool
}

// nameOwner is the service that owns a name, and the index of the name in the unfinished list.
type nameOwner struct {
	service *named
	at      int
}

func (v *View) makeNames(t *nameTable) {
	m := &nameMaker{v: v, t: t, owner: make(map[string]nameOwner, len(t.services)), tried: map[virtualip.Owner]int{},
		conflicts: map[resource.Key][]string{}, failures: map[resource.Key][]string{}}
	// tag services have one name each; one more generator makes the list grow
	t.list = make([]Hostname, 0, len(t.services))
	t.status = make(map[virtualip.Owner][]HostnameStatus, len(t.services))
	m.fromStatus()
	m.fromGenerators()
	m.fromHosts(false, OriginVirtual)
	m.fromTags()
	m.fromHosts(true, OriginHost)
	for i := range t.services {
		s := &t.services[i]
		if n := m.tried[s.Owner]; n > maxNamesOfService {
			m.tell(s, HostnameStatus{Origin: OriginGenerator, Reason: HostnameOutOfRange, Message: fmt.Sprintf(
				"%d generators select the service, and only the first %d are used: narrow the selectors", n, maxNamesOfService)})
		}
	}
	m.warn()
	slices.SortFunc(t.list, func(a, b Hostname) int { return strings.Compare(a.Name, b.Name) })
}

// claim assigns a name to a service unless another service owns it.
func (m *nameMaker) claim(s *named, name string, origin Origin, generator resource.Key) {
	st := HostnameStatus{Hostname: name, Origin: origin, Generator: generator}
	owner, taken := m.owner[name]
	switch {
	case taken && owner.service.host != nil && owner.service.host.leadsTo(s): // the host leads to the same service
		st.Reason, st.Message = HostnameCollision, "the name belongs to "+describeHost(&m.t.list[owner.at])
	case taken && owner.service != s:
		st.Reason, st.Message = HostnameCollision, m.contest(s, generator, &m.t.list[owner.at])
	case !taken && len(m.t.list) >= maxNames:
		m.overflow = true
		st.Reason, st.Message = HostnameOutOfRange, fmt.Sprintf("the mesh has %d names, the maximum", maxNames)
	default:
		st.Generated, st.Reason = true, HostnameGenerated
		if !taken {
			m.owner[name] = nameOwner{s, len(m.t.list)}
			m.t.list = append(m.t.list, hostnameOf(s, name, origin, generator))
		}
	}
	m.tell(s, st)
}

// contest records that a service did not get a name, for both services and both generators. It
// warns each resource once, however many of its names collide.
func (m *nameMaker) contest(s *named, generator resource.Key, h *Hostname) string {
	h.Contested = true
	owner := describeHost(h)
	who := describeService(s.Name, s.resource)
	if s.host != nil {
		who = generator.String()
	}
	what := fmt.Sprintf("%s for %s (it belongs to %s)", h.Name, who, owner)
	// A tag service is not a resource, so the mesh gets its warning.
	keys := []resource.Key{cmp.Or(s.resource, m.v.mesh.Key), cmp.Or(h.Resource, m.v.mesh.Key), generator, h.Generator}
	slices.SortFunc(keys, resource.Key.Compare)
	for _, k := range slices.Compact(keys) {
		if k != (resource.Key{}) {
			m.conflicts[k] = append(m.conflicts[k], what)
		}
	}
	return "the name belongs to " + owner
}

func (m *nameMaker) tell(s *named, st HostnameStatus) {
	m.t.status[s.Owner] = append(m.t.status[s.Owner], st)
}

func hostnameOf(s *named, name string, origin Origin, generator resource.Key) Hostname {
	h := Hostname{Host: table.Host{Name: name}, Kind: s.Kind, Resource: s.resource, Zone: s.labels[resource.LabelZone],
		Origin:    origin,
		Generator: generator}
	switch {
	case s.host != nil: // the service of the first port decides who may see the name
		h.Tag = s.host.ports[0].tags[resource.TagService]
		for _, p := range s.host.ports {
			h.Ports = append(h.Ports, table.Port{Number: uint16(p.number)}) // #nosec G115 -- it has 16 bits
		}
	case s.Kind == KindTag:
		h.Tag = s.Name
	}
	h.Addrs = slices.DeleteFunc(slices.Clone(s.vips[:]), func(a netip.Addr) bool { return !a.IsValid() })
	return h
}

// fromStatus claims the hostnames that the resources list in their status.
func (m *nameMaker) fromStatus() {
	for i := range m.t.services {
		s := &m.t.services[i]
		for _, name := range statusNames(s.res) {
			if fold, reason := suffix.Hostname(name); reason == "" {
				m.claim(s, fold, OriginStatus, resource.Key{})
			}
		}
	}
}

// statusNames returns the hostnames in the status of a service resource. Decoding has validated
// them.
func statusNames(r *resource.Resource) []string {
	if r == nil {
		return nil
	}
	st := resource.StatusOf(r.Spec)
	if st == nil {
		return nil
	}
	out := make([]string, 0, len(st.Addresses))
	for _, a := range st.Addresses[:min(len(st.Addresses), maxNamesOfService)] {
		out = append(out, a.Hostname)
	}
	return out
}

// fromHosts claims the names of VirtualOutbounds, or the hosts of ExternalServices.
func (m *nameMaker) fromHosts(external bool, origin Origin) {
	for i := range m.t.hosts {
		if h := m.t.hosts[i].host; h.external == external {
			m.claim(&m.t.hosts[i], h.name, origin, h.ports[0].by)
		}
	}
}

// fromTags claims the names of tag services, as Kuma does: SERVICE.mesh, and the same with dots for
// underscores. All first forms precede all second forms.
func (m *nameMaker) fromTags() {
	n, _ := slices.BinarySearchFunc(m.t.services, virtualip.Owner{Kind: KindMeshExternalService},
		func(s named, k virtualip.Owner) int { return s.Compare(k) })
	tags := m.t.services[:n] // the empty kind sorts first
	for i := range tags {
		m.fromTag(&tags[i], tags[i].Name)
	}
	for i := range tags {
		if dotted := strings.ReplaceAll(tags[i].Name, "_", "."); dotted != tags[i].Name {
			m.fromTag(&tags[i], dotted)
		}
	}
}

func (m *nameMaker) fromTag(s *named, name string) {
	if fold, reason := suffix.Hostname(name + tagDomain); reason != "" {
		m.tell(s, HostnameStatus{Origin: OriginTag, Reason: HostnameInvalid, Message: reason})
	} else {
		m.claim(s, fold, OriginTag, resource.Key{})
	}
}

// orderGenerators sorts generators by origin, those of this zone first, and then by name. Kuma
// sorts by age first, on which nodes may disagree.
func orderGenerators(v *View, list []*resource.Resource) []*resource.Resource {
	away := func(r *resource.Resource) int {
		if origin, _ := v.label(r, resource.LabelOrigin); origin != "zone" {
			return 1
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(list), func(a, b *resource.Resource) int {
		return cmp.Or(away(a)-away(b), strings.Compare(a.Name, b.Name))
	})
}

// nameSelector returns the kind of services and the labels that a generator selects.
func nameSelector(g *resource.HostnameGenerator) (kind string, labels map[string]string, ok bool) {
	switch sel := &g.Selector; {
	case sel.MeshService != nil:
		return KindMeshService, sel.MeshService.MatchLabels, true
	case sel.MeshExternalService != nil:
		return KindMeshExternalService, sel.MeshExternalService.MatchLabels, true
	case sel.MeshMultiZoneService != nil:
		return KindMeshMultiZoneService, sel.MeshMultiZoneService.MatchLabels, true
	}
	return "", nil, false
}

// fromGenerators claims the names of all generators in order. Each generator visits the services of
// its kind by name.
func (m *nameMaker) fromGenerators() {
	byKind := map[string]groups[*named]{
		KindMeshService: {}, KindMeshExternalService: {}, KindMeshMultiZoneService: {},
	}
	all := map[string][]*named{}
	for _, spec := range resource.Specs[*resource.HostnameGenerator](m.t.generators) {
		if kind, labels, ok := nameSelector(spec); ok {
			byKind[kind].want(labels)
		}
	}
	for i := range m.t.services {
		s := &m.t.services[i]
		if s.Kind == KindTag {
			continue
		}
		all[s.Kind] = append(all[s.Kind], s)
		for k, val := range s.labels {
			byKind[s.Kind].put(k, val, s)
		}
	}
	for r, spec := range resource.Specs[*resource.HostnameGenerator](orderGenerators(m.v, m.t.generators)) {
		kind, labels, ok := nameSelector(spec)
		if spec.Mesh != "" {
			m.warnf(r.Key, "mesh: %q has no effect: a generator belongs to no mesh, and names services of all meshes; "+
				"to name only those of one mesh, add the label %s to its selector, and remove mesh",
				spec.Mesh, resource.LabelMesh)
		}
		if !ok {
			continue
		}
		if spec.Extension != nil && spec.Template != "" {
			m.warnf(r.Key, "spec.extension: extensions are unknown here and have no effect: "+
				"only spec.template makes names; remove one of them")
		}
		if spec.Template == "" {
			m.warnf(r.Key, "spec.extension: unknown extension, and no template: the generator makes no names")
			continue
		}
		parts, err := resource.ParseHostnameTemplate(spec.Template)
		if err != nil { // decoding has validated the template
			m.warnf(r.Key, "spec.template: %v", err)
			continue
		}
		if reason := suffix.Refusal(r); reason != "" {
			m.warnf(r.Key, "%s: %s", suffix.Field, reason)
		}
		for _, s := range byKind[kind].smallest(labels, all[kind]) {
			if Contains(s.labels, labels) {
				m.generate(r.Key, parts, s)
			}
		}
	}
}

// generate claims the name that a template yields for one service.
func (m *nameMaker) generate(generator resource.Key, parts []resource.HostnamePart, s *named) {
	if m.tried[s.Owner]++; m.tried[s.Owner] > maxNamesOfService {
		return
	}
	name, reason, message := s.expand(parts, m.v.Name)
	if reason == "" {
		m.claim(s, name, OriginGenerator, generator)
		return
	}
	m.tell(s,
		HostnameStatus{Hostname: name, Origin: OriginGenerator, Generator: generator, Reason: reason, Message: message})
	m.failures[generator] = append(m.failures[generator],
		fmt.Sprintf("%s: %s", describeService(s.Name, s.resource), message))
}

// expand fills in a template. If the result is not a valid name, it returns the reason and a
// message instead.
func (s *named) expand(parts []resource.HostnamePart, mesh string) (name, reason, message string) {
	var b strings.Builder
	var empty []string
	for _, p := range parts {
		value := p.Literal
		switch {
		case p.Label != "":
			val, ok := s.labels[p.Label]
			if !ok {
				return "", HostnameTemplate, fmt.Sprintf("the service has no label %s, which the template uses", p.Label)
			}
			if value = val; val == "" {
				empty = append(empty, "the label "+p.Label)
			}
		case p.Field != "":
			if value = s.field(p.Field, mesh); value == "" {
				empty = append(empty, "."+p.Field)
			}
		}
		b.WriteString(value)
		if b.Len() > 2*maxDNSName { // already too long; this much suffices for the message
			break
		}
	}
	name, invalid := suffix.Hostname(b.String())
	if invalid == "" {
		return name, "", ""
	}
	if len(empty) > 0 {
		invalid += "; " + list(empty, " and ") + " of the service is empty"
	}
	return "", HostnameInvalid, invalid
}

// maxDNSName is the maximum length of a name in characters (RFC 1035, section 2.3.4).
const maxDNSName = 253

// field returns the value of a template field, with Kuma's field names.
func (s *named) field(name, mesh string) string {
	namespace := s.labels[resource.LabelNamespace]
	own := s.Name
	if namespace != "" {
		own = strings.TrimSuffix(own, "."+namespace)
	}
	switch name {
	case "Name":
		return own
	case "DisplayName":
		if d := s.labels[resource.LabelDisplayName]; d != "" {
			return d
		}
		return own
	case "Namespace":
		return namespace
	case "Mesh":
		return mesh
	case "Zone":
		return s.labels[resource.LabelZone]
	}
	return ""
}

// warnf adds a warning to the table, so that views that reuse the table repeat the warning.
func (m *nameMaker) warnf(k resource.Key, format string, args ...any) {
	m.t.warnings = append(m.t.warnings, Warning{Resource: k, Reason: fmt.Sprintf(format, args...)})
}

// describeService describes a service for a message. r is zero for a tag service.
func describeService(tag string, r resource.Key) string {
	if r == (resource.Key{}) {
		return fmt.Sprintf("the tag service %q", tag)
	}
	return r.String()
}

// describeHost describes the owner of a name and the origin of the name.
func describeHost(h *Hostname) string {
	if h.Origin == OriginVirtual || h.Origin == OriginHost {
		return h.Generator.String()
	}
	return fmt.Sprintf("%s, %s", describeService(h.Tag, h.Resource), describeOrigin(h.Origin, h.Generator))
}

func describeOrigin(o Origin, generator resource.Key) string {
	switch o {
	case OriginStatus:
		return "from its status"
	case OriginTag:
		return "from its tag"
	}
	return "from " + generator.String()
}

// warn warns about generators and services without the names that they claim.
func (m *nameMaker) warn() {
	for _, k := range slices.SortedFunc(maps.Keys(m.conflicts), resource.Key.Compare) {
		m.warnf(k, "two services claim one hostname: %s; change a template, a selector, a name or a tag",
			list(m.conflicts[k], "; "))
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.failures), resource.Key.Compare) {
		m.warnf(k, "spec.template: no hostname for %s", list(m.failures[k], "; "))
	}
	if m.overflow {
		m.warnf(m.v.mesh.Key, "the services of the mesh have more than %d hostnames: the others are dropped", maxNames)
	}
}
