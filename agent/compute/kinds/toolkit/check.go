package toolkit

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// targetRef kinds that several policy kinds accept.
const (
	kindMesh            = "Mesh"
	kindExternalService = "MeshExternalService"
	kindGateway         = "MeshGateway"
	kindHTTPRoute       = "MeshHTTPRoute"
)

// Clients returns the targetRef kinds that select clients.
func Clients(more ...string) []string {
	return append([]string{kindMesh, "MeshSubset", "MeshService", "MeshServiceSubset"}, more...)
}

// Proxies returns the targetRef kinds that select proxies.
func Proxies(more ...string) []string { return append(Clients("Dataplane"), more...) }

// Destinations returns the targetRef kinds that select destinations.
func Destinations(more ...string) []string {
	return append([]string{kindMesh, "MeshService", kindExternalService, "MeshMultiZoneService"}, more...)
}

// AtMost checks the length of a list and reports whether it is valid. items names the list's items
// in the plural.
func AtMost(v *resource.Validator, n, limit int, items string) bool {
	if n > limit {
		v.Faultf("%d %s are given, and at most %d are allowed", n, items, limit)
	}
	return n <= limit
}

// RouteItems checks the to items of a policy. If the policy targets a gateway or a route, only Mesh
// and MeshExternalService are valid destinations. requests is called with each conf that applies to
// the requests of a route.
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

// ToOfGateways rejects to in a policy that selects no gateway, for kinds whose to applies only to
// the listeners of built-in gateways. instead names valid targetRefs for the message.
func ToOfGateways(p *resource.Policy, v *resource.Validator, instead string) {
	if len(p.To) == 0 || p.TargetRef == nil {
		return
	}
	switch t := p.TargetRef; t.Kind {
	case "MeshService", "MeshServiceSubset", "Dataplane":
		v.Field("to").Faultf("to applies only to gateway listeners, and %s selects no gateway: use from, "+
			"or a targetRef of kind %s", t.Kind, instead)
	default:
		if len(t.ProxyTypes) > 0 && !slices.Contains(t.ProxyTypes, "Gateway") {
			v.Field("to").Faultf("to applies only to gateway listeners, and the policy selects no gateway: use from, " +
				"or add Gateway to targetRef.proxyTypes")
		}
	}
}

// FromOfSidecars rejects from in a policy that also selects gateways, for kinds whose from applies
// only to inbounds, which gateways do not have. Like Kuma's validation, it rejects a MeshSubset
// only if proxyTypes includes Gateway, because its tags may select only sidecars.
func FromOfSidecars(p *resource.Policy, v *resource.Validator) {
	if len(p.From) == 0 {
		return
	}
	kind := kindMesh // default of targetRef
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
	v.Field("from").Faultf("from applies only to inbounds, and a policy on %s also selects gateways, which have none: "+
		"use targetRef: {kind: %s, proxyTypes: [Sidecar]}", kind, kind)
}

// OfSidecars returns the targetRef restricted to sidecars, so that FromOfSidecars and Kuma's
// validation accept it.
func OfSidecars(t resource.TargetRef) *resource.TargetRef {
	if t.Kind == kindMesh || t.Kind == "MeshSubset" {
		t.ProxyTypes = []string{"Sidecar"}
	}
	return &t
}

// WarnToOfGateways warns that to has no effect on a proxy that is not a built-in gateway. effect
// describes the effect of from.
func WarnToOfGateways(c *policy.Context, rules *policy.KindRules, effect string) {
	if rules == nil {
		return
	}
	for _, p := range rules.Policies {
		if spec, ok := p.Spec.(*resource.Policy); ok && len(spec.To) > 0 {
			c.Host.Warn(p.Key,
				"to has no effect on this proxy, because it applies only to listeners of built-in gateways; use from to %s", effect)
		}
	}
}
