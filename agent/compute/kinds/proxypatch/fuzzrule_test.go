package proxypatch_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	compressorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/compressor/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/base/fieldrule"
)

// FuzzEncoded checks arbitrary bytes as messages with many forms of rules. What is valid in wire
// form must be valid after it is decoded.
func FuzzEncoded(f *testing.F) {
	types := []proto.Message{&clusterv3.Cluster{}, &routev3.RouteConfiguration{}, &routev3.RouteAction{},
		&corev3.HealthCheck{}, &hcmv3.HttpConnectionManager{}, &compressorv3.Compressor{}}
	add := func(at int, m proto.Message) {
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(at), wire)
		f.Add(uint8(at), append(wire, wire...))
	}
	second := durationpb.New(1e9)
	add(0, &clusterv3.Cluster{Name: "a", ConnectTimeout: second, LbSubsetConfig: &clusterv3.Cluster_LbSubsetConfig{},
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}})
	add(1, &routev3.RouteConfiguration{Name: "a", InternalOnlyHeaders: []string{"a", "b"},
		VirtualHosts: []*routev3.VirtualHost{{Name: "a", Domains: []string{"*"}}}})
	add(2, &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "a"}, Timeout: second})
	add(3, &corev3.HealthCheck{Timeout: second, Interval: second, UnhealthyThreshold: wrapperspb.UInt32(1),
		HealthyThreshold: wrapperspb.UInt32(1), HealthChecker: &corev3.HealthCheck_TcpHealthCheck_{}})
	add(4, &hcmv3.HttpConnectionManager{StatPrefix: "a", RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{}})
	add(5, &compressorv3.Compressor{ResponseDirectionConfig: &compressorv3.Compressor_ResponseDirectionConfig{
		UncompressibleResponseCodes: []uint32{200, 201}}, CompressorLibrary: &corev3.TypedExtensionConfig{Name: "a"}})
	f.Add(uint8(4), []byte("J\x06B\x010000")) // a wrapper with another field
	f.Fuzz(func(t *testing.T, at uint8, wire []byte) {
		m := types[int(at)%len(types)].ProtoReflect().New().Interface()
		if !fieldrule.Valid(m.ProtoReflect().Descriptor(), wire) || proto.Unmarshal(wire, m) != nil {
			return
		}
		if err := fieldrule.First(m); err != nil {
			t.Fatalf("%x is valid in wire form, but: %v", wire, err)
		}
	})
}

// TestEncodedAllocations checks a message in wire form repeatedly.
func TestEncodedAllocations(t *testing.T) {
	c := &clusterv3.Cluster{Name: "backend", ConnectTimeout: durationpb.New(5e9),
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:              &clusterv3.Cluster_EdsClusterConfig{ServiceName: "backend"},
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(1 << 20),
		HealthChecks: []*corev3.HealthCheck{{Timeout: durationpb.New(1e9), Interval: durationpb.New(2e9),
			UnhealthyThreshold: wrapperspb.UInt32(1), HealthyThreshold: wrapperspb.UInt32(1),
			HealthChecker: &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: &corev3.HealthCheck_HttpHealthCheck{
				Path: "/healthy"}}}}}
	wire, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	d := c.ProtoReflect().Descriptor()
	if n := testing.AllocsPerRun(100, func() {
		if !fieldrule.Valid(d, wire) {
			t.Fatal("not valid")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
