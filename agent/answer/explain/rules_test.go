package explain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
)

// TestInboundRules checks the form in which Kuma 2.14 lists entries of rules: one for each match,
// the most specific first, then weaker policies first, with items of from for kinds in which these
// act as rules. Only from is in fromRules; mergedRules has the result.
func TestInboundRules(t *testing.T) {
	m := meshOf(t, `{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{name: main, port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
---
{type: MeshTimeout, mesh: default, name: a, spec: {from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 3s}}]}}
---
type: MeshTimeout
mesh: default
name: b
spec:
  targetRef: {kind: Dataplane, name: web}
  rules:
  - default: {idleTimeout: 5s}
  - matches:
    - {sni: {type: Exact, value: web.example}}
    - {spiffeID: {type: Prefix, value: 'spiffe://default/c'}}
    - {spiffeID: {type: Exact, value: 'spiffe://default/client'}}
    default: {http: {requestTimeout: 1s}}
---
type: MeshFaultInjection
mesh: default
name: c
spec:
  targetRef: {kind: Dataplane, name: web}
  rules:
  - default: {http: [{abort: {httpStatus: 500, percentage: 1}}]}
  - matches: [{spiffeID: {type: Exact, value: 'spiffe://default/client'}}]
    default: {http: [{abort: {httpStatus: 501, percentage: 1}}]}
`)
	doc, _, err := explain.ProxyRules(m, "web", explain.RulesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	add := func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) }
	for i := range doc.Rules {
		k := &doc.Rules[i]
		for _, in := range k.InboundRules {
			for _, r := range in.Rules {
				match := "all"
				if r.Match != nil {
					match = r.Match.String()
				}
				add("%s %s: %s[%d] %s %s", k.Type, in.Inbound.Name, r.Origin[0].ResourceMeta.Name, r.Origin[0].RuleIndex, match,
					r.Conf[0])
			}
		}
		for _, in := range k.FromRules {
			for _, r := range in.Rules {
				add("%s from %s", k.Type, r.Conf)
			}
		}
		for _, in := range k.MergedRules {
			for _, r := range in.Rules {
				if r.Match == nil { // those with a match are tested with the config
					add("%s merged %s", k.Type, r.Conf)
				}
			}
		}
	}
	want := strings.Split(`MeshFaultInjection main: c[1] spiffe://default/client {"http":[{"abort":{"httpStatus":501,"percentage":1}}]}
MeshFaultInjection main: c[0] all {"http":[{"abort":{"httpStatus":500,"percentage":1}}]}
MeshTimeout main: b[1] spiffe://default/client {"http":{"requestTimeout":"1s"}}
MeshTimeout main: b[1] spiffe://default/c* {"http":{"requestTimeout":"1s"}}
MeshTimeout main: b[1] SNI web.example {"http":{"requestTimeout":"1s"}}
MeshTimeout main: a[0] all {"idleTimeout":"3s"}
MeshTimeout main: b[0] all {"idleTimeout":"5s"}
MeshTimeout from {"idleTimeout":"3s"}
MeshTimeout merged {"idleTimeout":"5s"}`, "\n")
	if d := cmp.Diff(want, got); d != "" {
		t.Error("inboundRules, fromRules, or mergedRules differ:\n" + d)
	}
}
