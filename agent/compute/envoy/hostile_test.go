package envoy_test

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// someConnections returns the connections that tests evaluate in hostile configs.
func someConnections() []*match.Conn {
	var out []*match.Conn
	for _, first := range []match.FirstBytes{match.PlainBytes, match.TLSHello, match.HTTP11, match.ServerFirst} {
		out = append(out, &match.Conn{Dst: netip.MustParseAddrPort("10.0.0.1:80"), Src: netip.MustParseAddrPort("10.0.0.2:1"),
			First: first, SNI: "a.com", ALPN: []string{"h2"}, Peer: &match.Peer{URIs: []string{"x"}}})
	}
	return append(out, &match.Conn{}, through("10.0.0.1:80", match.HTTP11, ""),
		&match.Conn{Dst: netip.MustParseAddrPort("[fe80::1%eth0]:1")})
}

// askAll checks a config and evaluates connections and requests in it.
func askAll(t interface{ Fatalf(string, ...any) }, prev, s *envoy.Snapshot) {
	for _, f := range check.Check(prev, s, nil) {
		if f.Type == "" || f.Message == "" || len(f.Message) > 4<<10 {
			t.Fatalf("a finding that says too little or too much: %+v", f)
		}
	}
	config := match.Open(s, nil)
	for _, c := range someConnections() {
		for _, trace := range []*match.Trace{config.Connection(c), config.Request(c,
			&match.Request{Host: "a.com:80", Path: "/%2e/../x?y", Headers: []match.Header{{Name: "x", Value: "y"}}})} {
			if trace.Reason == "" || len(trace.Steps) == 0 || len(trace.Steps) > 10_000 {
				t.Fatalf("%d steps, and %q", len(trace.Steps), trace.Reason)
			}
		}
	}
}

// FuzzWire checks resources with arbitrary bodies.
func FuzzWire(f *testing.F) {
	certificate, key := keyPair(f)
	for _, m := range newBase(certificate, key).messages() {
		r, err := envoy.NewResource(m)
		if err != nil {
			f.Fatal(err)
		}
		for k := range envoy.NumKinds {
			f.Add(byte(k), r.Body())
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		k := envoy.Kind(kind) % envoy.NumKinds
		s := &envoy.Snapshot{}
		s[k] = []*envoy.Resource{envoy.Raw(k, "x", "1", body), envoy.Raw(k, "y", "1", body)}
		askAll(t, s, s)
	})
}

// randomValues fills messages with random and extreme values. An Any gets a message of a random
// linked type. depth limits the nesting.
type randomValues struct {
	t     *rapid.T
	types []protoreflect.MessageType
	left  int // maximum number of further messages
}

func (r *randomValues) message(m protoreflect.Message, depth int) {
	if r.left--; r.left < 0 {
		return
	}
	fields := m.Descriptor().Fields()
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner := r.types[rapid.IntRange(0, len(r.types)-1).Draw(r.t, "type")].New()
		if depth > 0 {
			r.message(inner, depth-1)
		}
		if b, err := proto.Marshal(inner.Interface()); err == nil {
			a.TypeUrl, a.Value = "type.googleapis.com/"+string(inner.Descriptor().FullName()), b
		}
		return
	}
	n := min(fields.Len(), rapid.IntRange(0, 6).Draw(r.t, "fields"))
	for range n {
		f := fields.Get(rapid.IntRange(0, fields.Len()-1).Draw(r.t, "field"))
		switch {
		case f.IsMap():
			v := m.NewField(f)
			key := r.scalar(f.MapKey()).MapKey()
			if f.MapValue().Message() == nil {
				v.Map().Set(key, r.scalar(f.MapValue()))
			} else {
				e := v.Map().NewValue()
				if depth > 0 {
					r.message(e.Message(), depth-1)
				}
				v.Map().Set(key, e)
			}
			m.Set(f, v)
		case f.IsList():
			v := m.NewField(f)
			for range rapid.IntRange(1, 2).Draw(r.t, "elements") {
				if f.Message() == nil {
					v.List().Append(r.scalar(f))
					continue
				}
				e := v.List().NewElement()
				if depth > 0 {
					r.message(e.Message(), depth-1)
				}
				v.List().Append(e)
			}
			m.Set(f, v)
		case f.Message() != nil:
			e := m.NewField(f)
			if depth > 0 {
				r.message(e.Message(), depth-1)
			}
			m.Set(f, e)
		default:
			m.Set(f, r.scalar(f))
		}
	}
}

