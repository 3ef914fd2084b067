package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/serve/rendered"
)

// referenceMesh is the mesh of the reference, with its 20 policies and 4 of them once more as
// shadow policies.
func referenceMesh(b *testing.B) *generate.Mesh {
	var doc strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&doc, format+"\n---\n", args...) }
	put("{type: Mesh, name: default}")
	var outbound []string
	for i := range 1000 {
		for e := range 2 {
			put("{type: Dataplane, name: svc-%d-%d, networking: {address: 10.%d.%d.%d, inbound: [{port: 8080, servicePort: "+
				"18080, tags: {kuma.io/service: svc-%d, kuma.io/protocol: http, version: v%d}}]}}", i, e, 1+e, i/250, i%250, i, e)
		}
		outbound = append(outbound, fmt.Sprintf("{port: %d, tags: {kuma.io/service: svc-%d}}", 20000+i, i))
	}
	put("{type: Dataplane, name: web, networking: {address: 10.9.0.1, inbound: [{port: 8080, "+
		"tags: {kuma.io/service: web, kuma.io/protocol: http}}], outbound: [%s]}}", strings.Join(outbound, ", "))
	for i := range 5 {
		to := "{kind: Mesh}"
		if i > 0 {
			to = fmt.Sprintf("{kind: MeshService, name: svc-%d}", i)
		}
		for _, shadow := range []bool{false, true} {
			prefix, labels := "", ""
			if shadow {
				if i > 0 {
					continue
				}
				prefix, labels = "a", "labels: {kuma.io/effect: shadow},"
			}
			put("{type: MeshTimeout, name: %st-%d, %s spec: {targetRef: {kind: Mesh}, to: [{targetRef: %s, "+
				"default: {connectionTimeout: %ds, http: {requestTimeout: 9s}}}]}}", prefix, i, labels, to, i+1+len(prefix))
			put("{type: MeshCircuitBreaker, name: %sc-%d, %s spec: {targetRef: {kind: Mesh}, to: [{targetRef: %s, "+
				"default: {connectionLimits: {maxConnections: %d}}}]}}", prefix, i, labels, to, i+1)
			put("{type: MeshAccessLog, name: %sl-%d, %s spec: {targetRef: {kind: Mesh}, to: [{targetRef: %s, "+
				"default: {backends: [{type: File, file: {path: /var/log/mesh/%d.log}}]}}]}}", prefix, i, labels, to, i)
			put("{type: MeshTrafficPermission, name: %sp-%d, %s spec: {targetRef: {kind: Mesh}, "+
				"from: [{targetRef: {kind: MeshSubset, tags: {version: v%d}}, default: {action: Allow}}]}}", prefix, i, labels, i)
		}
	}
	rs, faults := kinds.Registry().Decode("bench", []byte(doc.String()))
	if len(faults) > 0 {
		b.Fatal(faults[0])
	}
	m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// benchmarkConfig makes a document of the proxy "web" as bytes: by an agent that has shown it
// before, and by one that has not.
func benchmarkConfig(b *testing.B, o render.ConfigOptions) {
	m := referenceMesh(b)
	for _, name := range []string{"1000", "cold"} {
		b.Run(name, func(b *testing.B) {
			o.Rendered = &rendered.Cache{}
			b.ReportAllocs()
			if _, _, err := render.ProxyConfig(m, "web", nil, o); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if name == "cold" {
					o.Rendered = &rendered.Cache{}
				}
				c, _, err := render.ProxyConfig(m, "web", nil, o)
				if err != nil {
					b.Fatal(err)
				}
				out, err := httpapi.Marshal(c)
				if err != nil || o.Diff && len(c.Diff) == 0 || len(out) < 1<<20 {
					b.Fatalf("%d operations, %d bytes, %v", len(c.Diff), len(out), err)
				}
			}
		})
	}
}

// BenchmarkConfig makes the document of _config.
func BenchmarkConfig(b *testing.B) { benchmarkConfig(b, render.ConfigOptions{}) }

// BenchmarkShadowDiff makes the document of _config?shadow=true&include=diff.
func BenchmarkShadowDiff(b *testing.B) {
	benchmarkConfig(b, render.ConfigOptions{Shadow: true, Diff: true})
}
