package faulttest_test

import (
	"os"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// Classes of problems, and severities.
const (
	noEffect = "policy-no-effect" // or ofOne, if a warning about the policy says why
	ofOne    = "resource"
	warning  = "warning"
	serious  = "error"
)

// to returns the spec of a policy for all proxies, with one item in the section to.
func to(target, conf string) string { return forProxies("{kind: Mesh}", target, conf) }

// forProxies returns the spec of a policy with one item in the section to.
func forProxies(proxies, target, conf string) string {
	return "{targetRef: " + proxies + ", to: [{targetRef: " + target + ", default: " + conf + "}]}"
}

// tagged returns a targetRef of kind MeshSubset.
func tagged(tag, value string) string {
	return "{kind: MeshSubset, tags: {" + tag + ": " + value + "}}"
}

// service returns a targetRef of kind MeshService.
func service(name string) string { return "{kind: MeshService, name: " + name + "}" }

const (
	everything = "{kind: Mesh}"
	threes     = "{connectionTimeout: 3s}"
)

// policyRows are policies without effect, policies that a proxy lacks, and policies with effect
// that a user may doubt.
var policyRows = []row{
	{fault: "overridden", apply: policy("MeshTimeout", "wide", to(everything, threes)) +
		policy("MeshTimeout", "narrow", to(everything, "{connectionTimeout: 4s}")),
		commands: []string{"nearside explain policy meshtimeout/wide --dataplane web"},
		warning:  "no effect on any proxy: overridden by MeshTimeout/default/narrow",
		says:     []string{"no effect", "overridden by MeshTimeout/narrow"}, problem: noEffect, severity: warning},
	{fault: "misspelled tag",
		apply:    policy("MeshTimeout", "t", forProxies(tagged("kuma.io/servise", "web"), everything, threes)),
		warning:  "no dataplane has the tag kuma.io/servise, so the policy selects nothing; the nearest is kuma.io/service",
		commands: []string{"nearside explain policy meshtimeout/t --dataplane web"},
		says:     []string{"the policy requires the tag kuma.io/servise: web, and the dataplane has no such tag"},
		code:     2, problem: ofOne, severity: warning},
	{fault: "misspelled value of a tag",
		apply:    policy("MeshTimeout", "t", forProxies(tagged("kuma.io/service", "wep"), everything, threes)),
		warning:  "no dataplane has the tag kuma.io/service: wep, so the policy selects nothing; the nearest is web",
		commands: []string{"nearside explain policy meshtimeout/t --dataplane web"},
		says:     []string{"the tag kuma.io/service is web, and the policy requires wep"},
		code:     2, problem: ofOne, severity: warning},
	{fault: "sectionName without inbound", apply: policy("MeshTimeout", "t", "{targetRef: {kind: Dataplane, name: web, "+
		"sectionName: htpp}, rules: [{default: {http: {requestTimeout: 3s}}}]}"),
		warning:  `no inbound has the name "htpp", so the policy selects nothing; the nearest is http`,
		commands: []string{"nearside explain policy meshtimeout/t --dataplane web"},
		says:     []string{`the dataplane has no inbound with the name "htpp"`}, code: 2, problem: ofOne,
		severity: warning},
	{fault: "unknown service in to", apply: policy("MeshTimeout", "t", to(service("backnd"), threes)),
		warning:  `to[0].targetRef: MeshService "backnd" does not exist, so the item has no effect; the nearest is backend`,
		commands: []string{"nearside explain policy meshtimeout/t --dataplane web"},
		says:     []string{"no outbound of the dataplane leads to MeshService/backnd"}, problem: ofOne, severity: warning},
	{fault: "unknown service in from", apply: "{type: MeshTrafficPermission, mesh: strict, name: p, spec: {targetRef: " +
		service("vault") + ", from: [{targetRef: " + service("frnt") + ", default: {action: Deny}}]}}",
		warning:  "front",
		commands: []string{"nearside explain policy meshtrafficpermission/p -m strict --dataplane vault"},
		says:     []string{"frnt"}, problem: ofOne, severity: warning},
	{fault: "subset without instances", apply: policy("MeshHTTPRoute", "r", "{targetRef: {kind: Mesh}, to: [{targetRef: "+
		service("backend")+", rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: "+
		"[{kind: MeshServiceSubset, name: backend, tags: {version: v9}}]}}]}]}"),
		warning: "no instance of backend has the tag version: v9, so traffic there fails",
		commands: []string{"nearside explain request --from web --to 127.0.0.1:20001",
			"nearside explain policy meshhttproute/r --dataplane web"},
		says: []string{"has no endpoints", "no instance of backend has the tag version: v9"}, problem: ofOne,
		severity: warning},
	{fault: "log file in a missing directory", apply: policy("MeshAccessLog", "l", to(everything,
		"{backends: [{type: File, file: {path: /nowhere/x.log}}]}")),
		commands: []string{"nearside wait meshaccesslog/l", "nearside explain policy meshaccesslog/l --dataplane web"},
		says:     []string{`Envoy cannot open "/nowhere/x.log": the directory /nowhere does not exist`},
		problem:  "withheld", severity: serious},
	{fault: "config withheld by the check", provoke: func(t *testing.T, n *node) func() {
		n.file("fault.yaml", policy("MeshProxyPatch", "p", "{targetRef: {kind: Mesh}, default: {appendModifications: "+
			"[{cluster: {operation: Patch, match: {name: redis}, value: 'connectTimeout: 9223372037s'}}]}}"))
		return func() { agenttest.Do(t, os.Remove(n.path("resources", "fault.yaml"))) }
	}, commands: []string{"nearside wait meshproxypatch/p --timeout 5s"}, code: 2,
		says: []string{"default/web: Cluster redis: not sent: Envoy would reject it at /connectTimeout",
			"meshproxypatch/p spec.default.appendModifications[0].cluster"}, problem: "withheld", severity: serious},
	{fault: "http section on tcp", apply: policy("MeshTimeout", "t", to(service("redis"), "{http: {requestTimeout: 3s}}")),
		warning:  "redis speaks tcp",
		commands: []string{"nearside wait meshtimeout/t", "nearside explain policy meshtimeout/t --dataplane web"},
		says:     []string{"no effect: redis speaks tcp"}, problem: noEffect, severity: warning},
	{fault: "http section on kafka",
		apply:    policy("MeshTimeout", "t", to(service("queue"), "{http: {requestTimeout: 3s}}")),
		warning:  "queue speaks kafka",
		commands: []string{"nearside explain policy meshtimeout/t --dataplane web"},
		says:     []string{"no effect: queue speaks kafka"}, problem: noEffect, severity: warning},
	{fault: "http section of a retry on grpc",
		apply:    policy("MeshRetry", "r", to(service("greeter"), "{http: {numRetries: 3}}")),
		warning:  "greeter speaks grpc",
		commands: []string{"nearside explain policy meshretry/r --dataplane web"},
		says:     []string{"no effect: greeter speaks grpc"}, problem: noEffect, severity: warning},
	{fault: "tcp section on http",
		apply:    policy("MeshRetry", "r", to(service("backend"), "{tcp: {maxConnectAttempt: 3}}")),
		warning:  "backend speaks http",
		commands: []string{"nearside explain policy meshretry/r --dataplane web"},
		says:     []string{"no effect: backend speaks http"}, problem: noEffect, severity: warning},
	{fault: "same value as another policy", apply: policy("MeshTimeout", "wide", to(everything, threes)) +
		policy("MeshTimeout", "narrow", forProxies(tagged("kuma.io/service", "web"), everything, threes)),
		commands: []string{"nearside explain policy meshtimeout/narrow --dataplane web"},
		says:     []string{"same value as MeshTimeout/wide"}},
	{fault: "permission without mTLS", apply: policy("MeshTrafficPermission", "p", "{targetRef: "+service("backend")+
		", from: [{targetRef: "+service("web")+", default: {action: Allow}}]}"),
		warning:  "this permission is not enforced: mesh default has no mTLS; enable mtls of the Mesh",
		commands: []string{"nearside explain policy meshtrafficpermission/p --dataplane backend-1"},
		says:     []string{"no effect", "mesh default has no mTLS"}, problem: noEffect, severity: warning},
	{fault: "log backend that is left out", apply: policy("MeshAccessLog", "l", to(everything,
		"{backends: [{type: File, file: {path: $DIR/elsewhere/x.log, rotation: {maxFileSize: 10}}}]}")),
		commands: []string{"nearside wait meshaccesslog/l", "nearside get meshaccesslog l -o wide"},
		says: []string{"AccessLog file $DIR/elsewhere/x.log: it is disabled: policies may name files that the " +
			"agent writes only below"},
		problem: ofOne, severity: warning},
	{fault: "value of the default", apply: policy("MeshLoadBalancingStrategy", "d",
		to(service("backend"), "{loadBalancer: {type: RoundRobin}}")),
		commands: []string{"nearside wait meshloadbalancingstrategy/d",
			"nearside explain policy meshloadbalancingstrategy/d --dataplane web"},
		says: []string{"applied", "changes nothing: the values are the defaults", "equals the default"}},
	{fault: "policy that the Envoy rejects", apply: policy("MeshProxyPatch", "p", "{targetRef: {kind: Mesh}, default: "+
		"{appendModifications: [{httpFilter: {operation: AddFirst, match: {origin: inbound}, value: '{name: "+
		"envoy.filters.http.lua, typedConfig: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, "+
		"defaultSourceCode: {inlineString: \"setup()\"}}}'}}]}}"),
		commands: []string{"nearside wait meshproxypatch/p --timeout 5s"}, code: 2,
		says:    []string{"default/web: Listener inbound:$IP:10080: ", "script load error", "meshproxypatch/p"},
		problem: "rejected", severity: serious},
}

// TestPolicies tests policies on a proxy whose Envoy runs.
func TestPolicies(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.file("base.yaml", base)
	n.start()
	n.envoy(t, 0, "--name web")
	n.synced("default", "web")
	for _, r := range policyRows {
		t.Run(r.fault, func(t *testing.T) { r.test(t, n) })
	}
}
