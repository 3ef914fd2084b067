package generate_test

import (
	"bytes"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestVersionsOfEnvoy checks that a config depends on the Envoy version only where versions differ,
// and is reused otherwise. An Envoy of unknown version gets config that all versions accept.
func TestVersionsOfEnvoy(t *testing.T) {
	const docs = `
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 10001, tags: {kuma.io/service: back}}]}}
---
{type: Dataplane, mesh: default, name: back, networking: {address: 10.0.0.2, inbound: [{port: 80, tags: {kuma.io/service: back}}]}}
---
{type: MeshAccessLog, mesh: default, name: log, spec: {targetRef: {kind: MeshService, name: web}, to: [{targetRef: {kind: Mesh}, default: {backends: [{type: OpenTelemetry, openTelemetry: {endpoint: collector}}]}}]}}
`
	m, memo := meshOf(t, decoded(t, docs), nil), generate.NewMemo()
	build := func(version string) *finding.Build {
		if version == "" {
			return nil
		}
		return &finding.Build{Version: finding.ParseVersion(version)}
	}
	for _, name := range []string{"web", "back"} {
		var prev *generate.Proxy
		for _, x := range []struct {
			version string
			newer   bool
		}{
			{"", false}, {"1.36.2", false}, {"1.36.9", false}, {"1.37.0", true}, {"1.40.0-dev", true}, {"1.40.0-dev", true},
			{"1.36.2", false}, {"2.0.0", true}, {"", false},
		} {
			in := generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy, Build: build(x.version)}
			p, err := generate.Generate(in, prev, memo)
			if err != nil {
				t.Fatal(err)
			}
			fresh, err := generate.Generate(in, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if p.Sealed.Versions != fresh.Sealed.Versions || p.Build != in.Build {
				t.Errorf("%s on %q: an earlier config shows in it", name, x.version)
			}
			if prev != nil && p.Sealed != prev.Sealed && (name == "back" || p.Sealed.Versions == prev.Sealed.Versions) {
				t.Errorf("%s on %q: it is made anew, though nothing in it differs", name, x.version)
			}
			prev = p
			if r := p.Resource(draft.ResourceID{TypeURL: draft.TypeListener, Name: "outbound:127.0.0.1:10001"}); name == "web" {
				// grpc_service and log_name are fields 9 and 10.
				if newer := bytes.Contains(r.Body(), []byte("\x52\x0dMeshAccessLog")); newer != x.newer {
					t.Errorf("on %q: the newer fields of OpenTelemetry: %v, want %v", x.version, newer, x.newer)
				}
			}
		}
	}
}
