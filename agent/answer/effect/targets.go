package effect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Targets returns warnings about references of a policy that lead nowhere: services, subsets,
// sections, routes, and tags that the mesh does not have. Each names the field and the most similar
// name. It also warns about a permission whose MeshSubset has no tags. The policy need not be
// active, and the result does not depend on which proxies it selects.
func Targets(m *generate.Mesh, p *resource.Resource) []mesh.Warning { return NewKnown(m).Targets(p) }

// MeshTargets returns the warnings of [Targets] about all active policies of a mesh, sorted by
// policy, and those about log files.
func MeshTargets(m *generate.Mesh) (out []mesh.Warning) {
	if m == nil || m.Policies == nil {
		return nil
	}
	k := NewKnown(m)
	for _, p := range Active(m.Policies) {
		out = append(out, k.Targets(p)...)
		out = append(out, fileWarnings(p, m.Policies.Paths)...)
	}
	return append(out, backendFiles(m)...)
}

// Known holds the names and tags of a mesh to which policies can refer. It collects them on first
// use. It is not safe for concurrent use.
type Known struct {
	m       *generate.Mesh
	proxies []map[string][]string // tags of all inbounds of each dataplane; nil until they are needed
	sets    []map[string]string   // tags of each inbound, gateway, and endpoint; equal sets occur once
	read    bool                  // sets is complete

	labels    map[*resource.Resource]map[string]string // of dataplanes; nil until they are needed
	labelSets []map[string]string                      // of labels, each once
}

// NewKnown returns the known names of a mesh.
func NewKnown(m *generate.Mesh) *Known { return &Known{m: m} }

// Targets is like the function [Targets]. Calls share the collected names.
func (k *Known) Targets(p *resource.Resource) []mesh.Warning {
	if k.m == nil || k.m.Policies == nil {
		return nil
	}
	s := &search{known: k, x: k.m.Policies, v: k.m.View, p: p}
	switch spec := p.Spec.(type) {
	case *resource.Policy:
		s.policy(spec)
		s.sections(spec)
	case *resource.LegacyPolicy:
		s.legacy(spec)
	default:
		return nil
	}
	s.conf()
	return s.out
}

// search looks for references of one policy that lead nowhere.
type search struct {
	known *Known
	x     *policy.Index
	v     *mesh.View
	p     *resource.Resource
	out   []mesh.Warning
}

func (s *search) warnf(format string, args ...any) {
	w := mesh.Warning{Resource: s.p.Key, Reason: fmt.Sprintf(format, args...)}
	if !slices.Contains(s.out, w) {
		s.out = append(s.out, w)
	}
}

func (s *search) policy(spec *resource.Policy) {
	if t := spec.TargetRef; t != nil {
		s.top(spec, t)
	}
	field := spec.InboundField()
	for i, it := range spec.InboundItems() {
		s.client(fmt.Sprintf("%s[%d].targetRef", field, i), &it)
	}
	for i := range spec.To {
		s.destination(fmt.Sprintf("to[%d].targetRef", i), &spec.To[i].TargetRef)
	}
}

const selectsNothing = ", so the policy selects nothing"

// top checks the top-level targetRef.
func (s *search) top(spec *resource.Policy, t *resource.TargetRef) {
	const at = "targetRef"
	switch t.Kind {
	case kindMesh:
		if t.Name != "" && t.Name != s.v.Name {
			s.warnf("%s: mesh %q is not the mesh of the policy%s; apply it in that mesh", at, t.Name, selectsNothing)
			return
		}
	case kindSubset:
		if len(t.Tags) == 0 && s.permits(spec) {
			s.warnf("%s: a MeshSubset without tags selects every proxy of the mesh, so this permission applies to all "+
				"of them; give the tags of the proxies that it is meant for", at)
		}
		if !s.tags(at, "dataplane", t.Tags, s.known.all(), selectsNothing) {
			return
		}
	case mesh.KindMeshService, kindServiceSubset:
		if !s.service(at, t, selectsNothing) {
			return
		}
	case "Dataplane":
		if !s.dataplane(at, t) {
			return
		}
	case mesh.KindMeshExternalService, mesh.KindMeshMultiZoneService:
		if len(s.x.Resolve(s.p, t)) == 0 {
			s.missing(at, t, selectsNothing)
		}
		return
	default: // gateways and routes
		if len(s.x.Resolve(s.p, t)) == 0 {
			s.missing(at, t, selectsNothing)
		}
		return
	}
	s.proxyTypes(at, t)
}

// permits reports whether the policy is of a kind that admits clients.
func (s *search) permits(spec *resource.Policy) bool {
	plugin, _, legacy := KindOf(s.x, s.p.Kind)
	return plugin != nil && legacy == nil && plugin.Admits != nil && (len(spec.Rules) > 0 ||
		slices.ContainsFunc(spec.From, func(it resource.PolicyItem) bool { return plugin.Admits(it.Conf) }))
}

// proxyTypes checks that the mesh has a proxy of a required type.
func (s *search) proxyTypes(at string, t *resource.TargetRef) {
	if len(t.ProxyTypes) == 0 || len(s.v.Dataplanes()) == 0 {
		return
	}
	for _, spec := range resource.Specs[*resource.Dataplane](s.v.Dataplanes()) {
		kind := "Sidecar"
		if spec.Networking.Gateway != nil {
			kind = "Gateway"
		}
		if slices.Contains(t.ProxyTypes, kind) {
			return
		}
	}
	s.warnf("%s.proxyTypes: no proxy of the mesh has the type %s%s", at, strings.Join(t.ProxyTypes, " or "),
		selectsNothing)
}

const noItem = ", so the item has no effect"

