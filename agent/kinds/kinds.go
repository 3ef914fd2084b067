// Package kinds lists every kind of resource that the agent knows. The list of policies is the order in which they act
// on a proxy's draft.
//
// A kind whose line stands here with a raw conf is stored and validated in the shape that all policies share, and does
// nothing yet. Its room replaces the line: it declares its own descriptor, with the typed conf in NewConf, and its
// effect on the draft.
package kinds

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Kinds of targetRef that go together in the shapes below.
var (
	// proxies are the ways to name proxies of a mesh.
	proxies = []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset"}
	// withGateway adds the built-in gateways, which nearside accepts and does not run.
	withGateway = []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "MeshGateway"}
	anyClient   = []string{"Mesh"}
	services    = []string{"MeshService", "MeshExternalService", "MeshMultiZoneService"}
	meshOr      = []string{"Mesh", "MeshService", "MeshExternalService", "MeshMultiZoneService"}
	meshOrRoute = []string{"Mesh", "MeshService", "MeshExternalService", "MeshMultiZoneService", "MeshHTTPRoute"}
)

// All returns the descriptors of every kind: the mesh itself, its policies in the order in which they act, each legacy
// kind beside the one that replaces it, and what policies refer to.
func All() []resource.Descriptor {
	out := resource.Core()
	out = append(out, Policies()...)
	return append(out,
		resource.Descriptor{
			Kind: "MeshAccessLogBackend", Plural: "meshaccesslogbackends", Scope: resource.ScopeMesh, New: newRawSpec,
		},
		resource.Descriptor{
			Kind: "GlobalAccessLogBackend", Plural: "globalaccesslogbackends", Scope: resource.ScopeGlobal, New: newRawSpec,
		},
	)
}

// Policies returns the descriptors of the policy kinds in the order in which they act.
func Policies() []resource.Descriptor {
	return []resource.Descriptor{
		// Routes come first: what acts on a route, a split cluster or an outbound needs to find it.
		policy("MeshHTTPRoute", "meshhttproutes", "", resource.PolicyShape{Top: withGateway, To: meshOr, Inline: true}),
		policy("MeshTCPRoute", "meshtcproutes", "", resource.PolicyShape{Top: withGateway, To: meshOr, Inline: true}),
		legacy("TrafficRoute", "traffic-routes", resource.LegacyShape{NewConf: newRawConf, ConfRequired: true}),
		// Passthrough makes chains and clusters that the policies below then act on.
		policy("MeshPassthrough", "meshpassthroughs", "mp", resource.PolicyShape{Top: []string{"Mesh", "MeshSubset"}, Default: true}),
		// Policies on connections and requests; they are independent of each other.
		policy("MeshTLS", "meshtlses", "mtls", resource.PolicyShape{Top: []string{"Mesh", "MeshSubset"}, From: anyClient}),
		policy("MeshLoadBalancingStrategy", "meshloadbalancingstrategies", "mlbs", resource.PolicyShape{Top: withGateway, To: meshOr}),
		policy("MeshTimeout", "meshtimeouts", "mt", resource.PolicyShape{Top: append(withGateway[:len(withGateway):len(withGateway)], "MeshHTTPRoute"), From: anyClient, To: meshOrRoute}),
		legacy("Timeout", "timeouts", resource.LegacyShape{NewConf: newRawConf, ConfRequired: true}),
		policy("MeshCircuitBreaker", "meshcircuitbreakers", "mcb", resource.PolicyShape{Top: withGateway, From: anyClient, To: meshOr}),
		legacy("CircuitBreaker", "circuit-breakers", resource.LegacyShape{NewConf: newRawConf, ConfRequired: true}),
		policy("MeshHealthCheck", "meshhealthchecks", "mhc", resource.PolicyShape{Top: withGateway, To: meshOr}),
		policy("MeshRetry", "meshretries", "mr", resource.PolicyShape{Top: append(withGateway[:len(withGateway):len(withGateway)], "MeshHTTPRoute"), To: meshOrRoute}),
		policy("MeshFaultInjection", "meshfaultinjections", "mfi", resource.PolicyShape{Top: withGateway, From: proxies, To: anyClient}),
		legacy("FaultInjection", "fault-injections", resource.LegacyShape{NewConf: newRawConf, ConfRequired: true}),
		policy("MeshRateLimit", "meshratelimits", "mrl", resource.PolicyShape{Top: append(withGateway[:len(withGateway):len(withGateway)], "MeshHTTPRoute"), From: anyClient, To: anyClient}),
		policy("MeshTrafficPermission", "meshtrafficpermissions", "mtp", resource.PolicyShape{Top: proxies, From: proxies}),
		legacy("TrafficPermission", "traffic-permissions", resource.LegacyShape{}),
		// Observation sees what the policies above have made.
		policy("MeshMetric", "meshmetrics", "mm", resource.PolicyShape{Top: withGateway, Default: true}),
		policy("MeshTrace", "meshtraces", "mtr", resource.PolicyShape{Top: withGateway, Default: true}),
		policy("MeshAccessLog", "meshaccesslogs", "mal", resource.PolicyShape{
			Top: withGateway, TopFromOnly: []string{"MeshHTTPRoute", "MeshGatewayRoute"}, From: proxies, To: meshOr,
		}),
		legacy("TrafficLog", "traffic-logs", resource.LegacyShape{NewConf: newRawConf}),
		// Patches come last, so that they can change all that was made.
		policy("MeshProxyPatch", "meshproxypatches", "mpp", resource.PolicyShape{Top: withGateway, Default: true}),
		legacy("ProxyTemplate", "proxytemplates", resource.LegacyShape{Selectors: true, NewConf: newRawConf, ConfRequired: true}),
	}
}

// Registry returns a registry of all kinds. It panics only if the list above contradicts itself, which a test excludes.
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
	return resource.PolicyDescriptor(kind, plural, short, shape)
}

func legacy(kind, plural string, shape resource.LegacyShape) resource.Descriptor {
	return resource.LegacyDescriptor(kind, plural, "", shape)
}
