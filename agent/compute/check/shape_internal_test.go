//lint:file-ignore SA1019 the table of shapes includes deprecated fields

package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"
)

// TestShapesHaveOneResult compares the result that is derived from a cached shape with the result
// of a full check. It uses random resources, most of them valid, and for each one several copies in
// which one name differs.
func TestShapesHaveOneResult(t *testing.T) {
	makers := map[envoy.Kind]func(*script) proto.Message{envoy.KindListener: drawListener, envoy.KindCluster: drawCluster,
		envoy.KindEndpoint: drawAssignment, envoy.KindRoute: drawRoutes}
	taken := 0
	types, drawn := shapeTypes(), map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		var warm cache
		compare := func(k envoy.Kind, m proto.Message) {
			body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				return // a message with invalid UTF-8 cannot be encoded
			}
			noteFields(types[k], m.ProtoReflect(), drawn)
			r := envoy.Raw(k, envoy.ResourceName(m), "", body)
			if rapid.IntRange(0, 19).Draw(t, "sent as another") == 0 {
				r.Name = "other"
			}
			var cold cache
			cold.begin()
			want := cold.examine(k, r)
			warm.begin()
			before := len(warm.shapes)
			got := warm.get(k, r)
			if len(warm.shapes) == before && warm.shapes[string(warm.shaper.key)] != nil {
				taken++
			}
			if d := cmp.Diff(want, got, cmp.AllowUnexported(checked{}, ref{}, bind{}, sized{}, sink{})); d != "" {
				t.Fatalf("%v: the resource by itself and its shape (-, +):\n%s", m, d)
			}
		}
		for range 8 {
			k := rapid.SampledFrom([]envoy.Kind{envoy.KindListener, envoy.KindCluster, envoy.KindEndpoint, envoy.KindRoute}).
				Draw(t, "kind")
			s := &script{t: t}
			compare(k, makers[k](s))
			for range 6 {
				changed := &script{t: t, replay: true, choices: s.choices, replace: rapid.SampledFrom(s.names).Draw(t, "changes")}
				compare(k, makers[k](changed))
			}
		}
	})
	if taken < 500 {
		t.Fatalf("only %d results were taken from shapes: the test says nothing", taken)
	}
	// The test covers a row of the table only if at least one resource sets the row's field.
	for k := range envoy.NumKinds {
		if types[k] == nil {
			continue
		}
		for _, path := range namedFields(types[k], k.New().ProtoReflect().Descriptor(), nil) {
			if !drawn[path] {
				t.Errorf("shapeTypes has %s, which no random resource sets: set it in a draw function, so that it is compared",
					path)
			}
		}
	}
}

// noteFields records which fields in the table of shapes the message sets.
func noteFields(s *shapeType, m protoreflect.Message, seen map[string]bool) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		f := s.field(fd.Number())
		if f.role == byShape {
			return true
		}
		seen[string(fd.FullName())] = true
		each := func(v protoreflect.Value) {
			switch f.role {
			case inside:
				noteFields(f.of, v.Message(), seen)
			case packedIn:
				if a, ok := v.Message().Interface().(*anypb.Any); ok && f.of.packed[a.TypeUrl] != nil {
					if inner, err := a.UnmarshalNew(); err == nil {
						noteFields(f.of.packed[a.TypeUrl], inner.ProtoReflect(), seen)
					}
				}
			}
		}
		if fd.IsList() {
			for i := range v.List().Len() {
				each(v.List().Get(i))
			}
		} else {
			each(v)
		}
		return true
	})
}

// namedFields returns the full names of the fields in the table of shapes.
func namedFields(s *shapeType, d protoreflect.MessageDescriptor, out []string) []string {
	for n, f := range s.fields {
		fd := d.Fields().ByNumber(protoreflect.FieldNumber(n))
		if f.role == byShape || fd == nil {
			continue
		}
		out = append(out, string(fd.FullName()))
		switch f.role {
		case inside:
			out = namedFields(f.of, fd.Message(), out)
		case packedIn:
			for url, p := range f.of.packed {
				if m, err := (&anypb.Any{TypeUrl: url}).UnmarshalNew(); err == nil {
					out = namedFields(p, m.ProtoReflect().Descriptor(), out)
				}
			}
		}
	}
	return out
}

// TestRepeatsHaveOneResult checks that the cache of filters does not change the result for a
// listener in which filters are equal or differ only in a name.
func TestRepeatsHaveOneResult(t *testing.T) {
	repeated := 0
	rapid.Check(t, func(t *rapid.T) {
		l := &listenerv3.Listener{Name: "l", Address: socketAddressOf(&script{t: t})}
		for range 3 {
			s := &script{t: t}
			first := drawListener(s).(*listenerv3.Listener)
			l.FilterChains = append(l.FilterChains, first.FilterChains...)
			for range 3 {
				next := first
				if rapid.Bool().Draw(t, "another name") {
					changed := &script{t: t, replay: true, choices: s.choices, replace: rapid.SampledFrom(s.names).Draw(t, "changes")}
					next = drawListener(changed).(*listenerv3.Listener)
				}
				l.FilterChains = append(l.FilterChains, proto.CloneOf(next).FilterChains...)
			}
		}
		for i, c := range l.FilterChains {
			c.FilterChainMatch = &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(uint32(i + 1))}
		}
		body, err := proto.Marshal(l)
		if err != nil {
			return // a message with invalid UTF-8 cannot be encoded
		}
		r := envoy.Raw(envoy.KindListener, "l", "", body)
		var without, with cache
		without.begin()
		without.repeats.count = maxRepeats
		want := without.examine(envoy.KindListener, r)
		with.begin()
		got := with.examine(envoy.KindListener, r)
		repeated += len(l.FilterChains) - with.repeats.count
		if d := cmp.Diff(want, got, cmp.AllowUnexported(checked{}, ref{}, bind{}, sized{}, sink{})); d != "" {
			t.Fatalf("%v: without and with a memory (-, +):\n%s", l, d)
		}
		with.begin()
		if with.repeats.known != nil {
			t.Fatal("the filters of one check are remembered in the next")
		}
	})
	if repeated < 300 {
		t.Fatalf("only %d filters were remembered: the test says nothing", repeated)
	}
}

