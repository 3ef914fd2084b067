package kinds_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// formats is a mesh whose proxy backend-1 has two inbounds and two outbounds of each kind.
const formats = `
{type: Mesh, name: default, meshServices: {mode: Everywhere}, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}
---
{type: Dataplane, name: backend-1, labels: {app: backend}, networking: {address: 10.0.0.1,
  inbound: [{port: 80, name: main, tags: {kuma.io/service: backend, kuma.io/protocol: http}}, {port: 81, tags: {kuma.io/service: admin, kuma.io/protocol: http}}],
  outbound: [{port: 1001, backendRef: {kind: MeshService, name: one, port: 80}}, {port: 1002, backendRef: {kind: MeshService, name: two, port: 80}}]}}
---
{type: Dataplane, name: web-1, networking: {address: 10.0.0.2, inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}]}}
---
{type: MeshService, name: one, labels: {tier: data}, spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{name: http, port: 80, appProtocol: http}, {name: more, port: 81, targetPort: 80, appProtocol: http}]}}
---
{type: MeshService, name: two, labels: {tier: data}, spec: {selector: {dataplaneTags: {kuma.io/service: admin}}, ports: [{name: http, port: 80, targetPort: 81, appProtocol: http}]}}
---
`

// TestEquivalentForms compares the config of a newer form with that of the equivalent older form.
func TestEquivalentForms(t *testing.T) {
	spec := func(kind, spec string) string { return "{type: " + kind + ", name: p, spec: {" + spec + "}}\n" }
	const everyone, byLabels = "targetRef: {kind: Mesh}, ", "targetRef: {kind: Dataplane, labels: {app: backend}}, "
	type pair struct{ what, older, newer string }
	pairs := []pair{
		{"a client that is allowed",
			spec("MeshTrafficPermission",
				everyone+"from: [{targetRef: {kind: MeshService, name: web}, default: {action: Allow}}]"),
			spec("MeshTrafficPermission",
				`rules: [{default: {allow: [{spiffeID: {type: Exact, value: "spiffe://default/web"}}]}}]`)},
		{"a client that is counted",
			spec("MeshTrafficPermission",
				everyone+"from: [{targetRef: {kind: MeshService, name: web}, default: {action: AllowWithShadowDeny}}]"),
			spec("MeshTrafficPermission",
				`rules: [{default: {allowWithShadowDeny: [{spiffeID: {type: Exact, value: "spiffe://default/web"}}]}}]`)},
		{"nobody",
			spec("MeshTrafficPermission", everyone+"from: [{targetRef: {kind: Mesh}, default: {action: Deny}}]"),
			spec("MeshTrafficPermission", `rules: [{default: {deny: [{spiffeID: {type: Prefix, value: "spiffe://"}}]}}]`)},
		{"a dataplane by its labels",
			spec("MeshTimeout",
				"targetRef: {kind: Dataplane, name: backend-1}, from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 3h}}]"),
			spec("MeshTimeout", "targetRef: {kind: Dataplane, labels: {app: backend, kuma.io/zone: default}}, "+
				"from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 3h}}]")},
		{"an inbound by its name",
			spec("MeshTimeout",
				"targetRef: {kind: MeshService, name: backend}, from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 3h}}]"),
			spec("MeshTimeout",
				"targetRef: {kind: Dataplane, labels: {app: backend}, sectionName: main}, rules: [{default: {idleTimeout: 3h}}]")},
		{"an inbound by its port",
			spec("MeshTimeout",
				"targetRef: {kind: MeshService, name: admin}, from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 3h}}]"),
			spec("MeshTimeout",
				"targetRef: {kind: Dataplane, name: backend-1, sectionName: '81'}, rules: [{default: {idleTimeout: 3h}}]")},
		{"services by their labels",
			spec("MeshTimeout", "to: [{targetRef: {kind: MeshService, name: one}, default: {connectionTimeout: 9s}}, "+
				"{targetRef: {kind: MeshService, name: two}, default: {connectionTimeout: 9s}}]"),
			spec("MeshTimeout",
				"to: [{targetRef: {kind: MeshService, labels: {tier: data}}, default: {connectionTimeout: 9s}}]")},
		{"a port of services by their labels",
			spec("MeshTimeout",
				"to: [{targetRef: {kind: MeshService, name: one, sectionName: '80'}, default: {connectionTimeout: 9s}}, "+
					"{targetRef: {kind: MeshService, name: two, sectionName: http}, default: {connectionTimeout: 9s}}]"),
			spec("MeshTimeout", "to: [{targetRef: {kind: MeshService, labels: {tier: data}, sectionName: http}, "+
				"default: {connectionTimeout: 9s}}]")},
		{"a port that one of them lacks",
			spec("MeshRetry",
				"to: [{targetRef: {kind: MeshService, name: one, sectionName: more}, default: {http: {numRetries: 9}}}]"),
			spec("MeshRetry", "to: [{targetRef: {kind: MeshService, labels: {tier: data}, sectionName: more}, "+
				"default: {http: {numRetries: 9}}}]")},
	}
	for kind, conf := range map[string]string{
		"MeshTimeout":        "{idleTimeout: 3h, http: {requestTimeout: 4s}}",
		"MeshCircuitBreaker": "{connectionLimits: {maxConnections: 7}}",
		"MeshRateLimit":      "{local: {http: {requestRate: {num: 5, interval: 1s}}}}",
		"MeshFaultInjection": "{http: [{abort: {httpStatus: 503, percentage: 20}}]}",
		"MeshAccessLog":      "{backends: [{type: File, file: {path: /tmp/log}}]}",
		"MeshTLS":            "{mode: Permissive}",
	} {
		pairs = append(pairs, pair{"rules of " + kind,
			spec(kind, byLabels+"from: [{targetRef: {kind: Mesh}, default: "+conf+"}]"),
			spec(kind, byLabels+"rules: [{default: "+conf+"}]")})
	}
	var plain string
	for i, p := range append([]pair{{what: "nothing", older: "{type: MeshTimeout, name: shadow, labels: " +
		"{kuma.io/effect: shadow}, spec: {to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1s}}]}}"}}, pairs...) {
		config := func(doc string) string {
			proxy := kindtest.Generator(t, []byte(formats+doc), "backend-1")()
			doc2, err := proxy.JSON()
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, list := range doc2 {
				for name, body := range list {
					b.WriteString(name + string(body) + "\n")
				}
			}
			lines := strings.Split(b.String(), "\n")
			slices.Sort(lines)
			return strings.Join(lines, "\n")
		}
		if i == 0 {
			plain = config(p.older)
			continue
		}
		older, newer := config(p.older), config(p.newer)
		if older != newer {
			t.Errorf("%s: config of the older form:\n%s\nconfig of the newer form:\n%s", p.what, older, newer)
		}
		if newer == plain && p.what != "nobody" && p.what != "a port that one of them lacks" {
			t.Errorf("%s: the policy has no effect", p.what)
		}
	}
}

