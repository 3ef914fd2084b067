package draft_test

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// TestNameSet: a name counts as a whole string alone, wherever in the message that is.
func TestNameSet(t *testing.T) {
	long := strings.Repeat("long-", 80)
	for _, c := range []struct{ cluster, names, want string }{
		{"backend", "backend", "backend"},
		{"backend", "other backend", "backend"},
		{"backend", "back end backends", ""},
		{long, "x " + long, long},
		{long + "er", long, ""},
		{"backend", "", ""},
		{"b", "a b", "b"},
	} {
		typed, err := anypb.New(&tcpv3.TcpProxy{StatPrefix: "s",
			ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: c.cluster}})
		if err != nil {
			t.Fatal(err)
		}
		body, err := proto.Marshal(&listenerv3.Listener{Name: "l", FilterChains: []*listenerv3.FilterChain{{
			Filters: []*listenerv3.Filter{{Name: "f", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: typed}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		var set draft.NameSet
		for _, name := range strings.Fields(c.names) {
			set.Add(name)
		}
		if got, ok := set.FirstIn(draft.NewResource("l", body)); got != c.want || ok != (c.want != "") {
			t.Errorf("%q in %q: %q, want %q", c.names, c.cluster, got, c.want)
		}
	}
}

// FuzzNameSet: whatever the bytes, what is found is one of the names and stands in them.
func FuzzNameSet(f *testing.F) {
	body, err := proto.Marshal(&clusterv3.Cluster{Name: "a", AltStatName: "name"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body, "name")
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, "x")
	f.Fuzz(func(t *testing.T, body []byte, name string) {
		var set draft.NameSet
		set.Add(name)
		if got, ok := set.FirstIn(draft.NewResource("r", body)); ok &&
			(got != name || !strings.Contains(string(body), name)) {
			t.Errorf("%q for %q", got, name)
		}
	})
}
