package generate_test

import (
	"slices"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestLocalitiesStay checks that the locality settings of a plugin apply to endpoints that are
// added later, even if the plugins do not run again. It also checks that proxies with different
// settings do not share load assignments in the memo.
func TestLocalitiesStay(t *testing.T) {
	backend := func(name, address, zone string) *resource.Resource {
		r := dataplane(name, address,
			resource.Inbound{Port: 80, Tags: map[string]string{"kuma.io/service": "backend", "kuma.io/zone": zone}}, nil)
		r.Digest = resource.Digest{address[len(address)-1]}
		return r
	}
	rs := []*resource.Resource{
		{Key: resource.Key{Kind: "Mesh", Name: "default"}, Spec: &resource.Mesh{}},
		dataplane("web", "10.0.0.1", resource.Inbound{Port: 80, Tags: map[string]string{"kuma.io/service": "web"}},
			[]resource.Outbound{{Port: 1000, Tags: map[string]string{"kuma.io/service": "backend"}}}),
		backend("b-1", "10.0.1.1", "east"),
	}
	wish := policy.NewLocalities(policy.Localities{Zone: "east",
		Failover: []policy.Failover{{Priority: 7, Zones: []string{"west"}}}})
	applied := 0
	plugin := policy.Plugin{Apply: func(c *policy.Context, d *draft.Draft) {
		applied++
		for _, cluster := range d.Clusters {
			if cluster.Kind == draft.OutboundCluster {
				c.Host.Localities(cluster.Message.Name, wish)
			}
		}
	}}
	memo := generate.NewMemo()
	both := func(rs []*resource.Resource, plugins []policy.Plugin, prev *generate.Mesh,
		prevProxy *generate.Proxy) (*generate.Mesh, *generate.Proxy) {
		t.Helper()
		m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{Zone: "east"}, plugins,
			policy.Options{}, prev)
		if err != nil {
			t.Fatal(err)
		}
		p, err := generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, prevProxy, memo)
		if err != nil {
			t.Fatal(err)
		}
		return m, p
	}
	priorities := func(p *generate.Proxy) []uint32 {
		t.Helper()
		var out []uint32
		for _, r := range p.Sealed.Resources[draft.Rank(draft.TypeEndpoint)] {
			var a endpointv3.ClusterLoadAssignment
			if err := proto.Unmarshal(r.Body(), &a); err != nil {
				t.Fatal(err)
			}
			for _, g := range a.Endpoints {
				out = append(out, g.Priority)
			}
		}
		return out
	}
	m, p := both(rs, []policy.Plugin{plugin}, nil, nil)
	if got := priorities(p); !slices.Equal(got, []uint32{0}) {
		t.Errorf("at first: priorities %v", got)
	}
	before := applied
	more := append(slices.Clone(rs), backend("b-2", "10.0.1.2", "west"), backend("b-3", "10.0.1.3", "north"))
	_, next := both(more, []policy.Plugin{plugin}, m, p)
	if next.Sealed == p.Sealed || applied != before {
		t.Fatalf("same config: %v, plugins asked again: %v; want endpoints alone made anew",
			next.Sealed == p.Sealed, applied != before)
	}
	if got := priorities(next); !slices.Equal(got, []uint32{0, 7}) {
		t.Errorf("with new endpoints: priorities %v", got)
	}
	_, plain := both(more, nil, nil, nil)
	if got := priorities(plain); !slices.Equal(got, []uint32{0, 0, 0}) {
		t.Errorf("without the plugin: priorities %v", got)
	}
}
