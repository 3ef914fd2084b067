package effect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kinds of targetRefs without a constant elsewhere.
const (
	kindMesh          = "Mesh"
	kindSubset        = "MeshSubset"
	kindServiceSubset = "MeshServiceSubset"
)

// collect reads the tags of the mesh.
func (k *Known) collect() {
	if k.read {
		return
	}
	k.read = true
	v, seen := k.m.View, map[string]bool{}
	add := func(tags map[string]string) {
		var b strings.Builder
		for _, key := range slices.Sorted(maps.Keys(tags)) {
			b.WriteString(key + "\x00" + tags[key] + "\x00")
		}
		if !seen[b.String()] {
			seen[b.String()] = true
			k.sets = append(k.sets, tags)
		}
	}
	for _, spec := range resource.Specs[*resource.Dataplane](v.Dataplanes()) {
		n := &spec.Networking
		for i := range n.Inbound {
			if n.Inbound[i].State != resource.InboundIgnored {
				add(v.InboundTags(n.Inbound[i].Tags))
			}
		}
		if n.Gateway != nil {
			add(v.InboundTags(n.Gateway.Tags))
		}
	}
	for _, s := range v.Services() {
		if s.ID.Kind != mesh.KindTag {
			continue
		}
		for _, set := range [...]*mesh.EndpointSet{s.Endpoints, s.Outside, s.Beyond} {
			if set == nil {
				continue
			}
			for i := range set.List {
				e := &set.List[i]
				tags := map[string]string{resource.TagService: s.Tag}
				e.EachTag(func(key, value string) { tags[key] = value })
				add(tags)
			}
		}
	}
}

// hasLabels reports whether a dataplane has labels. Dataplanes with equal labels share them.
func (k *Known) hasLabels(d *resource.Resource, want map[string]string) bool {
	if k.labels == nil {
		k.labels = map[*resource.Resource]map[string]string{}
		known := map[string]map[string]string{}
		for _, d := range k.m.View.Dataplanes() {
			labels := k.m.View.Labels(d)
			text := fmt.Sprintf("%q", labels)
			if known[text] == nil {
				known[text] = labels
				k.labelSets = append(k.labelSets, labels)
			}
			k.labels[d] = known[text]
		}
	}
	return mesh.Contains(k.labels[d], want)
}

// clients reports whether a dataplane of the mesh has tags on its inbounds.
func (k *Known) clients(want map[string]string) bool {
	list := k.m.View.Dataplanes()
	if k.proxies == nil {
		k.proxies = make([]map[string][]string, len(list))
	}
	for i, d := range list {
		spec, ok := d.Spec.(*resource.Dataplane)
		if ok && k.proxies[i] == nil {
			k.proxies[i] = k.m.View.ProxyTags(spec)
		}
		if ok && hasTags(k.proxies[i], want) {
			return true
		}
	}
	return false
}

// all returns the tags of each inbound, gateway, and endpoint of the mesh.
func (k *Known) all() []map[string]string {
	k.collect()
	return k.sets
}

// instances returns the tags of the instances of a kuma.io/service, ready or not.
func (k *Known) instances(service string) (out []map[string]string) {
	for _, tags := range k.all() {
		if tags[resource.TagService] == service {
			out = append(out, tags)
		}
	}
	return out
}

// clientTags checks the tags of clients: a client has the tags of all its inbounds.
func (s *search) clientTags(at string, want map[string]string) bool {
	if s.known.clients(want) {
		return true
	}
	return s.tags(at, "dataplane", want, s.known.all(), noItem)
}

func hasTags(have map[string][]string, want map[string]string) bool {
	for key, value := range want {
		if len(have[key]) == 0 || value != "*" && !slices.Contains(have[key], value) {
			return false
		}
	}
	return true
}

// tags checks that one of the sets has all tags. It returns false if none has. what names the owner
// of a set.
func (s *search) tags(at, what string, want map[string]string, sets []map[string]string, so string) bool {
	return s.pairs(at, what, "tag", want, sets, so)
}

// pairs is like tags, for pairs of another name, such as labels. Without any set, nothing is known,
// and all pairs are valid.
func (s *search) pairs(at, what, noun string, want map[string]string, sets []map[string]string, so string) bool {
	if len(sets) == 0 || slices.ContainsFunc(sets, func(have map[string]string) bool { return contains(have, want) }) {
		return true
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		var keys, values []string
		found := false
		for _, have := range sets {
			keys = slices.AppendSeq(keys, maps.Keys(have))
			if value, ok := have[key]; ok {
				values = append(values, value)
				found = found || value == want[key]
			}
		}
		switch {
		case found || want[key] == "*" && (len(values) > 0 || key == resource.TagService):
		case len(values) > 0:
			s.warnf("%s: no %s has the %s %s: %s%s%s", at, what, noun, key, want[key], so, oneOf(want[key], values))
			return false
		default:
			s.warnf("%s: no %s has the %s %s%s%s", at, what, noun, key, so, nearest(key, keys))
			return false
		}
	}
	s.warnf("%s: no %s has all of the %ss %s%s", at, what, noun, pairsText(want), so)
	return false
}

