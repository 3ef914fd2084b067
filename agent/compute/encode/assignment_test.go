package encode_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/encode"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// message builds the same load assignment as the encoder, as a protobuf message.
func message(cluster string, list []mesh.Endpoint, l *policy.Localities,
	f node.Flavor) *endpointv3.ClusterLoadAssignment {
	out := messageOf(cluster, list, l, f)
	if !slices.ContainsFunc(list, func(e mesh.Endpoint) bool { return !e.Dead() }) {
		for _, g := range out.Endpoints {
			for _, e := range g.LbEndpoints {
				e.HealthStatus = corev3.HealthStatus_UNKNOWN // all endpoints are dead
			}
		}
	}
	return out
}

func messageOf(cluster string, list []mesh.Endpoint, l *policy.Localities,
	f node.Flavor) *endpointv3.ClusterLoadAssignment {
	out := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	if l != nil {
		return placedMessage(out, list, l)
	}
	zones := map[string]bool{}
	for i := range list {
		zones[list[i].Zone] = true
	}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		g := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: zone}}
		for i := range list {
			if list[i].Zone == zone {
				g.LbEndpoints = append(g.LbEndpoints, healthOf(&list[i]))
			}
		}
		if f == node.FlavorGRPC {
			g.LoadBalancingWeight = wrapperspb.UInt32(uint32(len(g.LbEndpoints)))
		}
		out.Endpoints = append(out.Endpoints, g)
	}
	return out
}

// placedMessage adds the locality groups to a load assignment. Unlike the encoder, it groups with a
// map.
func placedMessage(out *endpointv3.ClusterLoadAssignment, list []mesh.Endpoint,
	l *policy.Localities) *endpointv3.ClusterLoadAssignment {
	groups := map[policy.Locality]*endpointv3.LocalityLbEndpoints{}
	for i := range list {
		var labels map[string]string
		if r := list[i].Resource; r != nil {
			labels = r.Labels
		}
		p, ok := l.Assign(list[i].Zone, list[i].Tags, labels)
		if !ok {
			continue
		}
		if groups[p] == nil {
			groups[p] = &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: p.Zone, SubZone: p.SubZone},
				Priority: p.Priority}
			if p.Weight > 0 {
				groups[p].LoadBalancingWeight = wrapperspb.UInt32(p.Weight)
			}
		}
		groups[p].LbEndpoints = append(groups[p].LbEndpoints, healthOf(&list[i]))
	}
	for _, p := range slices.SortedFunc(maps.Keys(groups), policy.Locality.Compare) {
		out.Endpoints = append(out.Endpoints, groups[p])
	}
	if l.Overprovisioning > 0 {
		out.Policy = &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(l.Overprovisioning)}
	}
	return out
}

// healthOf returns an endpoint with its health status.
func healthOf(e *mesh.Endpoint) *endpointv3.LbEndpoint {
	out := &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: e.Address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: e.Port},
			}}},
		}},
		LoadBalancingWeight: wrapperspb.UInt32(1),
	}
	tags := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	e.EachTag(func(k, v string) { tags.Fields[k] = structpb.NewStringValue(v) })
	if len(tags.Fields) > 0 {
		out.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"envoy.lb": tags, "envoy.transport_socket_match": tags,
		}}
	}
	if labels := labelsOf(e); labels != nil {
		if out.Metadata == nil {
			out.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
		}
		out.Metadata.FilterMetadata["io.kuma.labels"] = labels
	}
	if e.Dead() {
		out.HealthStatus = corev3.HealthStatus_UNHEALTHY
	}
	return out
}

// labelsOf returns the metadata for the labels of a dataplane, or nil.
func labelsOf(e *mesh.Endpoint) *structpb.Struct {
	if e.Resource == nil || !mesh.Labeled(e.Resource) {
		return nil
	}
	dp, ok := e.Resource.Spec.(*resource.Dataplane)
	if !ok {
		return nil
	}
	all := map[string]string{"kuma.io/env": "universal", "kuma.io/mesh": e.Resource.Key.Mesh, "kuma.io/origin": "zone",
		"kuma.io/proxy-type": "sidecar", "kuma.io/zone": e.Zone}
	if dp.Networking.Gateway != nil {
		all["kuma.io/proxy-type"] = "gateway"
	}
	if e.Resource.Namespace() != "" {
		all["kuma.io/env"] = "kubernetes"
	}
	maps.Copy(all, e.Resource.Labels)
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for k, v := range all {
		if !strings.HasPrefix(k, "nearside.io/") {
			out.Fields[k] = structpb.NewStringValue(v)
		}
	}
	return out
}

