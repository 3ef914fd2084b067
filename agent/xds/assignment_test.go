package xds

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/mesh"
)

// message builds what the encoder writes, as messages.
func message(cluster string, list []mesh.Endpoint, f Flavor) *endpointv3.ClusterLoadAssignment {
	out := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	for _, zone := range zonesOf(list) {
		g := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: zone}}
		for i := range list {
			if list[i].Zone == zone {
				g.LbEndpoints = append(g.LbEndpoints, lbEndpoint(&list[i]))
			}
		}
		if f == FlavorGRPC {
			g.LoadBalancingWeight = wrapperspb.UInt32(uint32(len(g.LbEndpoints)))
		}
		out.Endpoints = append(out.Endpoints, g)
	}
	return out
}

// TestAssignmentIsCanonical holds the encoder against the protobuf library: the same bytes, and valid by the rules of
// Envoy's API.
func TestAssignmentIsCanonical(t *testing.T) {
	var enc assignment // shared on purpose: no call may leave a trace in the next
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z0-9./:_-]{0,20}`)
		endpoint := rapid.Custom(func(t *rapid.T) mesh.Endpoint {
			return mesh.Endpoint{
				Address: rapid.StringMatching(`10\.[0-9]{1,2}\.0\.[0-9]{1,2}|fd00::[1-9a-f]`).Draw(t, "address"),
				Port:    rapid.Uint32Range(1, 65535).Draw(t, "port"),
				Zone:    rapid.SampledFrom([]string{"", "east", "west", "default"}).Draw(t, "zone"),
				Tags: rapid.MapOf(rapid.OneOf(text, rapid.SampledFrom([]string{"kuma.io/service", "kuma.io/zone", "version"})), text).
					Draw(t, "tags"),
			}
		})
		list := rapid.SliceOfN(endpoint, 0, 6).Draw(t, "endpoints")
		cluster := rapid.StringMatching(`[a-z_0-9-]{1,40}`).Draw(t, "cluster")
		flavor := rapid.SampledFrom([]Flavor{FlavorEnvoy, FlavorGRPC}).Draw(t, "flavor")

		m := message(cluster, list, flavor)
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := enc.encode(cluster, list, flavor)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%v (-want +got):\n%s", m, diff)
		}
		if err := m.ValidateAll(); err != nil {
			t.Fatal(err)
		}
	})
}
