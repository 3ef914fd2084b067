package attribute_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/attribute"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const blameMesh = `
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: back, networking: {address: 10.0.0.2, inbound: [{port: 80, tags: {kuma.io/service: back, kuma.io/protocol: http}}]}}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}],
  outbound: [{port: 20000, tags: {kuma.io/service: back}}, {port: 20001, tags: {kuma.io/service: other}}]}}
---
{type: MeshTimeout, mesh: default, name: slow, spec: {targetRef: {kind: Mesh}, to: [
  {targetRef: {kind: MeshService, name: other}, default: {idleTimeout: 7s}},
  {targetRef: {kind: MeshService, name: back}, default: {connectionTimeout: 3s, http: {requestTimeout: 9s}}}]}}
---
{type: MeshCircuitBreaker, mesh: default, name: limits, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: 7}}}]}}
---
{type: MeshTimeout, mesh: default, name: elsewhere, spec: {targetRef: {kind: MeshService, name: back}, to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1s}}]}}
`

const badPatch = `
---
{type: MeshProxyPatch, mesh: default, name: bad, spec: {targetRef: {kind: Mesh}, default: {appendModifications: [
  {cluster: {operation: Patch, match: {name: back}, value: "altStatName: x"}},
  {listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:20000'}, value: "perConnectionBufferLimitBytes: 1"}}]}}}
`

// fixture returns a mesh and the config of web in it.
func fixture(t *testing.T, docs string) (*generate.Mesh, *generate.Proxy) {
	t.Helper()
	rs, faults := kinds.Registry().Decode("", []byte(docs))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m, p
}

// TestFindBlameByVersion checks that the search generates the config for the version of the Envoy
// that rejected a resource.
func TestFindBlameByVersion(t *testing.T) {
	const log = "---\n{type: MeshAccessLog, mesh: default, name: log, spec: {targetRef: {kind: Mesh}, to: [{targetRef: " +
		"{kind: Mesh}, default: {backends: [{type: OpenTelemetry, openTelemetry: {endpoint: collector}}]}}]}}\n"
	m, _ := fixture(t, blameMesh+log)
	created, err := generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy,
		Build: &finding.Build{Version: finding.ParseVersion("1.40.0")}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	listener := draft.ResourceID{TypeURL: draft.TypeListener, Name: "outbound:127.0.0.1:20000"}
	q := attribute.BlameQuestion{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy, Last: created,
		Rejected: []draft.Rejection{{ID: listener, Resource: created.Resource(listener)}}}
	blame, err := attribute.FindBlame(q)
	if err != nil {
		t.Fatal(err)
	}
	if list := blame[listener]; len(list) == 0 || list[0].Name != "log" {
		t.Errorf("blamed are %+v, want MeshAccessLog/log first", list)
	}
}

// TestFindBlame checks the policies found for rejected resources.
func TestFindBlame(t *testing.T) {
	_, before := fixture(t, blameMesh)
	m, now := fixture(t, blameMesh+badPatch)
	listener := draft.ResourceID{TypeURL: draft.TypeListener, Name: "outbound:127.0.0.1:20000"}
	cluster := draft.ResourceID{TypeURL: draft.TypeCluster, Name: "back"}
	endpoints := draft.ResourceID{TypeURL: draft.TypeEndpoint, Name: "back"}
	revisions := map[string]uint64{"slow": 10, "limits": 11, "bad": 12}
	for name, test := range map[string]struct {
		id       draft.ResourceID
		since    uint64
		accepted bool
		stale    bool
		want     []string
	}{
		"the one that made the difference": {id: listener, since: 11, accepted: true, want: []string{
			"MeshProxyPatch/bad alone spec.default.appendModifications[1].listener: perConnectionBufferLimitBytes"}},
		"changed since, among others": {id: cluster, since: 10, want: []string{
			"MeshProxyPatch/bad changed spec.default.appendModifications[0].cluster: altStatName",
			"MeshCircuitBreaker/limits changed spec.to[0].default.connectionLimits.maxConnections: circuitBreakers"}},
		"nothing is known of what was before": {id: cluster, want: []string{
			"MeshProxyPatch/bad shapes spec.default.appendModifications[0].cluster: altStatName",
			"MeshCircuitBreaker/limits shapes spec.to[0].default.connectionLimits.maxConnections: circuitBreakers",
			"MeshTimeout/slow shapes spec.to[1].default.connectionTimeout: connectTimeout"}},
		"it was none of those that changed": {id: cluster, since: 12, want: []string{
			"MeshProxyPatch/bad shapes", "MeshCircuitBreaker/limits shapes", "MeshTimeout/slow shapes"}},
		"no policy":                {id: endpoints, since: 1},
		"not the present resource": {id: listener, stale: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := draft.Rejection{ID: test.id, Resource: now.Resource(test.id), Since: test.since}
			if test.accepted {
				r.Accepted = before.Resource(test.id)
			}
			if test.stale {
				r.Resource = before.Resource(test.id)
			}
			blame, err := attribute.FindBlame(attribute.BlameQuestion{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy,
				Rejected: []draft.Rejection{r},
				Revision: func(k resource.Key) uint64 { return revisions[k.Name] },
				Decode:   kinds.Registry().DecodeOne})
			if err != nil {
				t.Fatal(err)
			}
			list, found := blame[test.id]
			if found == test.stale {
				t.Errorf("found: %v", blame)
			}
			var got []string
			for _, b := range list {
				got = append(got, fmt.Sprintf("%s/%s %s %s: %s", b.Type, b.Name, b.Evidence, b.Field, strings.Join(b.Paths, " ")))
			}
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}