// TestDataplaneOfNewerDocuments checks that the field protocol of an inbound takes precedence over
// the tag, and that the xDS variant is preserved.
func TestDataplaneOfNewerDocuments(t *testing.T) {
	const mesh = "{type: Mesh, name: default}\n---\n{type: Dataplane, name: web-1, networking: {address: 10.0.0.2, " +
		"inbound: [{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 1001, " +
		"tags: {kuma.io/service: backend}}]}}\n---\n"
	for inbound, requests := range map[string]bool{
		"{port: 80, tags: {kuma.io/service: backend}}":                                         false,
		"{port: 80, protocol: http, tags: {kuma.io/service: backend}}":                         true,
		"{port: 80, protocol: tcp, tags: {kuma.io/service: backend, kuma.io/protocol: http}}":  false,
		"{port: 80, protocol: grpc, tags: {kuma.io/service: backend, kuma.io/protocol: tcp}}":  true,
		"{port: 80, protocol: http2, tags: {kuma.io/service: backend, kuma.io/protocol: tcp}}": true,
	} {
		doc := "{type: Dataplane, name: backend-1, envoy: {xdsTransportProtocolVariant: DELTA_GRPC}, " +
			"networking: {address: 10.0.0.1, inbound: [" + inbound + "]}}\n"
		for proxy, listener := range map[string]string{
			"backend-1": "inbound:10.0.0.1:80",
			"web-1":     "outbound:127.0.0.1:1001",
		} {
			config, err := kindtest.Generator(t, []byte(mesh+doc), proxy)().JSON()
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(config["type.googleapis.com/envoy.config.listener.v3.Listener"][listener]),
				"http_connection_manager"); got != requests {
				t.Errorf("%s: %s uses HTTP: %v", inbound, listener, got)
			}
		}
	}
	for doc, field := range map[string]string{
		"{type: Dataplane, name: a, envoy: {xdsTransportProtocolVariant: REST}, networking: {address: 10.0.0.1, inbound: " +
			"[{port: 80, tags: {kuma.io/service: a}}]}}": "envoy.xdsTransportProtocolVariant",
		"{type: Dataplane, name: a, networking: {address: 10.0.0.1, inbound: [{port: 80, protocol: smtp, tags: {kuma.io/" +
			"service: a}}]}}": "networking.inbound[0].protocol",
	} {
		if _, faults := kinds.Registry().Decode("", []byte(doc)); len(faults) != 1 || faults[0].Field != field {
			t.Errorf("%s: want one fault at %s, got %v", doc, field, faults)
		}
	}
}

