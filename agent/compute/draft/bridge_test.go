package draft_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// clusterOf returns a sealed cluster with the HTTP options o, or without options if o is nil.
func clusterOf(t *testing.T, o *httpv3.HttpProtocolOptions) *draft.Resource {
	t.Helper()
	c := &clusterv3.Cluster{Name: "c"}
	if o != nil {
		a, err := anypb.New(o)
		if err != nil {
			t.Fatal(err)
		}
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{draft.NameHTTPOptions: a}
	}
	body, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return draft.NewResource(draft.RankCluster, "c", body)
}

func optionsOf(t *testing.T, r *draft.Resource) *httpv3.HttpProtocolOptions {
	t.Helper()
	var c clusterv3.Cluster
	o := &httpv3.HttpProtocolOptions{}
	if err := proto.Unmarshal(r.Body(), &c); err != nil || c.Name != "c" {
		t.Fatal(err, c.Name)
	}
	if err := c.TypedExtensionProtocolOptions[draft.NameHTTPOptions].UnmarshalTo(o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestClustersOfOldFilterChains checks that only the protocol of a cluster changes, and that its
// other options stay.
func TestClustersOfOldFilterChains(t *testing.T) {
	http2 := proto.CloneOf(draft.HTTP2Options)
	http2.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(7)}
	for name, c := range map[string]*draft.Resource{"HTTP/2": clusterOf(t, http2), "nothing": clusterOf(t, nil)} {
		o := optionsOf(t, draft.FollowDownstream(c))
		if o.GetUseDownstreamProtocolConfig() == nil ||
			name == "HTTP/2" && !proto.Equal(o.CommonHttpProtocolOptions, http2.CommonHttpProtocolOptions) {
			t.Errorf("%s: %v does not follow the client", name, o)
		}
	}
	plain, two := clusterOf(t, nil), clusterOf(t, http2)
	if o := optionsOf(t, draft.SpeakAs(plain, two)); o.GetExplicitHttpConfig().GetHttp2ProtocolOptions() == nil ||
		o.CommonHttpProtocolOptions != nil {
		t.Errorf("%v does not speak as before", o)
	}
	if got := draft.SpeakAs(two, two); got != two {
		t.Error("another form although nothing differs")
	}
	if got := draft.SpeakAs(two, plain); got != two {
		t.Error("another form although nothing was said before")
	}
	broken := draft.NewResource(draft.RankCluster, "c", []byte{0xff})
	for _, got := range []*draft.Resource{draft.FollowDownstream(broken), draft.SpeakAs(broken, two)} {
		if got != broken {
			t.Error("what is no cluster is changed")
		}
	}
	if got := draft.Guard(broken, broken, nil); got != broken {
		t.Error("what are no routes is changed")
	}
}
