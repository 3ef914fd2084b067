package ads

import (
	"runtime"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
)

// testStream returns a stream that reads only the requests that a test decodes.
func testStream() *adsStream {
	s := NewServer(rollout.New(rollout.Options{}), ServerOptions{Metadata: [][]string{{"text"}, {"map", "text"}}})
	st := &adsStream{srv: s, costs: make(chan int64, 4)}
	st.owner = s.ownerOf(st.peer)
	return st
}

// TestHostileMetadataIsNotExpanded: metadata with as many values as fit in 256 KiB is never decoded
// into messages.
func TestHostileMetadataIsNotExpanded(t *testing.T) {
	var entry, list []byte
	for range 100_000 {
		list = appendField(list, 1, nil)
	}
	entry = appendField(entry, fieldEntryKey, []byte("text"))
	entry = appendField(entry, fieldEntryValue, appendField(nil, fieldListValue, list))
	var metadata []byte
	metadata = appendField(metadata, fieldStructFields, entry)
	for range 10_000 {
		metadata = appendField(metadata, fieldStructFields, appendField(nil, fieldEntryKey, []byte{0}))
	}
	raw := appendField(nil, 1, appendField(appendField(nil, 1, []byte("default.web")), 3, metadata))
	st := testStream()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	in := incoming{st: st, first: true, msg: &discovery.DeltaDiscoveryRequest{}}
	in.decode(raw)
	runtime.ReadMemStats(&after)
	if in.err != nil {
		t.Fatal(in.err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 2<<20 {
		t.Errorf("%d bytes of metadata took %d bytes to decode", len(metadata), allocated)
	}
	fields := in.msg.(*discovery.DeltaDiscoveryRequest).GetNode().GetMetadata().GetFields()
	if _, null := fields["text"].GetKind().(*structpb.Value_NullValue); !null || len(fields) != 1 {
		t.Errorf("decoded: %v", fields)
	}
}

// FuzzRequest compares the decoded fields of a request with the complete message.
func FuzzRequest(f *testing.F) {
	node := &corev3.Node{Id: "default.web", UserAgentName: "envoy", ClientFeatures: []string{"f"},
		Locality: &corev3.Locality{Zone: "z"},
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"text": structpb.NewStringValue("type: Dataplane"), "other": structpb.NewNumberValue(1),
			"map": structpb.NewStructValue(&structpb.Struct{
				Fields: map[string]*structpb.Value{"text": structpb.NewStringValue("x"), "more": structpb.NewBoolValue(true)},
			}),
		}}}
	for _, m := range []proto.Message{
		&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: "t", ResourceNamesSubscribe: []string{"a", "b"},
			ResourceNamesUnsubscribe: []string{"c"},
			InitialResourceVersions:  map[string]string{"a": "1"}, ResponseNonce: "n"},
		&discovery.DiscoveryRequest{Node: node, TypeUrl: "t", ResourceNames: []string{"a"}, VersionInfo: "v",
			ResponseNonce: "n"},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, true)
		f.Add(raw, false)
	}
	f.Add(protowire.AppendTag(nil, 1, protowire.StartGroupType), true)
	st := testStream()
	f.Fuzz(func(t *testing.T, raw []byte, delta bool) {
		var got, whole proto.Message = &discovery.DiscoveryRequest{}, &discovery.DiscoveryRequest{}
		if delta {
			got, whole = &discovery.DeltaDiscoveryRequest{}, &discovery.DeltaDiscoveryRequest{}
		}
		in := incoming{st: st, first: true, msg: got}
		in.decode(raw)
		st.nextCost()
		err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, whole)
		if in.err != nil {
			if err == nil && len(raw) < 1<<10 {
				t.Fatalf("refused with %v", in.err)
			}
			return
		}
		if err != nil {
			return // the fault is in an unused field
		}
		texts := func(m proto.Message) (n *corev3.Node, text, inner string) {
			n = m.(interface{ GetNode() *corev3.Node }).GetNode()
			fields := n.GetMetadata().GetFields()
			return n, fields["text"].GetStringValue(), fields["map"].GetStructValue().GetFields()["text"].GetStringValue()
		}
		n1, text1, _ := texts(got)
		n2, text2, _ := texts(whole)
		if n1.GetId() != n2.GetId() || n1.GetUserAgentName() != n2.GetUserAgentName() ||
			n1.GetUserAgentVersion() != n2.GetUserAgentVersion() || text1 != text2 {
			t.Fatalf("decoded %v of %v", n1, n2)
		}
		for _, m := range []proto.Message{got, whole} {
			switch m := m.(type) {
			case *discovery.DeltaDiscoveryRequest:
				m.Node, m.ResourceLocatorsSubscribe, m.ResourceLocatorsUnsubscribe = nil, nil, nil
				if m.ErrorDetail != nil {
					m.ErrorDetail.Details = nil
				}
			case *discovery.DiscoveryRequest:
				m.Node, m.ResourceLocators = nil, nil
				if m.ErrorDetail != nil {
					m.ErrorDetail.Details = nil
				}
			}
		}
		if diff := cmp.Diff(whole, got, protocmp.Transform()); diff != "" {
			t.Fatal(diff)
		}
	})
}
