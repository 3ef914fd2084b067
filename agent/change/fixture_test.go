package change_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/change"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/kinds"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

func newMesh(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
	return generate.NewMesh(set, name, mesh.Options{}, kinds.Plugins(), policy.Options{}, prev)
}

const services = `
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: svc-1, networking: {address: 10.1.0.1, inbound: [{port: 8080, tags: {kuma.io/service: svc-1, kuma.io/protocol: http, version: v1}}]}}
---
{type: Dataplane, mesh: default, name: svc-2, networking: {address: 10.1.0.2, inbound: [{port: 8080, tags: {kuma.io/service: svc-2, kuma.io/protocol: tcp}}]}}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 10.1.0.3, inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}], outbound: [{port: 10001, tags: {kuma.io/service: svc-1}}, {port: 10002, tags: {kuma.io/service: svc-2}}, {port: 10003, tags: {kuma.io/service: svc-3}}]}}
`

func decode(tb testing.TB, docs string) []*resource.Resource {
	tb.Helper()
	rs, faults := kinds.Registry().Decode("", []byte(docs))
	if len(faults) > 0 {
		tb.Fatal(faults)
	}
	return rs
}

// slow is a MeshTimeout t1 for all services; edits are pairs of old and new text.
func slow(d string, edits ...string) string {
	return strings.NewReplacer(append(edits, "DURATION", d)...).Replace(
		"{type: MeshTimeout, mesh: default, name: t1, spec: {to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: DURATION}}]}}")
}

// breaking is a policy that gives the inbound of web an access log with a command that Envoy does not know.
func breaking(name, target string) string {
	return fmt.Sprintf(`
type: MeshProxyPatch
mesh: default
name: %s
spec:
  targetRef: %s
  default:
    appendModifications:
    - cluster: {operation: Add, value: "{name: extra-%s, connectTimeout: 5s, type: STATIC}"}
    - listener:
        operation: Patch
        match: {name: "inbound:10.1.0.3:8080"}
        value: |
          accessLog:
          - name: envoy.access_loggers.file
            typedConfig:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: /tmp/x.log
              logFormat: {textFormatSource: {inlineString: "%%LATE%%"}}
`, name, target, name)
}

// diffFor is the diff of a comparison.
func diffFor(ctx context.Context, q change.Question) (*change.Diff, error) {
	d, _, err := change.Compare(ctx, ctx, q)
	return d, err
}
