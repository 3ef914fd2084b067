package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Selection is the result of matching the top-level targetRef of a policy against a dataplane.
type Selection struct {
	Proxy    bool  // the dataplane is selected
	Inbounds []int // the selected inbounds, by index
	Gateway  bool  // selected as a delegated gateway
	// Route is the route that the targetRef names. The policy then applies only to its requests.
	Route *resource.Resource
	// Why describes why the dataplane is not selected; "" if it is.
	Why string
}

// Select reports whether a targetRef policy selects a dataplane. It evaluates only the targetRef;
// the index determines whether the policy is active.
func (x *Index) Select(p, dataplane *resource.Resource) Selection {
	spec, ok := p.Spec.(*resource.Policy)
	if !ok {
		return Selection{Why: "the resource is not a policy with a targetRef"}
	}
	s := x.selector(dataplane)
	out := s.policy(p, spec)
	if !out.Proxy && out.Why == "" {
		out.Why = s.why(p, spec.TargetRef)
	}
	return out
}

// selector selects policies for one dataplane.
type selector struct {
	x         *Index
	dataplane *resource.Resource
	dp        *resource.Dataplane
	tags      []map[string]string
	shared    [][]int // see [resource.Networking.SamePort]
	outside   bool    // whether the dataplane represents a destination outside the mesh
}

func (x *Index) selector(dataplane *resource.Resource) *selector {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok {
		dp = &resource.Dataplane{}
	}
	return &selector{x: x, dataplane: dataplane, dp: dp, tags: TagSets(x.View, dp), shared: dp.Networking.SamePort()}
}

// policy matches a policy. It leaves Why empty if determining the reason is expensive.
func (s *selector) policy(p *resource.Resource, spec *resource.Policy) Selection {
	switch role := p.Labels[resource.LabelPolicyRole]; role {
	case "consumer", "workload-owner":
		switch ns := p.Namespace(); {
		case ns == "":
			return Selection{Why: fmt.Sprintf("a policy with the role %s applies only to its own namespace, and this "+
				"policy has none; set the label %s to this namespace", role, resource.LabelNamespace)}
		case ns != s.dataplane.Namespace():
			return Selection{Why: fmt.Sprintf("a policy with the role %s applies only to its own namespace %q, and the "+
				"dataplane is in %q", role, ns, s.dataplane.Namespace())}
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
		return Selection{Why: fmt.Sprintf("%s does not exist", Describe(t))}
	}
	for r, rs := range resource.Specs[*resource.Policy](routes) {
		var out Selection
		if len(spec.InboundItems()) > 0 {
			out = s.routeInbounds(r, rs)
		} else {
			out = s.top(r, &resource.Policy{TargetRef: rs.TargetRef})
		}
		if out.Proxy {
			out.Route = r
			return out
		}
	}
	return Selection{Why: fmt.Sprintf("%s does not apply to the dataplane", Describe(t))}
}

// ref matches a targetRef that is not a route.
func (s *selector) ref(p *resource.Resource, t *resource.TargetRef) Selection {
	var match func(map[string]string, *resource.Inbound) bool
	byTags := func(want map[string]string) func(map[string]string, *resource.Inbound) bool {
		return func(have map[string]string, _ *resource.Inbound) bool { return mesh.Contains(have, want) }
	}
	switch t.Kind {
	case kindMesh:
		if t.Name != "" && t.Name != s.x.View.Name {
			return Selection{Why: fmt.Sprintf("the policy applies to mesh %q, and the dataplane is in %q",
				t.Name, s.x.View.Name)}
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
			return Selection{Why: "the policy applies to dataplanes"}
		}
		return s.self(p, t)
	case "MeshGateway", "MeshGatewayRoute":
		return Selection{Why: fmt.Sprintf("%s does not exist: this agent serves only delegated gateways, which the kinds "+
			"Mesh, MeshSubset, and MeshService select", Describe(t))}
	default:
		return Selection{Why: fmt.Sprintf("%s selects no dataplanes", Describe(t))}
	}
	out := s.matching(match)
	if t.Kind == kindMesh {
		out.Proxy = true // also selects a dataplane without inbounds
	}
	return s.proxyTypes(t, out)
}

// matching returns the inbounds, or the gateway, whose tags match.
func (s *selector) matching(match func(tags map[string]string, in *resource.Inbound) bool) Selection {
	var out Selection
	n := &s.dp.Networking
	for i := range n.Inbound {
		if s.tags[i] != nil && match(s.tags[i], &n.Inbound[i]) {
			out.Inbounds = append(out.Inbounds, i)
		}
	}
	out.Inbounds = resource.Spread(s.shared, out.Inbounds) // one listener serves them
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
		return Selection{Why: fmt.Sprintf("the policy applies to proxies of type %s, and this one is a %s",
			strings.Join(t.ProxyTypes, ", "), kind)}
	}
	return out
}

