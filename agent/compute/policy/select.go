package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Selection says whether the top-level targetRef of a policy selects a dataplane, and what of it.
type Selection struct {
	Proxy    bool  // the dataplane is selected
	Inbounds []int // those of its inbounds that are, by index
	Gateway  bool  // selected as a delegated gateway
	// Route is the route that the targetRef names; what the policy says is about its requests alone.
	Route *resource.Resource
	// Why says in words why the dataplane is not selected, "" when it is.
	Why string
}

// Select reports whether a targetRef policy selects a dataplane. It looks at the targetRef alone:
// whether the policy acts at all is for the index.
func (x *Index) Select(p, dataplane *resource.Resource) Selection {
	spec, ok := p.Spec.(*resource.Policy)
	if !ok {
		return Selection{Why: "it is not a policy with a targetRef"}
	}
	s := x.selector(dataplane)
	out := s.policy(p, spec)
	if !out.Proxy && out.Why == "" {
		out.Why = s.why(p, spec.TargetRef)
	}
	return out
}

// selector selects within one dataplane.
type selector struct {
	x         *Index
	dataplane *resource.Resource
	dp        *resource.Dataplane
	tags      []map[string]string
	outside   bool // it stands for a destination outside of the mesh
}

func (x *Index) selector(dataplane *resource.Resource) *selector {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok {
		dp = &resource.Dataplane{}
	}
	return &selector{x: x, dataplane: dataplane, dp: dp, tags: tagSets(x.View, dp)}
}

// policy selects by a whole policy. Why is left empty where finding the reason costs something.
func (s *selector) policy(p *resource.Resource, spec *resource.Policy) Selection {
	switch role := p.Labels[resource.LabelPolicyRole]; role {
	case "consumer", "workload-owner":
		switch ns := p.Namespace(); {
		case ns == "":
			return Selection{Why: fmt.Sprintf("a policy with the role %s is about its own namespace, "+
				"and it has none: remove the label %s, or set %s", role, resource.LabelPolicyRole, resource.LabelNamespace)}
		case ns != s.dataplane.Namespace():
			return Selection{Why: fmt.Sprintf("a policy with the role %s is about its own namespace %q, the dataplane is in %q",
				role, ns, s.dataplane.Namespace())}
		}
	}
	return s.top(p, spec)
}

var wholeMesh = &resource.TargetRef{Kind: kindMesh}

func (s *selector) top(p *resource.Resource, spec *resource.Policy) Selection {
	t := spec.TargetRef
	if t == nil {
		t = wholeMesh
	}
	if !s.x.routing[t.Kind] {
		return s.ref(p, t)
	}
	routes := s.x.routes(p, t)
	if len(routes) == 0 {
		return Selection{Why: fmt.Sprintf("there is no %s", describe(t))}
	}
	for r, rs := range resource.Specs[*resource.Policy](routes) {
		var out Selection
		if len(spec.Arriving()) > 0 {
			out = s.behind(r, rs) // the route is met where its requests arrive
		} else {
			out = s.top(r, &resource.Policy{TargetRef: rs.TargetRef})
		}
		if out.Proxy {
			out.Route = r
			return out
		}
	}
	return Selection{Why: fmt.Sprintf("%s does not concern it", describe(t))}
}

// ref selects by a targetRef that is no route.
func (s *selector) ref(p *resource.Resource, t *resource.TargetRef) Selection {
	var match func(map[string]string, *resource.Inbound) bool
	byTags := func(want map[string]string) func(map[string]string, *resource.Inbound) bool {
		return func(have map[string]string, _ *resource.Inbound) bool { return mesh.Contains(have, want) }
	}
	switch t.Kind {
	case kindMesh:
		if t.Name != "" && t.Name != s.x.View.Name {
			return Selection{Why: fmt.Sprintf("it is about the mesh %q, the dataplane is in %q", t.Name, s.x.View.Name)}
		}
		match = byTags(nil)
	case "MeshSubset":
		match = byTags(t.Tags)
	case "MeshServiceSubset":
		want := maps.Clone(t.Tags)
		if want == nil {
			want = map[string]string{}
		}
		want[resource.TagService] = t.Name
		match = byTags(want)
	case "MeshService", "MeshMultiZoneService", "MeshExternalService":
		match = s.service(p, t)
	case "Dataplane":
		if s.outside {
			return Selection{Why: "it is about dataplanes"}
		}
		return s.self(p, t)
	case "MeshGateway", "MeshGatewayRoute":
		return Selection{Why: fmt.Sprintf("there is no %s: this agent serves delegated gateways alone, which kinds Mesh, "+
			"MeshSubset and MeshService select", describe(t))}
	default:
		return Selection{Why: fmt.Sprintf("%s selects no dataplanes", describe(t))}
	}
	out := s.matching(match)
	if t.Kind == kindMesh {
		out.Proxy = true // one without inbounds is part of the mesh too
	}
	return s.proxyTypes(t, out)
}

// matching selects the inbounds, or the gateway, whose tags match.
func (s *selector) matching(match func(tags map[string]string, in *resource.Inbound) bool) Selection {
	var out Selection
	n := &s.dp.Networking
	for i := range n.Inbound {
		if s.tags[i] != nil && match(s.tags[i], &n.Inbound[i]) {
			out.Inbounds = append(out.Inbounds, i)
		}
	}
	if n.Gateway != nil && match(s.tags[len(n.Inbound)], nil) {
		out.Gateway = true
	}
	out.Proxy = len(out.Inbounds) > 0 || out.Gateway
	return out
}

