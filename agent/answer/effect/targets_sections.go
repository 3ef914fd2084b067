package effect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// sections warns about sections of confs that apply to no protocol of the destinations or inbounds
// that an item selects. Items for the whole mesh often have sections for all protocols, so for them
// it warns only if no section applies.
func (s *search) sections(spec *resource.Policy) {
	for i := range spec.To {
		t := &spec.To[i].TargetRef
		s.section(fmt.Sprintf("to[%d]", i), spec.To[i].Conf, s.servicesOf(t), t.Kind != kindMesh)
	}
	items := spec.InboundItems()
	if !slices.ContainsFunc(items, func(it resource.PolicyItem) bool { return hasSections(it.Conf) }) {
		return
	}
	inbounds := s.inboundsOf()
	exact := spec.TargetRef != nil && spec.TargetRef.Kind != kindMesh
	for i := range items {
		s.section(fmt.Sprintf("%s[%d]", spec.InboundField(), i), items[i].Conf, inbounds, exact)
	}
}

// speaker is a destination or an inbound with its protocol.
type speaker struct{ name, protocol string }

// hasSections reports whether some field of a conf does not apply to all protocols.
func hasSections(c resource.Conf) bool {
	found := false
	eachField(confOf(c), "", func(path string, _ any) {
		for _, p := range [...]mesh.Protocol{mesh.ProtocolTCP, mesh.ProtocolHTTP, mesh.ProtocolGRPC} {
			found = found || !policy.Fits(c, path, p)
		}
	})
	return found
}

// section checks the fields of a conf against the protocols of its destinations or inbounds. exact
// is false for an item that selects the whole mesh.
func (s *search) section(at string, c resource.Conf, list []speaker, exact bool) {
	if len(list) == 0 || c == nil {
		return
	}
	var protocols []string
	for _, x := range list {
		protocols = append(protocols, x.protocol)
	}
	slices.Sort(protocols)
	protocols = slices.Compact(protocols)
	var idle []string
	fits := false
	eachField(confOf(c), "", func(path string, _ any) {
		if slices.ContainsFunc(protocols, func(p string) bool { return policy.Fits(c, path, mesh.ParseProtocol(p)) }) {
			fits = true
			return
		}
		if section := policy.SectionOf(path); section != "" {
			before, _, _ := strings.Cut("."+path+".", "."+section+".")
			path = strings.TrimPrefix(before+"."+section, ".")
		}
		path = withoutKeys(path)
		if !slices.Contains(idle, path) {
			idle = append(idle, path)
		}
	})
	if len(idle) == 0 || !exact && fits {
		return
	}
	who := list[0].name + " speaks "
	if len(list) > 1 {
		who = fmt.Sprintf("%s and %d more speak ", list[0].name, len(list)-1)
	}
	verb := "has"
	if len(idle) > 1 {
		verb = "have"
	}
	s.warnf("%s.default: %s %s no effect: %s%s", at, strings.Join(idle, ", "), verb, who, strings.Join(protocols, " or "))
}

// withoutKeys cuts a path before the first key that is not the name of a field, such as a header.
func withoutKeys(path string) string {
	i := strings.IndexFunc(path, func(r rune) bool {
		return r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if i < 0 {
		return path
	}
	return strings.TrimSuffix(path[:strings.LastIndexByte(path[:i+1], '.')+1], ".")
}

// servicesOf returns the destinations that an item selects; none for routes.
func (s *search) servicesOf(t *resource.TargetRef) (out []speaker) {
	add := func(service *mesh.Service) {
		out = append(out, speaker{DestinationOf(service).String(), protocolOf(service)})
	}
	switch t.Kind {
	case kindMesh:
		for _, service := range s.v.Services() {
			add(service)
		}
		return out
	case mesh.KindMeshService, mesh.KindMeshExternalService, mesh.KindMeshMultiZoneService:
	default:
		return nil
	}
	id := mesh.ServiceID{Kind: mesh.KindTag, Name: t.Name}
	if service := s.v.Service(id); t.Kind == mesh.KindMeshService && t.Namespace == "" && t.SectionName == "" &&
		service != nil {
		add(service)
	}
	for _, key := range s.x.Resolve(s.p, t) {
		if port := s.v.Port(key, t.SectionName); port != nil {
			add(port)
			continue
		}
		for _, port := range s.v.Ports(key) {
			if !port.Derived || len(out) == 0 {
				add(port)
			}
		}
	}
	return out
}

// inboundsOf returns the inbounds that the policy selects.
func (s *search) inboundsOf() (out []speaker) {
	for d, spec := range resource.Specs[*resource.Dataplane](s.v.Dataplanes()) {
		for _, i := range s.x.Select(s.p, d).Inbounds {
			in := &spec.Networking.Inbound[i]
			out = append(out, speaker{fmt.Sprintf("inbound %d of %s", in.Port, d.Name), declared(in.Speaks())})
		}
	}
	return out
}

// confOf returns the JSON form of a conf.
func confOf(c resource.Conf) any {
	var out any
	if b, err := json.Marshal(c); c == nil || err != nil || json.Unmarshal(b, &out) != nil {
		return nil
	}
	return out
}

// eachField calls f with each value of a conf that is not a mapping, in the order of paths.
func eachField(v any, path string, f func(path string, value any)) {
	m, ok := v.(map[string]any)
	if !ok {
		if path != "" {
			f(path, v)
		}
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		eachField(m[key], strings.TrimPrefix(path+"."+key, "."), f)
	}
}
