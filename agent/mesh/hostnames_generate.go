package mesh

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// failure is a service that a generator has no name for.
type failure struct {
	generator resource.Key
	service   *named
	reason    string
}

// orderGenerators puts those of this zone before those that came from elsewhere, and those of one origin in the order of
// their names. (The reference asks for their age first, which not all nodes would agree on.)
func orderGenerators(v *View, list []*resource.Resource) []*resource.Resource {
	out := slices.Clone(list)
	away := func(r *resource.Resource) int {
		if origin, _ := v.label(r, resource.LabelOrigin); origin != "zone" {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b *resource.Resource) int {
		if d := away(a) - away(b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
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

// fromGenerators asks the generators in their order. Each goes through the services of its kind in the order of their names.
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
		if s.kind == KindTag {
			continue
		}
		all[s.kind] = append(all[s.kind], s)
		for k, val := range s.labels {
			byKind[s.kind].put(k, val, s)
		}
	}
	for r, spec := range resource.Specs[*resource.HostnameGenerator](orderGenerators(m.v, m.t.generators)) {
		kind, labels, ok := nameSelector(spec)
		if !ok {
			continue
		}
		if spec.Template == "" {
			m.warnf(r.Key, "spec.extension: it is not known here, and there is no template: it gives no names")
			continue
		}
		parts, err := resource.ParseHostnameTemplate(spec.Template)
		if err != nil { // decoding has parsed it
			m.warnf(r.Key, "spec.template: %v", err)
			continue
		}
		for _, s := range byKind[kind].smallest(labels, all[kind]) {
			if Contains(s.labels, labels) {
				m.generate(r.Key, parts, s)
			}
		}
	}
}

// generate gives one service the name that a template makes of it.
func (m *nameMaker) generate(generator resource.Key, parts []resource.HostnamePart, s *named) {
	if m.tried[s.serviceKey]++; m.tried[s.serviceKey] > maxNamesOfService {
		return
	}
	name, reason, message := s.expand(parts, m.v.Name)
	if reason == "" {
		m.claim(s, name, OriginGenerator, generator)
		return
	}
	m.tell(s, HostnameStatus{Hostname: name, Origin: OriginGenerator, Generator: generator, Reason: reason, Message: message})
	m.failed = append(m.failed, failure{generator, s, message})
}

// expand fills a template in. Where that gives no name, it says for what reason.
func (s *named) expand(parts []resource.HostnamePart, mesh string) (name, reason, message string) {
	var b strings.Builder
	var empty []string
	for _, p := range parts {
		value := p.Literal
		switch {
		case p.Label != "":
			val, ok := s.labels[p.Label]
			if !ok {
				return "", HostnameTemplate, fmt.Sprintf("the service has no label %s, which the template asks for", p.Label)
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
		if b.Len() > 2*maxDNSName { // whatever follows, it is too long, and that much is enough to say so
			break
		}
	}
	name, invalid := dnsName(b.String())
	if invalid == "" {
		return name, "", ""
	}
	if len(empty) > 0 {
		invalid += "; " + list(empty, " and ") + " of the service is empty"
	}
	return "", HostnameInvalid, invalid
}

// maxDNSName is the most characters of a name (RFC 1035, section 2.3.4).
const maxDNSName = 253

// field is the value of a field of a template, as in the reference.
func (s *named) field(name, mesh string) string {
	namespace := s.labels[resource.LabelNamespace]
	own := s.name
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

// dnsName folds a name to the form that it is looked up in, or says why it is none.
func dnsName(s string) (name, reason string) {
	var faults []resource.Fault
	resource.NewValidator("", &faults).HostName(s, "a DNS name")
	if len(faults) > 0 {
		return "", faults[0].Reason
	}
	return strings.ToLower(strings.TrimSuffix(s, ".")), ""
}

// warnf adds a warning to the table, so that views which share it have it too.
func (m *nameMaker) warnf(k resource.Key, format string, args ...any) {
	m.t.warnings = append(m.t.warnings, Warning{Resource: k, Reason: fmt.Sprintf(format, args...)})
}

// describeService names a service for a message: r is zero for a tag service.
func describeService(tag string, r resource.Key) string {
	if r == (resource.Key{}) {
		return fmt.Sprintf("the tag service %q", tag)
	}
	return r.String()
}

func describeOrigin(o Origin, generator resource.Key) string {
	switch o {
	case OriginStatus:
		return "which has it in its status"
	case OriginTag:
		return "which has it from its tag"
	}
	return "which has it from " + generator.String()
}

// warn tells every side of what came to nothing: the services, and the generators. However many names of one resource are
// concerned, each resource is told once for each of its parts in it.
func (m *nameMaker) warn() {
	told := map[resource.Key][]string{}
	var order []resource.Key
	tell := func(k resource.Key, s string) {
		if k == (resource.Key{}) {
			k = m.v.mesh.Key // a tag service is no resource
		}
		if told[k] == nil {
			order = append(order, k)
		}
		told[k] = append(told[k], s)
	}
	for _, c := range m.lost {
		h := &m.t.list[c.winner]
		what := fmt.Sprintf("%s for %s (it belongs to %s, %s)", c.name, describeService(c.loser.name, c.loser.resource), describeService(h.Tag, h.Resource), describeOrigin(h.Origin, h.Generator))
		keys := []resource.Key{c.loser.resource, h.Resource}
		for _, g := range [...]resource.Key{c.generator, h.Generator} {
			if g != (resource.Key{}) {
				keys = append(keys, g)
			}
		}
		slices.SortFunc(keys, resource.Key.Compare)
		for _, k := range slices.Compact(keys) {
			tell(k, what)
		}
	}
	slices.SortFunc(order, resource.Key.Compare)
	for _, k := range order {
		m.warnf(k, "two services claim one hostname: %s; change a template, a selector, a name or a tag", list(told[k], "; "))
	}
	m.warnFailed()
	if m.overflow {
		m.warnf(m.v.mesh.Key, "the services of the mesh have more than %d hostnames: the rest is dropped", maxNames)
	}
}

// warnFailed tells generators for which services they have no name.
func (m *nameMaker) warnFailed() {
	slices.SortStableFunc(m.failed, func(a, b failure) int { return a.generator.Compare(b.generator) })
	for i := 0; i < len(m.failed); {
		n := i + 1
		for n < len(m.failed) && m.failed[n].generator == m.failed[i].generator {
			n++
		}
		var what []string
		for _, f := range m.failed[i:n] {
			what = append(what, fmt.Sprintf("%s: %s", describeService(f.service.name, f.service.resource), f.reason))
		}
		m.warnf(m.failed[i].generator, "spec.template: it makes no hostname for %s", list(what, "; "))
		i = n
	}
}
