package draft_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

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

// TestKeepsChains checks which changes of a listener drain connections. Envoy replaces filter
// chains one by one if nothing else changes, and the whole listener otherwise.
func TestKeepsChains(t *testing.T) {
	chain := func(name string) *listenerv3.FilterChain { return &listenerv3.FilterChain{Name: name} }
	listener := func(limit uint32, byDefault *listenerv3.FilterChain, chains ...*listenerv3.FilterChain) *draft.Resource {
		return resourceOf(t, "l", &listenerv3.Listener{Name: "l", FilterChains: chains, DefaultFilterChain: byDefault,
			PerConnectionBufferLimitBytes: wrapperspb.UInt32(limit)})
	}
	old := listener(1, nil, chain("a"), chain("b"))
	for name, c := range map[string]struct {
		old, next *draft.Resource
		keeps     bool
	}{
		"equal":                  {old, listener(1, nil, chain("a"), chain("b")), true},
		"an additional chain":    {old, listener(1, nil, chain("c"), chain("b"), chain("a")), true},
		"an additional default":  {old, listener(1, chain("c"), chain("a"), chain("b")), true},
		"a removed chain":        {old, listener(1, nil, chain("a")), false},
		"a changed chain":        {old, listener(1, nil, chain("a"), chain("c")), false},
		"another field":          {old, listener(2, nil, chain("a"), chain("b")), false},
		"an equal default":       {listener(1, chain("c")), listener(1, chain("c"), chain("a")), true},
		"a changed default":      {listener(1, chain("c")), listener(1, chain("d")), false},
		"a removed default":      {listener(1, chain("c")), listener(1, nil), false},
		"an unreadable listener": {old, draft.NewResource(draft.RankListener, "l", []byte{0xff}), false},
		"from an unreadable one": {draft.NewResource(draft.RankListener, "l", []byte{0xff}), old, false},
	} {
		if got := draft.KeepsChains(c.old, c.next); got != c.keeps {
			t.Errorf("%s: %v", name, got)
		}
	}
}
