package effect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// conf checks the references in the confs of the policy: backendRefs, the destinations of legacy
// routes, and SPIFFE IDs.
func (s *search) conf() {
	doc, err := resource.Shown(s.p)
	if err != nil {
		return
	}
	root, err := jsonpatch.Decode(doc)
	v, ok := root.(map[string]any)
	if err != nil || !ok {
		return
	}
	if spec, ok := v["spec"].(map[string]any); ok {
		v = spec
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		switch key {
		case "to", "from", "rules", "default", "conf":
			s.walk(key, v[key])
		}
	}
}

// walk checks the references below a value.
func (s *search) walk(at string, v any) {
	switch v := v.(type) {
	case []any:
		for i, entry := range v {
			s.walk(fmt.Sprintf("%s[%d]", at, i), entry)
		}
	case map[string]any:
		if v["weight"] == json.Number("0") { // a share without traffic, such as one that is not deployed yet
			return
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			s.entry(at+"."+key, key, v[key])
		}
	}
}

func (s *search) entry(at, key string, v any) {
	switch key {
	case "backendRefs":
		list, _ := v.([]any)
		for i, entry := range list {
			s.backend(fmt.Sprintf("%s[%d]", at, i), entry)
		}
	case "backendRef":
		s.backend(at, v)
	case "destination":
		s.legacyDestination(at, v)
	case "spiffeID":
		var m resource.SpiffeIDMatch
		if decode(v, &m) {
			s.spiffeID(at+".value", &m)
		}
	default:
		s.walk(at, v)
	}
}

// decode converts a decoded JSON value to a type.
func decode(v, to any) bool {
	b, err := json.Marshal(v)
	return err == nil && json.Unmarshal(b, to) == nil
}

const fails = ", so traffic there fails"

// backend checks a destination of a route.
func (s *search) backend(at string, v any) {
	var ref struct {
		mesh.BackendRef
		Weight *uint32 `json:"weight"`
	}
	if !decode(v, &ref) || ref.Weight != nil && *ref.Weight == 0 {
		return
	}
	if slices.Contains([]string{mesh.KindMeshService, kindServiceSubset, mesh.KindMeshExternalService,
		mesh.KindMeshMultiZoneService}, ref.Kind) {
		s.reference(at, ref.BackendRef)
	}
}

func (s *search) reference(at string, ref mesh.BackendRef) {
	o, ok := s.v.Backend(s.p, ref)
	if ok && o.Service.Index >= 0 {
		if len(o.Subset) > 0 {
			s.tags(at, "instance of "+ref.Name, o.Subset, s.known.instances(ref.Name), fails)
		}
		return
	}
	t := &resource.TargetRef{Kind: ref.Kind, Name: ref.Name, Namespace: ref.Namespace, Labels: ref.Labels}
	if keys := s.x.Resolve(s.p, t); ref.Port != 0 && len(keys) > 0 {
		var ports []string
		for _, key := range keys {
			for _, port := range s.v.Ports(key) {
				ports = append(ports, fmt.Sprint(port.Port))
			}
		}
		s.warnf("%s.port: %s has no port %d%s", at, policy.Describe(t), ref.Port, oneOf("", ports))
		return
	}
	s.missing(at, t, "")
}

// legacyDestination checks the tags to which a legacy route leads.
func (s *search) legacyDestination(at string, v any) {
	var tags map[string]string
	if !decode(v, &tags) || tags[resource.TagService] == "" || tags[resource.TagService] == "*" {
		return
	}
	s.reference(at, mesh.BackendRef{Kind: kindServiceSubset, Name: tags[resource.TagService], Tags: tags})
}

// spiffeID checks that a client of the mesh has a SPIFFE ID.
func (s *search) spiffeID(at string, m *resource.SpiffeIDMatch) {
	prefix := resource.SPIFFEID(s.v.Name, "")
	name, ours := strings.CutPrefix(m.Value, prefix)
	if !ours || name == "" || name == mesh.EgressService || len(s.known.all()) == 0 {
		return
	}
	var ids []string
	for _, tags := range s.known.all() {
		service := tags[resource.TagService]
		if service == name || m.Type == resource.MatchPrefix && strings.HasPrefix(service, name) {
			return
		}
		if service != "" {
			ids = append(ids, service)
		}
	}
	suggestion := ""
	if near := nearestName(name, ids); near != "" {
		suggestion = "; the nearest is " + prefix + near
	}
	s.warnf("%s: no dataplane has a SPIFFE ID like %s, so it matches no client%s", at, m.Value, suggestion)
}
