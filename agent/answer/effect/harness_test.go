package effect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// decode returns the resources of YAML documents.
func decode(tb testing.TB, docs string) []*resource.Resource {
	tb.Helper()
	rs, faults := kinds.Registry().Decode("test.yaml", []byte(docs))
	if len(faults) > 0 {
		tb.Fatalf("%v\n%s", faults, docs)
	}
	return rs
}

// meshOf returns the mesh of resources.
func meshOf(tb testing.TB, rs []*resource.Resource, name string) *generate.Mesh {
	tb.Helper()
	m, err := generate.NewMesh(resource.NewSet(rs), name, mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// options are those of an Examiner without a practical limit.
func options() effect.Options {
	return effect.Options{Trials: 1 << 20, Decode: kinds.Registry().DecodeOne}
}

// bigMesh returns a mesh of n services with two instances each. Three of four speak http, the
// others tcp, grpc, and kafka. Its proxies web and web-1 reach all of them.
func bigMesh(tb testing.TB, n int, docs ...string) []*resource.Resource {
	tb.Helper()
	var b strings.Builder
	b.WriteString("{type: Mesh, name: default}\n")
	for i := range n {
		protocol := "http"
		if i%4 == 3 {
			protocol = []string{"tcp", "grpc", "kafka"}[i/4%3]
		}
		for e := range 2 {
			fmt.Fprintf(&b, "---\n{type: Dataplane, mesh: default, name: svc-%d-%d, networking: {address: 10.%d.%d.%d, "+
				"inbound: [{port: 8080, tags: {kuma.io/service: svc-%d, kuma.io/protocol: %s, version: v%d}}]}}\n",
				i, e, e+1, i/250, i%250, i, protocol, e)
		}
	}
	for i, name := range []string{"web", "web-1"} {
		fmt.Fprintf(&b, "---\n{type: Dataplane, mesh: default, name: %s, networking: {address: 10.9.0.%d, "+
			"inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}], "+
			"transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}}}\n", name, i+1)
	}
	for _, d := range docs {
		b.WriteString("---\n" + d + "\n")
	}
	return decode(tb, b.String())
}

// find returns a resource by kind and name.
func find(tb testing.TB, rs []*resource.Resource, kind, name string) *resource.Resource {
	tb.Helper()
	i := slices.IndexFunc(rs, func(r *resource.Resource) bool { return r.Kind == kind && r.Name == name })
	if i < 0 {
		tb.Fatalf("no %s %s", kind, name)
	}
	return rs[i]
}
