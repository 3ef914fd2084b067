package draft_test

import (
	"fmt"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// leading returns a listener with a TCP proxy for each cluster.
func leading(t testing.TB, name string, clusters ...string) *draft.Resource {
	t.Helper()
	m := &listenerv3.Listener{Name: name}
	for _, c := range clusters {
		m.FilterChains = append(m.FilterChains, &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: anyOf(t, &tcpv3.TcpProxy{StatPrefix: "backend",
				ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: c}})}}}})
	}
	return resourceOf(t, name, m)
}

func eds(t testing.TB, name string) *draft.Resource {
	t.Helper()
	return resourceOf(t, name, &clusterv3.Cluster{Name: name, EdsClusterConfig: draft.EDS})
}

func namesOf(list []*draft.Resource) []string {
	out := []string{}
	for _, r := range list {
		out = append(out, r.Name)
	}
	return out
}

// TestRetainIsExact checks that a draining listener retains the clusters to which it refers, and
// not a cluster whose name is only a part of such a name.
func TestRetainIsExact(t *testing.T) {
	l := leading(t, "outbound:backend", "backend-v2")
	var had, current draft.Lists
	for _, name := range []string{"backend", "backend-v2", "v2"} {
		had[draft.RankCluster] = append(had[draft.RankCluster], eds(t, name))
		had[draft.RankEndpoint] = append(had[draft.RankEndpoint], draft.NewResource(draft.RankEndpoint, name, nil))
	}
	out := draft.Retain(&current, []*draft.Resource{l}, &had)
	for _, rank := range []int{draft.RankCluster, draft.RankEndpoint} {
		if got := namesOf(out[rank]); !slices.Equal(got, []string{"backend-v2"}) {
			t.Errorf("%s: %q are retained", draft.Types[rank], got)
		}
	}
	if len(out[draft.RankListener]) != 0 {
		t.Error("the listener itself is retained")
	}
	byHeader := resourceOf(t, "r", &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{
		Routes: []*routev3.Route{{Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_ClusterHeader{ClusterHeader: "x"}}}}}}}})
	out = draft.Substitute(&current, &draft.Lists{draft.RankRoute: {byHeader}}, &had)
	if got := namesOf(out[draft.RankCluster]); len(got) != 3 {
		t.Errorf("a route whose cluster is in a header may use any, but only %q are retained", got)
	}
}

// TestRetain compares the retained resources with a search through all pairs of resources.
func TestRetain(t *testing.T) {
	names := []string{"a", "ab", "b", "long-name-1", "long-name-2"}
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(what string) (out []string) {
			for _, name := range names {
				if rapid.Bool().Draw(rt, what+" has "+name) {
					out = append(out, name)
				}
			}
			return out
		}
		lists := func(what string) (out draft.Lists) {
			for _, name := range draw(what + " clusters") {
				out[draft.RankCluster] = append(out[draft.RankCluster], eds(t, name))
			}
			for _, name := range draw(what + " endpoints") {
				out[draft.RankEndpoint] = append(out[draft.RankEndpoint], draft.NewResource(draft.RankEndpoint, name, nil))
			}
			return out
		}
		current, had := lists("the config"), lists("the client")
		leads := draw("the listener")
		got := draft.Retain(&current, []*draft.Resource{leading(t, "l", leads...)}, &had)
		for _, name := range names {
			for _, rank := range []int{draft.RankCluster, draft.RankEndpoint} {
				want := draft.Find(current[rank], name)
				cluster := draft.Find(current[draft.RankCluster], name) == nil && draft.Find(had[draft.RankCluster], name) != nil
				if want == nil && slices.Contains(leads, name) && cluster {
					want = draft.Find(had[rank], name)
				}
				if r := draft.Find(got[rank], name); (r == nil) != (want == nil) || r != nil && r.Version != want.Version {
					rt.Fatalf("%s %s: %v, want %v", draft.Types[rank], name, r, want)
				}
			}
		}
	})
}

// BenchmarkRetain measures retaining the clusters and endpoints of 1,000 draining listeners.
func BenchmarkRetain(b *testing.B) {
	const n = 1000
	var had, current draft.Lists
	for i := range n {
		name := fmt.Sprintf("service-%d_namespace_svc_8080", i)
		had[draft.RankListener] = append(had[draft.RankListener],
			leading(b, fmt.Sprintf("outbound:10.0.%d.%d:80", i/256, i%256), name))
		had[draft.RankCluster] = append(had[draft.RankCluster], eds(b, name))
		had[draft.RankEndpoint] = append(had[draft.RankEndpoint], draft.NewResource(draft.RankEndpoint, name, []byte("x")))
	}
	for rank := range had {
		slices.SortFunc(had[rank], draft.ByName)
	}
	b.ReportAllocs()
	for b.Loop() {
		out := draft.Retain(&current, had[draft.RankListener], &had)
		if len(out[draft.RankCluster]) != n || len(out[draft.RankEndpoint]) != n {
			b.Fatal("something is missing")
		}
	}
}
