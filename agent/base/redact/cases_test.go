package redact_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/nearside-mesh/nearside/agent/base/redact"
)

func encoded(t testing.TB, list ...proto.Message) []byte {
	t.Helper()
	var b []byte
	for _, m := range list {
		piece, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, piece...)
	}
	return b
}

func packedAs(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestJSON checks the rendered JSON, also for messages with repeated fields. The parts are
// concatenated.
func TestJSON(t *testing.T) {
	filename := &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "f"}}
	dynamic := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "::",
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 1}}}}
	port := &corev3.Address{Address: &corev3.Address_SocketAddress{
		SocketAddress: &corev3.SocketAddress{PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 2}},
	}}
	pipe := &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "p"}}}
	metadata := func(k string, v *structpb.Value) *corev3.Metadata {
		return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"n": {Fields: map[string]*structpb.Value{k: v}}}}
	}
	for _, c := range []struct {
		name  string
		parts []proto.Message
		want  string
	}{
		{"empty", []proto.Message{&clusterv3.Cluster{}}, `{}`},
		{"declared order", []proto.Message{&clusterv3.Cluster{AltStatName: "b"}, &clusterv3.Cluster{Name: "a"}},
			`{"name":"a","altStatName":"b"}`},
		{"last value", []proto.Message{&clusterv3.Cluster{Name: "a"}, &clusterv3.Cluster{Name: "b"}}, `{"name":"b"}`},
		{"durations", []proto.Message{&clusterv3.Cluster{ConnectTimeout: durationpb.New(10_010_000_000),
			CleanupInterval: durationpb.New(0)}}, `{"connectTimeout":"10.010s","cleanupInterval":"0s"}`},
		{"negative duration", []proto.Message{durationpb.New(-1)}, `"-0.000000001s"`},
		{"duration in parts", []proto.Message{&durationpb.Duration{Seconds: 1}, &durationpb.Duration{Nanos: 5000}},
			`"1.000005s"`},
		{"time", []proto.Message{&timestamppb.Timestamp{Seconds: 1_700_000_000, Nanos: 120_000_000}},
			`"2023-11-14T22:13:20.120Z"`},
		{"wrappers", []proto.Message{&clusterv3.Cluster{PerConnectionBufferLimitBytes: wrapperspb.UInt32(0),
			WaitForWarmOnInit: wrapperspb.Bool(false)}}, `{"perConnectionBufferLimitBytes":0,"waitForWarmOnInit":false}`},
		{"enum and zero",
			[]proto.Message{&clusterv3.Cluster{LbPolicy: clusterv3.Cluster_RING_HASH, DnsLookupFamily: clusterv3.Cluster_AUTO}},
			`{"lbPolicy":"RING_HASH"}`},
		{"enum without name", []proto.Message{&clusterv3.Cluster{LbPolicy: 999}}, `{"lbPolicy":999}`},
		{"list in parts", []proto.Message{&listenerv3.FilterChainMatch{SourcePorts: []uint32{1, 2},
			ServerNames: []string{"a"}}, &listenerv3.FilterChainMatch{SourcePorts: []uint32{3}}},
			`{"sourcePorts":[1,2,3],"serverNames":["a"]}`},
		{"message in parts", []proto.Message{dynamic, port}, `{"socketAddress":{"address":"::","portValue":2}}`},
		{"other member of a oneof", []proto.Message{dynamic, pipe}, `{"pipe":{"path":"p"}}`},
		{"member that begins anew", []proto.Message{dynamic, pipe, port}, `{"socketAddress":{"portValue":2}}`},
		{"zero in a oneof", []proto.Message{filename, &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{}}},
			`{"inlineString":""}`},
		{"bytes",
			[]proto.Message{&corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte("\x00\xff?")}}},
			`{"inlineBytes":"AP8/"}`},
		{"64 bits", []proto.Message{wrapperspb.UInt64(1<<64 - 1)}, `"18446744073709551615"`},
		{"large number", []proto.Message{wrapperspb.Double(1e21)}, `1e+21`},
		{"entry that replaces", []proto.Message{metadata("a", structpb.NewBoolValue(true)),
			metadata("b", structpb.NewNullValue())}, `{"filterMetadata":{"n":{"b":null}}}`},
		{"sorted keys",
			[]proto.Message{&structpb.Struct{Fields: map[string]*structpb.Value{"b": structpb.NewNumberValue(0.5)}},
				&structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewListValue(&structpb.ListValue{}),
					"": structpb.NewStringValue("\"\\\n\x01<é")}}},
			`{"":"\"\\\n\u0001<é","a":[],"b":0.5}`},
		{"packed", []proto.Message{packedAs(t, filename)},
			`{"@type":"type.googleapis.com/envoy.config.core.v3.DataSource","filename":"f"}`},
		{"packed form of its own", []proto.Message{packedAs(t, durationpb.New(5))},
			`{"@type":"type.googleapis.com/google.protobuf.Duration","value":"0.000000005s"}`},
		{"packed twice", []proto.Message{packedAs(t, packedAs(t, &routev3.RouteConfiguration{}))},
			`{"@type":"type.googleapis.com/google.protobuf.Any","value":{"@type":"type.googleapis.com/envoy.config.route.v3.RouteConfiguration"}}`},
		{"packed nothing", []proto.Message{&anypb.Any{}}, `{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			mt, wire := c.parts[0].ProtoReflect().Type(), encoded(t, c.parts...)
			got, err := redact.New(nil).JSON(mt, wire)
			if err != nil || string(got) != c.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
			}
			compare(t, redact.New(nil), mt, wire, nil)
		})
	}
}

// TestRefuses checks the path and the reason in errors.
func TestRefuses(t *testing.T) {
	field := func(n protowire.Number, body ...byte) []byte { return join([]record{textRecord(n, body)}) }
	cluster := (&clusterv3.Cluster{}).ProtoReflect().Type()
	address := (&corev3.Address{}).ProtoReflect().Type()
	for _, c := range []struct {
		name string
		t    protoreflect.MessageType
		wire []byte
		want string
	}{
		{"cut off", cluster, []byte{0x0a, 5, 'a'}, "the bytes are not a valid message: cannot parse"},
		{"field number", cluster, []byte{0x00, 0}, "the bytes are not a valid message"},
		{"group that nobody began", cluster, []byte{0x0c}, "the bytes are not a valid message"},
		{"text", cluster, field(1, 0xff), "the bytes are not a valid message: string field contains invalid UTF-8"},
		{"text that is replaced", cluster, append(field(1, 0xff), field(1, 'a')...),
			"the bytes are not a valid message: string field contains invalid UTF-8"},
		{"member that is replaced", address, append(field(1, 0x12, 9), field(2)...), "the bytes are not a valid message"},
		{"packed values", (&listenerv3.FilterChainMatch{}).ProtoReflect().Type(), field(7, 1, 0x80),
			"the bytes are not a valid message"},
		{"duration", cluster, encoded(t, &clusterv3.Cluster{ConnectTimeout: &durationpb.Duration{Seconds: 1e12}}),
			"google.protobuf.Duration: seconds out of range 1000000000000"},
		{"signs", cluster, encoded(t, &clusterv3.Cluster{ConnectTimeout: &durationpb.Duration{Seconds: 1, Nanos: -1}}),
			"signs of seconds and nanos do not match"},
		{"type", cluster, encoded(t, &clusterv3.Cluster{TransportSocket: &corev3.TransportSocket{
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: "x/no.Such"}}}}),
			`transportSocket: typedConfig: the type "x/no.Such" is unknown`},
		{"no type", cluster, encoded(t, &clusterv3.Cluster{TransportSocket: &corev3.TransportSocket{
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: &anypb.Any{Value: []byte{1}}}}}),
			"type_url is not set"},
		{"no value", (&structpb.Value{}).ProtoReflect().Type(), nil, "none of the oneof fields is set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := redact.New(nil)
			if got, err := r.JSON(c.t, c.wire); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %s, %v, want an error with %q", got, err, c.want)
			}
			// The renderer remains usable after an error.
			if got, err := r.JSON(cluster, field(1, 'a')); err != nil || string(got) != `{"name":"a"}` {
				t.Errorf("after that: %s, %v", got, err)
			}
		})
	}
}

// TestDepth nests messages up to the limit and one level deeper, in each possible way.
func TestDepth(t *testing.T) {
	list := (&structpb.ListValue{}).ProtoReflect().Type()
	anyType := (&anypb.Any{}).ProtoReflect().Type()
	nest := func(levels int, wrap func([]byte) []byte) []byte {
		var b []byte
		for range levels {
			b = wrap(b)
		}
		return b
	}
	inList := func(b []byte) []byte { return join([]record{textRecord(1, join([]record{textRecord(6, b)}))}) }
	inAny := func(b []byte) []byte {
		return join([]record{textRecord(1, []byte("/google.protobuf.Any")), textRecord(2, b)})
	}
	// Nesting in a replaced member counts too.
	lost := func(b []byte) []byte {
		return join([]record{textRecord(1, join([]record{textRecord(6, b), {4, protowire.VarintType, []byte{1}}}))})
	}
	for _, c := range []struct {
		name    string
		t       protoreflect.MessageType
		good, x []byte
	}{
		{"list", list, nest(49, inList), nest(50, inList)}, // each level has a list and a value; the innermost is a list
		{"any", anyType, nest(99, inAny), nest(100, inAny)},
		{"lost", list, lost(nest(48, inList)), lost(nest(49, inList))},
		{"hostile", list, nil, nest(2000, inList)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := redact.New(nil)
			if out, err := r.JSON(c.t, c.good); err != nil {
				t.Errorf("within the limit: %v", err)
			} else if c.name == "any" && strings.Count(string(out), "@type") != 99 {
				t.Errorf("got %s", out)
			}
			if _, err := r.JSON(c.t, c.x); err == nil || !strings.Contains(err.Error(), tooDeep) {
				t.Errorf("beyond the limit: %v", err)
			}
		})
	}
}