// TestRejectedRules contains invalid documents in the newer forms, and documents in older forms
// that are rejected.
func TestRejectedRules(t *testing.T) {
	const id = `{spiffeID: {type: Exact, value: "spiffe://default/web"}}`
	allow := func(match string) string { return "rules: [{default: {allow: [" + match + "]}}]" }
	for _, c := range []struct{ kind, spec, field, reason string }{
		{"MeshTimeout", "rules: [{default: {idleTimeout: 1s}}], from: [{targetRef: {kind: Mesh}, " +
			"default: {idleTimeout: 1s}}]", "rules", "move from into another policy"},
		{"MeshTimeout", "rules: [{default: {idleTimeout: 1s}}], to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1s}}]",
			"rules", "move to into another policy"},
		{"MeshTimeout", "rules: [{default: {}}]", "rules[0].default", "no timeout is given"},
		{"MeshTimeout", "rules: [{}]", "rules[0].default", "no timeout is given"},
		{"MeshTimeout", "rules: []", "", "the policy is empty"},
		{"MeshTimeout", "rules: {}", "rules", "a list is expected"},
		{"MeshTimeout", "rules: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1s}}]",
			"rules[0].targetRef", "not known in the schema of Kuma 2.14"},
		{"MeshTimeout", "rules: [{matches: [" + id + "], default: {idleTimeout: 1s}}]", "rules[0].default.idleTimeout",
			"set it in an entry without matches"},
		{"MeshTimeout", "rules: [{matches: [" + id + "], default: {http: {requestHeadersTimeout: 1s}}}]",
			"rules[0].default.http.requestHeadersTimeout", "all clients of an inbound share its connections"},
		{"MeshCircuitBreaker", "rules: [{matches: [" + id + "], default: {connectionLimits: {maxConnections: 1}}}]",
			"rules[0].matches", "or a MeshRateLimit; without matches"},
		{"MeshTLS", "rules: [{matches: [" + id + "], default: {mode: Permissive}}]", "rules[0].matches",
			"negotiated before the client's certificate is known"},
		{"MeshRateLimit", "rules: [{matches: [" + id + "], default: {local: {tcp: {connectionRate: {num: 1, " +
			"interval: 1s}}}}}]", "rules[0].default.local.tcp", "before it knows the client certificate"},
		{"MeshRateLimit", "rules: [{matches: [" + id + "], default: {local: {http: {}}}}]", "rules[0].default.local.http",
			"no field is set"},
		{"MeshRateLimit", "rules: [{matches: [{}], default: {local: {http: {disabled: true}}}}]",
			"rules[0].matches[0].spiffeID", "the SPIFFE ID is missing"},
		{"MeshRateLimit", "rules: [{matches: [{spiffeID: {type: Exact, value: web}}], " +
			"default: {local: {http: {disabled: true}}}}]", "rules[0].matches[0].spiffeID.value", "begins with spiffe://"},
		{"MeshAccessLog", "rules: [{matches: [{spiffeID: {type: Suffix, value: 'spiffe://a/b'}}], default: {backends: []}}]",
			"rules[0].matches[0].spiffeID.type", "Exact, Prefix"},
		{"MeshAccessLog", "rules: [{matches: [" + id + "], default: {}}]", "rules[0].default.backends",
			"the backends are missing"},
		{"MeshCircuitBreaker", "rules: [{default: {}}]", "rules[0].default", "is empty"},
		{"MeshRateLimit", "targetRef: {kind: MeshGateway, name: g}, rules: [{default: {local: {tcp: {connectionRate: {num: " +
			"1, interval: 1s}}}}}]", "rules", "a policy on MeshGateway has no rules"},
		{"MeshTLS", "targetRef: {kind: Dataplane, name: a}, rules: [{default: {tlsVersion: {min: TLS12}}}]",
			"rules[0].default.tlsVersion", "requires a targetRef of kind Mesh"},
		{"MeshTimeout", "targetRef: null, rules: [{default: {idleTimeout: 1s}}]",
			"targetRef", "null is not allowed; set a value"},
		{"MeshTimeout", "from: null, rules: [{default: {idleTimeout: 1s}}]", "from", "null is not allowed"},
		{"MeshTimeout", "rules: [{default: {idleTimeout: 1s, http: null}}]",
			"rules[0].default.http", "null is not allowed"},
		{"MeshTimeout", "rules: [{matches: null, default: {idleTimeout: 1s}}]", "rules[0].matches", "null is not allowed"},
		{"MeshTimeout", "rules: [{default: {http: {requestTimeout: null}}}]", "rules[0].default.http.requestTimeout",
			"null is not allowed"},
		{"MeshTimeout", "targetRef: {kind: MeshSubset, tags: {a: null}}, rules: [{default: {idleTimeout: 1s}}]",
			`targetRef.tags["a"]`, "null"},
		{"MeshTimeout", "targetRef: {kind: Mesh, proxyTypes: []}, rules: [{default: {idleTimeout: 1s}}]",
			"targetRef.proxyTypes", "the list is empty: give at least one item"},
		{"MeshTimeout", "targetRef: {kind: MeshServiceSubset, name: a, namespace: b, tags: {c: d}}, " +
			"rules: [{default: {idleTimeout: 1s}}]", "targetRef.namespace", "does not go with kind MeshServiceSubset"},
		{"MeshTimeout", "to: [{targetRef: {kind: MeshServiceSubset, name: a, namespace: b}, default: {idleTimeout: 1s}}]",
			"to[0].targetRef.kind", ""},
		{"MeshRateLimit", "from: [{targetRef: {kind: Mesh}, default: {local: {http: {disabled: true}}}}]",
			"from", "use targetRef: {kind: Mesh, proxyTypes: [Sidecar]}"},
		{"MeshFaultInjection", "targetRef: {kind: MeshSubset, tags: {a: b}, proxyTypes: [Sidecar, Gateway]}, " +
			"from: [{targetRef: {kind: Mesh}, default: {http: []}}]", "from", "proxyTypes: [Sidecar]"},
		{"MeshHealthCheck", "rules: [{default: {}}]", "rules", "this kind has no rules; it has targetRef, to"},
		{"MeshTimeout", "targetRef: {kind: Dataplane, name: a, labels: {a: b}}, rules: [{default: {idleTimeout: 1s}}]",
			"targetRef.name", "labels exclude a name"},
		{"MeshTimeout", "targetRef: {kind: Mesh, sectionName: main}, rules: [{default: {idleTimeout: 1s}}]",
			"targetRef.sectionName", "does not go with kind Mesh"},
		{"MeshTimeout", "to: [{targetRef: {kind: MeshService, name: a, labels: {a: b}}, default: {idleTimeout: 1s}}]",
			"to[0].targetRef.name", "labels exclude a name"},
		{"MeshTimeout", "to: [{targetRef: {kind: MeshService}, default: {idleTimeout: 1s}}]",
			"to[0].targetRef.name", "selected by labels"},
		{"MeshTrafficPermission", "rules: [{default: {}}]", "rules[0].default", "give allow, allowWithShadowDeny or deny"},
		{"MeshTrafficPermission", "rules: [{default: {action: Allow}}]",
			"rules[0].default.action", "not known in the schema"},
		{"MeshTrafficPermission", "rules: [{matches: [" + id + "], default: {allow: [" + id + "]}}]", "rules[0].matches",
			"the clients are selected in default"},
		{"MeshTrafficPermission", allow("{}"), "rules[0].default.allow[0].spiffeID", "the SPIFFE ID is missing"},
		{"MeshTrafficPermission", allow(`{sni: {type: Prefix, value: a}}`), "rules[0].default.allow[0].sni.type",
			"give one of Exact"},
		{"MeshTrafficPermission", allow(`{sni: {type: Exact, value: Backend.example}}`),
			"rules[0].default.allow[0].sni.value", "lower-case letters"},
		{"MeshTrafficPermission", allow(`{spiffeId: {type: Exact, value: "spiffe://a/b"}}`),
			"rules[0].default.allow[0].spiffeId", `did you mean "spiffeID"`},
		{"MeshTrafficPermission", allow(`{spiffeID: {type: Regex, value: "spiffe://a/b"}}`),
			"rules[0].default.allow[0].spiffeID.type", "Exact, Prefix"},
		{"MeshTrafficPermission", allow(`{spiffeID: {type: Exact}}`), "rules[0].default.allow[0].spiffeID.value",
			"the value is missing"},
		{"MeshTrafficPermission", allow(`{spiffeID: {type: Prefix, value: web}}`), "rules[0].default.allow[0].spiffeID.value",
			"begins with spiffe://"},
		{"MeshTrafficPermission", allow(`{spiffeID: {type: Exact, value: "spiffe://default/"}}`),
			"rules[0].default.allow[0].spiffeID.value", "type: Prefix"},
		{"MeshTrafficPermission", allow(`{spiffeID: {type: Exact, value: "spiffe://default/a;URI=b"}}`),
			"rules[0].default.allow[0].spiffeID.value", "are allowed"},
		{"MeshTrafficPermission", allow(`{spiffeID: {type: Exact, value: "spiffe://default/` + strings.Repeat("a", 2048) +
			`"}}`), "rules[0].default.allow[0].spiffeID.value", "at most 2048"},
		{"MeshFaultInjection", "rules: [{matches: [" + strings.Repeat(id+", ", 101) + "], default: {http: []}}]",
			"rules[0].matches", "at most 100"},
		{"MeshFaultInjection", "rules: [{matches: [" + id + "], default: {http: [{}]}}]", "rules[0].default.http[0]",
			"is empty"},
	} {
		doc := "{type: " + c.kind + ", name: p, spec: {" + c.spec + "}}"
		_, faults := kinds.Registry().Decode("", []byte(doc))
		want := strings.TrimSuffix("spec."+c.field, ".")
		if !slices.ContainsFunc(faults, func(f resource.Fault) bool {
			return f.Field == want && strings.Contains(f.Reason, c.reason)
		}) {
			t.Errorf("%s\nwant a fault at %s with %q, got %v", doc, want, c.reason, faults)
		}
	}
}