// TestShapeTypesNameFields checks that every number in the table is a field of its message, and
// that the field is a string or a port.
func TestShapeTypesNameFields(t *testing.T) {
	seen := 0
	var walk func(d protoreflect.MessageDescriptor, s *shapeType)
	walk = func(d protoreflect.MessageDescriptor, s *shapeType) {
		for n, f := range s.fields {
			if f.role == byShape {
				continue
			}
			seen++
			fd := d.Fields().ByNumber(protoreflect.FieldNumber(n))
			if fd == nil {
				t.Errorf("%s has no field %d", d.FullName(), n)
				continue
			}
			switch f.role {
			case inside:
				walk(fd.Message(), f.of)
			case metadata:
				if fd.Message().FullName() != nameMetadata {
					t.Errorf("%s is no metadata", fd.FullName())
				}
			case packedIn:
				if fd.Message().FullName() != nameAny {
					t.Errorf("%s is no Any", fd.FullName())
				}
				for url, p := range f.of.packed {
					m, err := (&anypb.Any{TypeUrl: url}).UnmarshalNew()
					if err != nil {
						t.Fatal(err)
					}
					walk(m.ProtoReflect().Descriptor(), p)
				}
			case portNumber:
				if fd.Kind() != protoreflect.Uint32Kind {
					t.Errorf("%s is no number", fd.FullName())
				}
			default:
				if fd.Kind() != protoreflect.StringKind {
					t.Errorf("%s is no text", fd.FullName())
				}
			}
		}
	}
	types := shapeTypes()
	for k := range envoy.NumKinds {
		if types[k] != nil {
			walk(k.New().ProtoReflect().Descriptor(), types[k])
		}
	}
	if seen < 50 {
		t.Errorf("%d fields: some of the table's names are no fields", seen)
	}
}

// TestShapesForget checks that the table of shapes is bounded.
func TestShapesForget(t *testing.T) {
	var c cache
	for i := range 3 * maxShapes {
		c.begin()
		m := &clusterv3.Cluster{Name: "a", ConnectTimeout: durationpb.New(1e9),
			ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
			PerConnectionBufferLimitBytes: wrapperspb.UInt32(uint32(i + 1))}
		r, err := envoy.NewResource(m)
		if err != nil {
			t.Fatal(err)
		}
		if found := c.get(envoy.KindCluster, r).findings; len(found) > 0 {
			t.Fatal(found)
		}
	}
	if len(c.shapes) > maxShapes || len(c.shapes) == 0 {
		t.Errorf("%d shapes are kept", len(c.shapes))
	}
	if !slices.Contains(envoy.KindURLs[:], envoy.KindRoute.URL()) || fmt.Sprint(envoy.NumKinds.URL()) != "" {
		t.Error("the URLs of kinds are wrong")
	}
}

// TestShapesAreNotTooWide checks that a valid resource does not make an invalid resource with a
// similar shape valid.
func TestShapesAreNotTooWide(t *testing.T) {
	tls := func(sni string) proto.Message {
		return &clusterv3.Cluster{Name: "a", ConnectTimeout: durationpb.New(1e9),
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
			TransportSocket: &corev3.TransportSocket{Name: "tls",
				ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: mustPack(&tlsv3.UpstreamTlsContext{Sni: sni})}}}
	}
	noted := func(key string) proto.Message {
		return &endpointv3.ClusterLoadAssignment{ClusterName: "a",
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{key: {}}},
			}}}}}
	}
	dual := func(ip string) proto.Message {
		return &listenerv3.Listener{Name: "a",
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80}, Ipv4Compat: true,
			}}}, FilterChains: []*listenerv3.FilterChain{
				{Filters: []*listenerv3.Filter{{Name: "f", ConfigType: &listenerv3.Filter_TypedConfig{
					TypedConfig: mustPack(&tcpv3.TcpProxy{StatPrefix: "s", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "c"}}),
				}}}}}}
	}
	for name, c := range map[string]struct {
		kind      envoy.Kind
		good, bad proto.Message
	}{
		"a server name that is too long": {envoy.KindCluster, tls("b"), tls(strings.Repeat("a", 256))},
		"a metadata key that is empty":   {envoy.KindEndpoint, noted("a"), noted("")},
		"ipv4_compat of IPv4":            {envoy.KindListener, dual("::"), dual("10.0.0.1")},
	} {
		t.Run(name, func(t *testing.T) {
			var warm cache
			warm.begin()
			for i, m := range []proto.Message{c.good, c.bad} {
				r, err := envoy.NewResource(m)
				if err != nil {
					t.Fatal(err)
				}
				if found := warm.get(c.kind, r).findings; (len(found) > 0) != (i == 1) {
					t.Errorf("%v: findings %v", m, found)
				}
			}
		})
	}
}
