package toolkit

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kinds of targetRefs that several kinds of policies take.
const (
	kindMesh            = "Mesh"
	kindExternalService = "MeshExternalService"
	kindGateway         = "MeshGateway"
	kindHTTPRoute       = "MeshHTTPRoute"
)

// Clients are the kinds of targetRefs by which clients are told apart.
func Clients(more ...string) []string {
	return append([]string{kindMesh, "MeshSubset", "MeshService", "MeshServiceSubset"}, more...)
}

// Proxies are the kinds of targetRefs that select proxies.
func Proxies(more ...string) []string { return append(Clients("Dataplane"), more...) }

// Destinations are the kinds of targetRefs of destinations.
func Destinations(more ...string) []string {
	return append([]string{kindMesh, "MeshService", kindExternalService, "MeshMultiZoneService"}, more...)
}

// AtMost checks the length of a list; what is its items in the plural. It returns false for one
// that is too long.
func AtMost(v *resource.Validator, n, most int, what string) bool {
	if n > most {
		v.Faultf("%d %s are given, at most %d are allowed", n, what, most)
	}
	return n <= most
}

// RouteItems refuses in to what does not go with a targetRef that names a gateway or a route: a
// destination but Mesh and MeshExternalService. For each item whose conf is about the requests of a
// route, requests is called with its conf.
func RouteItems[C any](p *resource.Policy, v *resource.Validator, requests func(*C, *resource.Validator)) {
	top := kindMesh
	if p.TargetRef != nil {
		top = p.TargetRef.Kind
	}
	for i := range p.To {
		item, to := v.Field("to").Index(i), p.To[i].TargetRef.Kind
		if top == kindGateway || top == kindHTTPRoute {
			item.Field("targetRef").Field("kind").OneOf(to, kindMesh, kindExternalService)
		}
		if c, ok := any(p.To[i].Conf).(*C); ok && (top == kindHTTPRoute || to == kindHTTPRoute) {
			requests(c, item.Field("default"))
		}
	}
}

// ToOfGateways refuses to where the policy selects no gateway, for kinds whose to is about the
// listeners of built-in gateways. instead is the targetRef to give.
func ToOfGateways(p *resource.Policy, v *resource.Validator, instead string) {
	if len(p.To) == 0 || p.TargetRef == nil {
		return
	}
	switch t := p.TargetRef; t.Kind {
	case "MeshService", "MeshServiceSubset", "Dataplane":
		v.Field("to").Faultf("a policy on %s has no to, which is about the listeners of gateways: write from instead, "+
			"or give a targetRef of %s", t.Kind, instead)
	default:
		if len(t.ProxyTypes) > 0 && !slices.Contains(t.ProxyTypes, "Gateway") {
			v.Field("to").Faultf("a policy without gateways has no to, which is about their listeners: write from instead, " +
				"or add Gateway to targetRef.proxyTypes")
		}
	}
}

// FromOfSidecars refuses from, for a kind whose from is about inbounds alone, in a policy that
// selects gateways as well: these have no inbounds (the rule of Kuma's validation). The tags of a
// MeshSubset may select sidecars alone: it is refused where it names gateways.
func FromOfSidecars(p *resource.Policy, v *resource.Validator) {
	if len(p.From) == 0 {
		return
	}
	kind := kindMesh // what a policy without targetRef selects
	if t := p.TargetRef; t != nil {
		gateways := t.Kind == kindMesh
		if len(t.ProxyTypes) > 0 {
			gateways = (t.Kind == kindMesh || t.Kind == "MeshSubset") && slices.Contains(t.ProxyTypes, "Gateway")
		}
		if !gateways {
			return
		}
		kind = t.Kind
	}
	v.Field("from").Faultf("a policy on %s selects gateways too, and from is about inbounds, "+
		"which they have not: write targetRef: {kind: %s, proxyTypes: [Sidecar]}", kind, kind)
}

// OfSidecars is a targetRef that selects no gateways, for a policy that FromOfSidecars or Kuma's
// validation looks at.
func OfSidecars(t resource.TargetRef) *resource.TargetRef {
	if t.Kind == kindMesh || t.Kind == "MeshSubset" {
		t.ProxyTypes = []string{"Sidecar"}
	}
	return &t
}

// WarnToOfGateways notes for such a kind that to has no effect on a proxy that is no built-in
// gateway. effect is what from does, and where.
func WarnToOfGateways(c *policy.Context, rules *policy.KindRules, effect string) {
	if rules == nil {
		return
	}
	for _, p := range rules.Policies {
		if spec, ok := p.Spec.(*resource.Policy); ok && len(spec.To) > 0 {
			c.Host.Warn(p.Key,
				"to has no effect on this proxy: it is about the listeners of built-in gateways; write from to %s", effect)
		}
	}
}
