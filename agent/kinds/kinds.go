// Package kinds lists every kind of resource that the agent knows. The list of policies is the order in which they act
// on a proxy's draft.
//
// A kind whose line stands here with a raw conf is stored and validated in the shape that all policies share, and does
// nothing yet. Its room replaces the line: it exports its own descriptor, made with resource.PolicyDescriptor, with the
// typed conf in NewConf, and its effect on the draft.
package kinds

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// All returns the descriptors of every kind: the mesh itself, its policies in the order in which they act, and what
// policies refer to.
func All() []resource.Descriptor {
	out := append(resource.Core(), Policies()...)
	return append(out,
		resource.Descriptor{Kind: "MeshAccessLogBackend", Plural: "meshaccesslogbackends", Scope: resource.ScopeMesh, New: newRawSpec, Inert: true},
		resource.Descriptor{Kind: "GlobalAccessLogBackend", Plural: "globalaccesslogbackends", Scope: resource.ScopeGlobal, New: newRawSpec, Inert: true},
	)
}

// Policies returns the descriptors of the policy kinds in the order in which they act, each legacy kind behind the one
// that replaces it. The kinds of targetRef are those of Kuma 2.9 and, where these are wider, of the design documents.
func Policies() []resource.Descriptor {
	type shape = resource.PolicyShape
	var (
		mesh     = []string{"Mesh"}
		subset   = []string{"Mesh", "MeshSubset"}
		proxies  = []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset"}
		gateways = []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "MeshGateway"}
		services = []string{"Mesh", "MeshService", "MeshExternalService", "MeshMultiZoneService"}
		routed   = []string{"Mesh", "MeshService", "MeshExternalService", "MeshMultiZoneService", "MeshHTTPRoute"}
		gateway  = []string{"MeshGateway"}
		outbound = []string{"MeshGateway", "MeshHTTPRoute"}
	)
	return []resource.Descriptor{
		// Routes come first: what acts on a route or a split cluster needs to find it.
		policy("MeshHTTPRoute", "meshhttproutes", "mhttpr", shape{Top: gateways, To: services, Inline: true}),
		policy("MeshTCPRoute", "meshtcproutes", "mtcpr", shape{Top: gateways, To: services, Inline: true}),
		legacy("TrafficRoute", "traffic-routes", resource.LegacyShape{NewConf: newRawConf, ConfRequired: true}),
		// Passthrough makes chains and clusters that the kinds below then act on.
		policy("MeshPassthrough", "meshpassthroughs", "mp", shape{Top: subset, Default: true}),
		// What shapes connections and requests. These are independent of each other.
		policy("MeshTLS", "meshtlses", "mtls", shape{Top: subset, From: mesh}),
		policy("MeshLoadBalancingStrategy", "meshloadbalancingstrategies", "mlbs", shape{Top: gateways, To: services}),
		policy("MeshTimeout", "meshtimeouts", "mt", shape{Top: proxies, TopToOnly: outbound, From: mesh, To: routed}),
		legacy("Timeout", "timeouts", resource.LegacyShape{NewConf: newRawConf, ConfRequired: true}),
		policy("MeshCircuitBreaker", "meshcircuitbreakers", "mcb", shape{Top: proxies, TopToOnly: gateway, From: mesh, To: services}),
		legacy("CircuitBreaker", "circuit-breakers", resource.LegacyShape{NewConf: newRawConf, ConfRequired: true}),
		policy("MeshHealthCheck", "meshhealthchecks", "mhc", shape{Top: gateways, To: services}),
		policy("MeshRetry", "meshretries", "mr", shape{Top: proxies, TopToOnly: outbound, To: routed}),
		policy("MeshFaultInjection", "meshfaultinjections", "mfi", shape{Top: proxies, TopToOnly: gateway, From: proxies, To: mesh}),
		legacy("FaultInjection", "fault-injections", resource.LegacyShape{NewConf: newRawConf, ConfRequired: true}),
		policy("MeshRateLimit", "meshratelimits", "mrl", shape{Top: proxies, TopToOnly: outbound, From: mesh, To: mesh}),
		// Permission stands behind what answers by itself, as the order of HTTP filters has it.
		policy("MeshTrafficPermission", "meshtrafficpermissions", "mtp", shape{Top: proxies, From: proxies}),
		legacy("TrafficPermission", "traffic-permissions", resource.LegacyShape{}),
		// Observation sees what the kinds above have made.
		policy("MeshMetric", "meshmetrics", "mm", shape{Top: gateways, Default: true}),
		policy("MeshTrace", "meshtraces", "mtr", shape{Top: gateways, Default: true}),
		policy("MeshAccessLog", "meshaccesslogs", "mal", shape{
			Top: proxies, TopFromOnly: []string{"MeshHTTPRoute", "MeshGatewayRoute"}, TopToOnly: gateway,
			From: proxies, To: services, MeshName: true,
		}),
		legacy("TrafficLog", "traffic-logs", resource.LegacyShape{NewConf: newRawConf}),
		// Patches come last, so that they can change all that was made.
		policy("MeshProxyPatch", "meshproxypatches", "mpp", shape{Top: gateways, Default: true}),
		legacy("ProxyTemplate", "proxytemplates", resource.LegacyShape{Selectors: true, NewConf: newRawConf, ConfRequired: true}),
	}
}

// Registry returns a new registry of all kinds. It panics when the list above contradicts itself, which no input can
// bring about and a test excludes.
func Registry() *resource.Registry {
	r, err := resource.NewRegistry(All()...)
	if err != nil {
		panic(fmt.Sprintf("the list of kinds is wrong: %v", err))
	}
	return r
}

func newRawConf() resource.Conf { return new(resource.RawConf) }
func newRawSpec() resource.Spec { return new(resource.RawSpec) }

// policy declares a kind that no room acts on yet.
func policy(kind, plural, short string, shape resource.PolicyShape) resource.Descriptor {
	shape.NewConf = newRawConf
	d := resource.PolicyDescriptor(kind, plural, short, shape)
	d.Inert = true
	return d
}

func legacy(kind, plural string, shape resource.LegacyShape) resource.Descriptor {
	d := resource.LegacyDescriptor(kind, plural, "", shape)
	d.Inert = true
	return d
}
