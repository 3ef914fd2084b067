package kindtest

import (
	"slices"
	"testing"

	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/kinds"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Generator reads resources in the universal format, adds the Mesh "default" where there is none, and returns what
// makes the config of a dataplane: for tests of what the cases do not show, such as the order of routes.
func Generator(t testing.TB, input []byte, dataplane string) func() *generate.Proxy {
	t.Helper()
	rs := resources(t, input)
	m, err := generate.NewMesh(resource.NewSet(rs), resource.DefaultMesh, mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return func() *generate.Proxy { return proxyOf(t, m, dataplane) }
}

func proxyOf(t testing.TB, m *generate.Mesh, dataplane string) *generate.Proxy {
	t.Helper()
	p, err := generate.Generate(generate.Input{Mesh: m, Name: dataplane, Flavor: node.FlavorEnvoy}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// resources reads the input of a case, and adds the Mesh "default" where there is none.
func resources(t testing.TB, input []byte) []*resource.Resource {
	t.Helper()
	rs, faults := kinds.Registry().Decode(inputFile, input)
	if len(faults) > 0 {
		t.Fatalf("%v", faults)
	}
	if !slices.ContainsFunc(rs, func(r *resource.Resource) bool { return r.Kind == "Mesh" }) {
		rs = append(rs, &resource.Resource{Key: resource.Key{Kind: "Mesh", Name: resource.DefaultMesh}, Spec: &resource.Mesh{}})
	}
	return rs
}
