package ads

import (
	"fmt"
	"runtime"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// TestSharedCodec decodes the encoded responses, of the first client and of clients that share the
// bytes.
func TestSharedCodec(t *testing.T) {
	codec := newSharedCodec()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z0-9:._-]{0,200}`)
		rank := rapid.IntRange(0, draft.NumTypes-1).Draw(t, "rank")
		delta := &discovery.DeltaDiscoveryResponse{
			SystemVersionInfo: text.Draw(t, "version"), TypeUrl: text.Draw(t, "type"), Nonce: text.Draw(t, "nonce"),
			RemovedResources: rapid.SliceOf(text).Draw(t, "removed"),
			ControlPlane:     &corev3.ControlPlane{Identifier: text.Draw(t, "id")},
		}
		sotw := &discovery.DiscoveryResponse{VersionInfo: delta.SystemVersionInfo, TypeUrl: delta.TypeUrl, Nonce: delta.Nonce}
		rest := map[bool]proto.Message{true: proto.Clone(delta), false: proto.Clone(sotw)}
		var list []*draft.Resource
		for range rapid.IntRange(0, 5).Draw(t, "resources") {
			r := envoy.Raw(envoy.Kind(rank), text.Draw(t, "name"), text.Draw(t, "resource version"),
				rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "body"))
			a := &anypb.Any{TypeUrl: draft.Types[rank], Value: r.Body()}
			list = append(list, r)
			delta.Resources = append(delta.Resources, &discovery.Resource{Name: r.Name, Version: r.Version, Resource: a})
			sotw.Resources = append(sotw.Resources, a)
		}
		var shared encodings
		for client := range 3 {
			for isDelta, want := range map[bool]proto.Message{true: delta, false: sotw} {
				resources, kept := shared.of(isDelta, rank, list)
				b, err := codec.Marshal(&outgoing{rest[isDelta], resources})
				if err != nil {
					t.Fatal(err)
				}
				back := want.ProtoReflect().New().Interface()
				if err := proto.Unmarshal(b.Materialize(), back); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, back, protocmp.Transform()); diff != "" {
					t.Fatalf("client %d: %s", client, diff)
				}
				runtime.KeepAlive(kept)
			}
		}
	})
	request := &discovery.DeltaDiscoveryRequest{TypeUrl: "other"}
	b, err := codec.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	back := &discovery.DeltaDiscoveryRequest{}
	if err := proto.Unmarshal(b.Materialize(), back); err != nil || !proto.Equal(request, back) {
		t.Errorf("another message: %v, %v", back, err)
	}
}

// TestEncodedOnce checks that a list for a single client uses the memory of its resources, and that
// all further clients share one encoding. Secrets are never copied.
func TestEncodedOnce(t *testing.T) {
	var shared encodings
	var list []*draft.Resource
	for i := range 3 {
		list = append(list, envoy.Raw(envoy.KindCluster, fmt.Sprint("r", i), "1", []byte("the body of a resource")))
	}
	body := &list[0].Body()[0]
	first, kept := shared.of(true, draft.RankCluster, list)
	if len(first) != 6 || &first[1].ReadOnlyData()[0] != body {
		t.Errorf("the body was copied for one client: %d pieces", len(first))
	}
	sameList := list[:3:3]
	second, _ := shared.of(true, draft.RankCluster, append([]*draft.Resource(nil), sameList...))
	third, _ := shared.of(true, draft.RankCluster, list)
	if len(second) != 1 || &second[0].ReadOnlyData()[0] != &third[0].ReadOnlyData()[0] {
		t.Errorf("two clients have %d and %d pieces, not one that is the same", len(second), len(third))
	}
	other, _ := shared.of(true, draft.RankCluster, list[:2])
	if len(other) != 4 {
		t.Errorf("another list has %d pieces", len(other))
	}
	runtime.KeepAlive(kept)
	for range 2 {
		secrets, _ := shared.of(true, draft.RankSecret, list)
		if len(secrets) != 6 || &secrets[1].ReadOnlyData()[0] != body {
			t.Errorf("secrets were copied: %d pieces", len(secrets))
		}
	}
}