// service returns a function that matches the inbounds of a service, by the tag kuma.io/service or
// by the selector of a service resource.
func (s *selector) service(p *resource.Resource,
	t *resource.TargetRef) func(map[string]string, *resource.Inbound) bool {
	var keys []resource.Key
	if t.Kind == mesh.KindMeshService {
		keys = s.x.Resolve(p, t)
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

// section reports whether an inbound serves the service port that a targetRef names.
func (s *selector) section(k resource.Key, t *resource.TargetRef, in *resource.Inbound) bool {
	if t.SectionName == "" {
		return true
	}
	port := s.x.View.Port(k, t.SectionName)
	return port != nil && s.x.View.Serves(port, in)
}

// self matches one dataplane by name or labels, or one of its inbounds by name. The port is the
// name of an inbound without one.
func (s *selector) self(p *resource.Resource, t *resource.TargetRef) Selection {
	if t.Name != "" && !slices.Contains(mesh.Qualified(p, t.Name, t.Namespace), s.dataplane.Name) {
		return Selection{Why: fmt.Sprintf("the policy applies to the dataplane %q", t.Name)}
	}
	labels := s.x.View.Labels(s.dataplane)
	for _, k := range slices.Sorted(maps.Keys(t.Labels)) {
		if have := labels[k]; have != t.Labels[k] {
			return Selection{Why: fmt.Sprintf("the label %s is %q, and the policy requires %q", k, have, t.Labels[k])}
		}
	}
	out := s.matching(func(_ map[string]string, in *resource.Inbound) bool {
		return t.SectionName == "" || in != nil && mesh.SectionName(in.Name, in.Port) == t.SectionName
	})
	if t.SectionName == "" {
		out.Proxy = true
	} else if !out.Proxy {
		return Selection{Why: fmt.Sprintf("the dataplane has no inbound with the name %q; the port is the name of an "+
			"inbound without one", t.SectionName)}
	}
	return s.proxyTypes(t, out)
}

// routeInbounds selects the inbounds that receive the requests of a route: those of the services
// that it applies to.
func (s *selector) routeInbounds(route *resource.Resource, spec *resource.Policy) Selection {
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

// why describes the requirement of a targetRef that the dataplane does not satisfy.
func (s *selector) why(p *resource.Resource, t *resource.TargetRef) string {
	want := maps.Clone(t.Tags)
	if want == nil {
		want = map[string]string{}
	}
	if t.Kind == "MeshServiceSubset" || t.Kind == mesh.KindMeshService && t.SectionName == "" &&
		len(s.x.Resolve(p, t)) == 0 {
		want[resource.TagService] = t.Name
	}
	if why := missingTag(want, s.x.View.ProxyTags(s.dp)); why != "" {
		return why
	}
	return fmt.Sprintf("none of its inbounds matches %s", Describe(t))
}

// Offered reports whether some workload or gateway has this value of kuma.io/service.
func (x *Index) Offered(service string) bool {
	return service != "" &&
		(x.View.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: service}) != nil || x.View.Gateway(service))
}