// contains is like [mesh.Contains], except that every set matches kuma.io/service: *.
func contains(have, want map[string]string) bool {
	for key, value := range want {
		h, ok := have[key]
		if value == "*" && (ok || key == resource.TagService) || ok && h == value {
			continue
		}
		return false
	}
	return true
}

func pairsText(m map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, key+": "+m[key])
	}
	return strings.Join(out, ", ")
}

// missing warns that a service, port, or route does not exist.
func (s *search) missing(at string, t *resource.TargetRef, so string) {
	whole := *t
	whole.SectionName = ""
	if t.SectionName != "" {
		if keys := s.x.Resolve(s.p, &whole); len(keys) > 0 {
			var sections []string
			for _, key := range keys {
				for _, port := range s.v.Ports(key) {
					sections = append(sections, mesh.SectionName(port.Section, port.Port))
				}
			}
			s.warnf("%s.sectionName: %s has no port %q%s%s", at, policy.Describe(&whole), t.SectionName, so,
				oneOf(t.SectionName, sections))
			return
		}
	}
	if len(t.Labels) > 0 {
		if labels := s.labelsOf(t.Kind); len(labels) > 0 {
			s.pairs(at, t.Kind, "label", t.Labels, labels, so)
			return
		}
	}
	s.warnf("%s: %s does not exist%s%s", at, policy.Describe(t), so, s.similar(t.Kind, t.Name, t.Namespace))
}

// labelsOf returns the labels of the services, or of the policies, of a kind.
func (s *search) labelsOf(kind string) (out []map[string]string) {
	for _, service := range s.v.Services() {
		if service.ID.Kind == kind {
			out = append(out, service.Labels)
		}
	}
	for _, r := range s.x.Policies(kind) {
		out = append(out, s.v.Labels(r))
	}
	return out
}

// similar returns what a name of a service or route probably means: the same name in another
// namespace or kind, or a similar name. It begins with a semicolon, or is empty.
func (s *search) similar(kind, name, namespace string) string {
	if name == "" {
		return ""
	}
	if kind == kindServiceSubset {
		kind = mesh.KindMeshService
	}
	var names []string
	other := ""
	for _, service := range s.v.Services() {
		have := service.Tag
		if service.ID.Kind != mesh.KindTag {
			have = service.Resource.Name
			if ns := service.Labels[resource.LabelNamespace]; ns != "" {
				have = strings.TrimSuffix(have, "."+ns)
				if have == name && ns != namespace && service.ID.Kind == kind {
					return fmt.Sprintf("; there is one in namespace %q", ns)
				}
			}
		}
		switch service.ID.Kind {
		case kind:
			names = append(names, have)
		case mesh.KindTag:
			if kind == mesh.KindMeshService {
				names = append(names, have)
			}
		default:
			if have == name {
				other = service.ID.Kind
			}
		}
	}
	for _, r := range s.x.Policies(kind) {
		names = append(names, r.DisplayName())
	}
	if other != "" {
		return fmt.Sprintf("; there is a %s with this name", other)
	}
	return nearest(name, names)
}

// nearestName returns the most similar other name, or "". It sorts names.
func nearestName(name string, names []string) string {
	slices.Sort(names)
	if near := strict.Nearest(name, slices.Compact(names)); len(name) > 2 && near != name {
		return near
	}
	return ""
}

// nearest returns a suggestion of the most similar name, which begins with a semicolon, or "".
func nearest(name string, names []string) string {
	if near := nearestName(name, names); near != "" {
		return "; the nearest is " + near
	}
	return ""
}

// maxListed is the number of names up to which a suggestion lists all of them.
const maxListed = 6

// oneOf returns a suggestion of the valid names if there are few, or of the most similar one. It
// begins with a semicolon, or is empty.
func oneOf(name string, names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	switch near := nearest(name, names); {
	case near != "" || len(names) == 0 || len(names) > maxListed:
		return near
	case len(names) == 1:
		return "; the only one is " + names[0]
	}
	return "; there are " + strings.Join(names, ", ")
}