// TestNullValues contains documents in which null means an absent field: protobuf messages, the
// Kubernetes format, and values of any type.
func TestNullValues(t *testing.T) {
	for _, doc := range []string{
		"{type: Mesh, name: default, mtls: null, routing: {zoneEgress: null}}",
		"{type: Timeout, name: p, sources: [{match: {kuma.io/service: '*'}}], " +
			"destinations: [{match: {kuma.io/service: '*'}}], conf: {connectTimeout: 1s, http: null}}",
		"{type: MeshTimeout, name: p, labels: null, spec: {to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1s}}]}}",
		"{apiVersion: kuma.io/v1alpha1, kind: MeshTimeout, metadata: {name: p, namespace: kuma-system}, " +
			"spec: {targetRef: null, from: null, to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1s, http: null}}]}}",
		"{type: MeshProxyPatch, name: p, spec: {targetRef: {kind: Mesh}, default: {appendModifications: [{cluster: " +
			"{operation: Patch, jsonPatches: [{op: replace, path: /altStatName, value: null}]}}]}}}",
	} {
		if _, faults := kinds.Registry().Decode("", []byte(doc)); len(faults) > 0 {
			t.Errorf("%s: %v", doc, faults)
		}
	}
}

// TestRulesRoundTrip checks that newer forms are encoded as they were decoded.
func TestRulesRoundTrip(t *testing.T) {
	for _, spec := range []string{
		`"MeshTimeout","mesh":"default","name":"p","spec":{"targetRef":{"kind":"Dataplane","labels":{"a":"b"},"sectionName":"main"},"rules":[{"default":{"idleTimeout":"1m0s"}}]}}`,
		`"MeshFaultInjection","mesh":"default","name":"p","spec":{"rules":[{"matches":[{"spiffeID":{"type":"Prefix","value":"spiffe://default/"}}],"default":{"http":[]}}]}}`,
		`"MeshRateLimit","mesh":"default","name":"p","spec":{"rules":[{"matches":[{"spiffeID":{"type":"Exact","value":"spiffe://default/a"}}],"default":{"local":{"http":{"requestRate":{"num":5,"interval":"1s"}}}}}]}}`,
		`"MeshTrafficPermission","mesh":"default","name":"p","spec":{"rules":[{"default":{"deny":[{"spiffeID":{"type":"Exact","value":"spiffe://default/a"}}],"allow":[{"spiffeID":{"type":"Prefix","value":"spiffe://"}}]}}]}}`,
	} {
		doc := `{"type":` + spec
		rs, faults := kinds.Registry().Decode("", []byte(doc))
		if len(faults) > 0 {
			t.Errorf("%s: %v", doc, faults)
			continue
		}
		if out, err := resource.Marshal(rs[0]); err != nil || string(out) != doc {
			t.Errorf("%s is encoded as %s (%v)", doc, out, err)
		}
	}
}