func (r *randomValues) scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	number := rapid.SampledFrom([]int64{0, 1, -1, 80, 65535, 65536, math.MaxInt32, math.MinInt32, math.MaxInt64,
		math.MinInt64}).Draw(r.t, "number")
	text := rapid.SampledFrom([]string{"", "a", "*", "*.a.com", "a.com", "10.0.0.1", "::1", "0.0.0.0", "x*y*", "%",
		"%REQ(x)%", "(", "(a|b)*", "/", "tls", "xdstp://a/b/c", "Host", ":path", "\x00"}).Draw(r.t, "text")
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(number != 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(number)))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(number))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(number))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(number)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(number))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(number))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(math.NaN())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text))
	}
	return protoreflect.ValueOfString(text)
}

// TestHostileMessages checks random messages that a patch could contain, and evaluates connections
// in them.
func TestHostileMessages(t *testing.T) {
	var types []protoreflect.MessageType
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		types = append(types, m)
		return true
	})
	slices.SortFunc(types, func(a, b protoreflect.MessageType) int {
		return strings.Compare(string(a.Descriptor().FullName()), string(b.Descriptor().FullName()))
	})
	kinds := []proto.Message{&tlsv3.Secret{}, &clusterv3.Cluster{}, &endpointv3.ClusterLoadAssignment{},
		&listenerv3.Listener{}, &routev3.RouteConfiguration{}}
	rapid.Check(t, func(t *rapid.T) {
		for range 4 {
			s := &envoy.Snapshot{}
			for k, empty := range kinds {
				m := empty.ProtoReflect().New()
				(&randomValues{t: t, types: types, left: 60}).message(m, 12)
				if l, ok := m.Interface().(*listenerv3.Listener); ok && rapid.Bool().Draw(t, "reachable") {
					l.Address, l.BindToPort = address("10.0.0.1", 80), nil
				}
				if body, err := proto.Marshal(m.Interface()); err == nil {
					s[k] = []*envoy.Resource{envoy.Raw(envoy.Kind(k), "a", "v", body)}
				}
			}
			askAll(t, nil, s)
		}
	})
}

// TestDeepMessages checks that deeply nested messages are rejected as by Envoy's protobuf library,
// or not evaluated.
func TestDeepMessages(t *testing.T) {
	p := &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
	for range 40 {
		p = &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: p}}
	}
	if got := match.EvaluateRBAC(allowing(nil, p), &match.Seen{}, nil, false, nil); got.Known {
		t.Errorf("forty times not: %+v", got)
	}
	deep := ports("1", "c")
	for range 60 {
		next := ports("2", "c")
		next.OnNoMatch = nested(deep)
		deep = next
	}
	l := passthrough(chain("c", "tcp"))
	l.FilterChainMatcher = deep
	askAll(t, nil, snapshot(t, l))
	for range 60 {
		next := ports("2", "c")
		next.OnNoMatch = nested(deep)
		deep = next
	}
	l.FilterChainMatcher = deep
	found := check.Check(nil, snapshot(t, l), nil)
	if len(found) == 0 || found[0].Severity != finding.Reject {
		t.Errorf("nested more than 100 deep: %+v", found)
	}
}

// TestManyCombinations checks that the combinations of repeated fields are bounded.
func TestManyCombinations(t *testing.T) {
	c := chain("c", "tls")
	for i := range 60 {
		c.FilterChainMatch.ServerNames = append(c.FilterChainMatch.ServerNames,
			string(rune('a'+i%26))+string(rune('a'+i/26))+".com")
		c.FilterChainMatch.PrefixRanges = append(c.FilterChainMatch.PrefixRanges,
			cidr(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String()))
		c.FilterChainMatch.SourcePrefixRanges = append(c.FilterChainMatch.SourcePrefixRanges,
			cidr(netip.AddrFrom4([4]byte{11, 0, 0, byte(i)}).String()))
		c.FilterChainMatch.SourcePorts = append(c.FilterChainMatch.SourcePorts, uint32(i+1))
	}
	askAll(t, nil, snapshot(t, passthrough(c)))
}

// TestUnreadableRanges checks that a chain with invalid ranges does not affect the other chains.
func TestUnreadableRanges(t *testing.T) {
	broken := func(words string) *listenerv3.FilterChain {
		c := chain("broken", words)
		c.FilterChainMatch.SourcePrefixRanges = []*corev3.CidrRange{{AddressPrefix: "x"}}
		return c
	}
	s := snapshot(t, passthrough(broken("tcp"), broken("tcp 10.0.0.0/8"), broken("tcp 0.0.0.0/0"), chain("one", "tls :80"),
		chain("two", "tls 10.0.0.1 :80")))
	askAll(t, nil, s)
	got := match.Open(s, nil).Connection(through("10.0.0.1:80", match.TLSHello, ""))
	if chosen(got, match.LevelChain) != "two" {
		t.Errorf("%+v", got)
	}
}