// TestAssignmentIsCanonical checks that the encoder produces the same bytes as the protobuf
// library, and that they are valid by the rules of Envoy's API.
func TestAssignmentIsCanonical(t *testing.T) {
	var enc encode.Assignment // shared on purpose: a call must not affect the next one
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z0-9./:_-]{0,20}`)
		endpoint := rapid.Custom(func(t *rapid.T) mesh.Endpoint {
			return mesh.Endpoint{
				Address: rapid.StringMatching(`10\.[0-9]{1,2}\.0\.[0-9]{1,2}|fd00::[1-9a-f]`).Draw(t, "address"),
				Port:    rapid.Uint32Range(1, 65535).Draw(t, "port"),
				Zone:    rapid.SampledFrom([]string{"", "east", "west", "default"}).Draw(t, "zone"),
				Resource: rapid.SampledFrom([]*resource.Resource{nil, {},
					{Key: resource.Key{Mesh: "m"}, Spec: &resource.Dataplane{}, Labels: map[string]string{"app": "web"}},
					{Spec: &resource.Dataplane{Networking: resource.Networking{Gateway: &resource.Gateway{}}},
						Labels: map[string]string{"k8s.kuma.io/namespace": "ns", resource.LabelZone: "north"}},
					{Spec: &resource.Dataplane{}, Labels: map[string]string{resource.LabelLiveness: resource.LivenessDead}},
					{Spec: &resource.Dataplane{}, Labels: map[string]string{"app": "", resource.LabelLiveness: resource.LivenessDead}},
					{Labels: map[string]string{resource.LabelLiveness: resource.LivenessDead}},
					{Labels: map[string]string{resource.LabelLiveness: resource.LivenessNoAgent}}}).Draw(t, "resource"),
				Tags: rapid.MapOf(rapid.OneOf(text, rapid.SampledFrom([]string{"kuma.io/service", "kuma.io/zone", "version"})),
					text).
					Draw(t, "tags"),
			}
		})
		list := rapid.SliceOfN(endpoint, 0, 6).Draw(t, "endpoints")
		cluster := rapid.StringMatching(`[a-z_0-9-]{1,40}`).Draw(t, "cluster")
		flavor := rapid.SampledFrom([]node.Flavor{node.FlavorEnvoy, node.FlavorGRPC}).Draw(t, "flavor")

		var l *policy.Localities
		if flavor == node.FlavorEnvoy && rapid.Bool().Draw(t, "placed") {
			zones := rapid.SliceOfN(rapid.SampledFrom([]string{"east", "west", "default"}), 0, 2)
			l = policy.NewLocalities(policy.Localities{
				Zone: "east", LocalWeight: rapid.Uint32Range(0, 2).Draw(t, "weight"),
				Affinity: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) policy.Affinity {
					return policy.Affinity{Key: "version", Value: text.Draw(t, "value"),
						Weight: rapid.Uint32Range(1, 1000).Draw(t, "affinity")}
				}), 0, 2).Draw(t, "tags"),
				Failover: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) policy.Failover {
					return policy.Failover{Priority: rapid.Uint32Range(1, 127).Draw(t, "priority"), Zones: zones.Draw(t, "zones"),
						Except: rapid.Bool().Draw(t, "except")}
				}), 0, 2).Draw(t, "failover"),
				Overprovisioning: rapid.SampledFrom([]uint32{0, 140, 200}).Draw(t, "factor"),
			})
		}
		m := message(cluster, list, l, flavor)
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := enc.Encode(cluster, list, l, flavor)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%v (-want +got):\n%s", m, diff)
		}
		if err := m.ValidateAll(); err != nil {
			t.Fatal(err)
		}
	})
}