func (s *selector) proxyTypes(t *resource.TargetRef, out Selection) Selection {
	if len(t.ProxyTypes) == 0 || !out.Proxy {
		return out
	}
	kind := "Sidecar"
	if s.dp.Networking.Gateway != nil {
		kind = "Gateway"
	}
	if !slices.Contains(t.ProxyTypes, kind) {
		return Selection{Why: fmt.Sprintf("it is about proxies of type %s, this one is a %s",
			strings.Join(t.ProxyTypes, ", "), kind)}
	}
	return out
}

// service matches the inbounds behind a service: by the tag kuma.io/service, or selected by a
// service resource.
func (s *selector) service(p *resource.Resource,
	t *resource.TargetRef) func(map[string]string, *resource.Inbound) bool {
	var keys []resource.Key
	if t.Kind == mesh.KindMeshService {
		keys = s.x.resolve(p, t)
	}
	return func(have map[string]string, in *resource.Inbound) bool {
		if !mesh.Contains(have, t.Tags) {
			return false
		}
		if t.Kind == mesh.KindMeshService && t.Name != "" && t.Namespace == "" && t.SectionName == "" &&
			have[resource.TagService] == t.Name {
			return true
		}
		if in == nil {
			return false
		}
		for _, k := range keys {
			if r := s.x.View.MeshService(k); r != nil && s.x.View.Selects(r, s.dataplane, in) && s.section(k, t, in) {
				return true
			}
		}
		return false
	}
}

// section reports whether an inbound is behind the port of a service resource that a targetRef
// names.
func (s *selector) section(k resource.Key, t *resource.TargetRef, in *resource.Inbound) bool {
	if t.SectionName == "" {
		return true
	}
	port := s.x.View.Port(k, t.SectionName)
	return port != nil && s.x.View.Serves(port, in)
}

// self selects one dataplane by name or labels, or one inbound of it by the name or number of its
// port.
func (s *selector) self(p *resource.Resource, t *resource.TargetRef) Selection {
	if t.Name != "" && !slices.Contains(mesh.Qualified(p, t.Name, t.Namespace), s.dataplane.Name) {
		return Selection{Why: fmt.Sprintf("it is about the dataplane %q", t.Name)}
	}
	labels := s.x.View.Labels(s.dataplane)
	for _, k := range slices.Sorted(maps.Keys(t.Labels)) {
		if have := labels[k]; have != t.Labels[k] {
			return Selection{Why: fmt.Sprintf("the label %s is %q, the policy wants %q", k, have, t.Labels[k])}
		}
	}
	out := s.matching(func(_ map[string]string, in *resource.Inbound) bool {
		return t.SectionName == "" ||
			in != nil && (in.Name == t.SectionName || mesh.SectionName("", in.Port) == t.SectionName)
	})
	if t.SectionName == "" {
		out.Proxy = true
	} else if !out.Proxy {
		return Selection{Why: fmt.Sprintf("it has no inbound with the name or port %q", t.SectionName)}
	}
	return s.proxyTypes(t, out)
}

// behind selects the inbounds where the requests of a route arrive: those of the services that it
// is about.
func (s *selector) behind(route *resource.Resource, spec *resource.Policy) Selection {
	var out Selection
	for i := range spec.To {
		got := s.ref(route, &spec.To[i].TargetRef)
		for _, in := range got.Inbounds {
			if !slices.Contains(out.Inbounds, in) {
				out.Inbounds = append(out.Inbounds, in)
			}
		}
	}
	slices.Sort(out.Inbounds)
	out.Proxy = len(out.Inbounds) > 0
	return out
}

// why says what a targetRef wants that the dataplane does not have.
func (s *selector) why(p *resource.Resource, t *resource.TargetRef) string {
	want := maps.Clone(t.Tags)
	if want == nil {
		want = map[string]string{}
	}
	if t.Kind == "MeshServiceSubset" || t.Kind == mesh.KindMeshService && t.SectionName == "" &&
		len(s.x.resolve(p, t)) == 0 {
		want[resource.TagService] = t.Name
	}
	if why := missingTag(want, s.x.View.ProxyTags(s.dp)); why != "" {
		return why
	}
	return fmt.Sprintf("none of its inbounds is what %s wants", describe(t))
}

// missingTop says what the top-level targetRef of a policy names that does not exist.
func (x *Index) missingTop(p *resource.Resource) string {
	t := topOf(p)
	if t == nil {
		return ""
	}
	switch t.Kind {
	case mesh.KindMeshService, "MeshServiceSubset":
		if x.offered(t.Name) || t.Kind == mesh.KindMeshService && len(x.resolve(p, t)) > 0 {
			return ""
		}
	case mesh.KindMeshExternalService, mesh.KindMeshMultiZoneService:
		if len(x.resolve(p, t)) > 0 {
			return ""
		}
	case "MeshGateway", "MeshGatewayRoute":
	default:
		if !x.routing[t.Kind] || len(x.routes(p, t)) > 0 {
			return ""
		}
	}
	return fmt.Sprintf("targetRef: there is no %s: the policy selects nothing", describe(t))
}

// offered reports whether some workload or gateway carries a value of kuma.io/service.
func (x *Index) offered(service string) bool {
	return service != "" &&
		(x.View.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: service}) != nil || x.View.Gateway(service))
}
