package inspect_test

import (
	"context"
	"testing"

	"github.com/nearside-mesh/nearside/agent/change"
	"github.com/nearside-mesh/nearside/agent/kinds"
	"github.com/nearside-mesh/nearside/agent/resource"
)

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

// diffFor is the diff of a comparison.
func diffFor(ctx context.Context, q change.Question) (*change.Diff, error) {
	d, _, err := change.Compare(ctx, ctx, q)
	return d, err
}