// client checks the targetRef of an item for clients.
func (s *search) client(at string, it *resource.PolicyItem) {
	switch t := &it.TargetRef; t.Kind {
	case kindMesh:
		s.meshName(at, t)
	case kindSubset:
		if plugin, _, _ := KindOf(s.x, s.p.Kind); len(t.Tags) == 0 && plugin != nil && plugin.Admits != nil &&
			plugin.Admits(it.Conf) {
			s.warnf("%s: a MeshSubset without tags selects every client, so this permission admits all of them; "+
				"give the tags of the clients to admit", at)
		}
		s.clientTags(at, t.Tags)
	case mesh.KindMeshService, kindServiceSubset:
		switch {
		case s.x.Offered(t.Name):
			tags := map[string]string{}
			maps.Copy(tags, t.Tags)
			tags[resource.TagService] = t.Name
			s.clientTags(at, tags)
		case t.Kind == mesh.KindMeshService && len(s.x.Resolve(s.p, t)) > 0:
			s.warnf("%s: no dataplane has the tag %s: %s, by which this list selects clients%s; give the value of that tag",
				at, resource.TagService, t.Name, noItem)
		default:
			s.missing(at, t, noItem)
		}
	}
}

func (s *search) meshName(at string, t *resource.TargetRef) {
	if t.Name != "" && t.Name != s.v.Name {
		s.warnf("%s: mesh %q is not the mesh of the policy%s; apply it in that mesh", at, t.Name, noItem)
	}
}

// destination checks the targetRef of an item for destinations.
func (s *search) destination(at string, t *resource.TargetRef) {
	switch t.Kind {
	case kindMesh:
		s.meshName(at, t)
	case kindSubset:
		s.tags(at, "instance", t.Tags, s.known.all(), noItem)
	case mesh.KindMeshService, kindServiceSubset:
		s.service(at, t, noItem)
	default:
		if len(s.x.Resolve(s.p, t)) == 0 {
			s.missing(at, t, noItem)
		}
	}
}

// service checks a reference to a MeshService or a subset of one. It returns false if the reference
// leads nowhere.
func (s *search) service(at string, t *resource.TargetRef, so string) bool {
	byTag := t.Kind == kindServiceSubset || len(t.Labels) == 0 && t.Namespace == "" && t.SectionName == ""
	byTag = byTag && s.x.Offered(t.Name)
	if !byTag && (t.Kind != mesh.KindMeshService || len(s.x.Resolve(s.p, t)) == 0) {
		s.missing(at, t, so)
		return false
	}
	return len(t.Tags) == 0 || s.tags(at, "instance of "+t.Name, t.Tags, s.known.instances(t.Name), so)
}

// dataplane checks a reference to a dataplane.
func (s *search) dataplane(at string, t *resource.TargetRef) bool {
	var found []*resource.Resource
	qualified := mesh.Qualified(s.p, t.Name, t.Namespace)
	for _, d := range s.v.Dataplanes() {
		if len(t.Labels) > 0 && s.known.hasLabels(d, t.Labels) ||
			len(t.Labels) == 0 && (t.Name == "" || slices.Contains(qualified, d.Name)) {
			if found = append(found, d); t.SectionName == "" {
				return true
			}
		}
	}
	switch {
	case len(found) == 0 && len(t.Labels) > 0:
		return s.pairs(at, "dataplane", "label", t.Labels, s.known.labelSets, selectsNothing)
	case len(found) == 0 && t.Name != "":
		var names []string
		for _, d := range s.v.Dataplanes() {
			names = append(names, d.Name)
		}
		s.warnf("%s: Dataplane %q does not exist%s%s", at, t.Name, selectsNothing, nearest(t.Name, names))
		return false
	case t.SectionName == "":
		return true
	}
	s.numbered(at, t, found)
	var sections []string
	for _, spec := range resource.Specs[*resource.Dataplane](found) {
		for i := range spec.Networking.Inbound {
			in := &spec.Networking.Inbound[i]
			if mesh.SectionName(in.Name, in.Port) == t.SectionName {
				return true
			}
			sections = append(sections, mesh.SectionName(in.Name, in.Port))
		}
	}
	s.warnf("%s.sectionName: no inbound has the name %q%s%s", at, t.SectionName, selectsNothing,
		oneOf(t.SectionName, sections))
	return false
}

// legacy checks the selectors of a legacy policy.
func (s *search) legacy(spec *resource.LegacyPolicy) {
	none := func(list []resource.LegacySelector, field string, sets []map[string]string) {
		for i := range list {
			s.tags(fmt.Sprintf("%s[%d].match", field, i), "dataplane", list[i].Match, sets, ", so it matches nothing")
		}
	}
	none(spec.Selectors, "selectors", s.known.all())
	none(spec.Destinations, "destinations", s.known.all())
	for i := range spec.Sources {
		s.clientTags(fmt.Sprintf("sources[%d].match", i), spec.Sources[i].Match)
	}
}

// numbered warns about a section that is the port of an inbound with a name.
func (s *search) numbered(at string, t *resource.TargetRef, found []*resource.Resource) {
	for d, spec := range resource.Specs[*resource.Dataplane](found) {
		for i := range spec.Networking.Inbound {
			in := &spec.Networking.Inbound[i]
			if in.Name != "" && in.Name != t.SectionName && mesh.SectionName("", in.Port) == t.SectionName {
				s.warnf("%s.sectionName: %q is the port of inbound %q of Dataplane %q, and a section is the name of an inbound, "+
					"so the policy does not act on it; write %s", at, t.SectionName, in.Name, d.Name, in.Name)
				return
			}
		}
	}
}
