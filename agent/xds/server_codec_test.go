package xds

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"
)

// TestSharedCodec reads back what the codec writes, and looks whether the bodies are the same memory.
func TestSharedCodec(t *testing.T) {
	codec := newSharedCodec()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z0-9:._-]{0,200}`)
		body := rapid.Custom(func(t *rapid.T) *anypb.Any {
			return &anypb.Any{TypeUrl: text.Draw(t, "url"), Value: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value")}
		})
		delta := &discovery.DeltaDiscoveryResponse{
			SystemVersionInfo: text.Draw(t, "version"), TypeUrl: text.Draw(t, "type"), Nonce: text.Draw(t, "nonce"),
			RemovedResources: rapid.SliceOf(text).Draw(t, "removed"), ControlPlane: &corev3.ControlPlane{Identifier: text.Draw(t, "id")},
		}
		sotw := &discovery.DiscoveryResponse{VersionInfo: delta.SystemVersionInfo, TypeUrl: delta.TypeUrl, Nonce: delta.Nonce}
		for range rapid.IntRange(0, 5).Draw(t, "resources") {
			a := body.Draw(t, "body")
			r := &discovery.Resource{Name: text.Draw(t, "name"), Version: text.Draw(t, "resource version"), Resource: a}
			if rapid.IntRange(0, 9).Draw(t, "without body") == 0 {
				r.Resource = nil
			}
			delta.Resources = append(delta.Resources, r)
			sotw.Resources = append(sotw.Resources, a)
		}
		for _, m := range []proto.Message{delta, sotw, &discovery.DeltaDiscoveryRequest{TypeUrl: "other"}} {
			b, err := codec.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			back := m.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(b.Materialize(), back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(m, back, protocmp.Transform()); diff != "" {
				t.Fatal(diff)
			}
		}
	})

	value := []byte("the body of a resource")
	b, err := codec.Marshal(&discovery.DiscoveryResponse{Resources: []*anypb.Any{{TypeUrl: "x", Value: value}}})
	if err != nil {
		t.Fatal(err)
	}
	shared := false
	for _, piece := range b {
		shared = shared || piece.Len() > 0 && &piece.ReadOnlyData()[0] == &value[0]
	}
	if !shared {
		t.Error("the body was copied")
	}
}
