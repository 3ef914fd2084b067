package offline_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestMigratedRoutes(t *testing.T) {
	property(t, "TrafficRoute", false, func(r *rand.Rand) []string {
		var out []string
		for i := range 1 + r.IntN(5) {
			// Routes lead from HTTP services to HTTP services or from TCP to TCP. Otherwise
			// requests would become connections.
			services := pick(r, []string{"web", "api"}, []string{"db", "queue"})
			to := pick(r, services...)
			conf := fmt.Sprintf(`{"destination":{"kuma.io/service":%q}}`, pick(r, "*", to, pick(r, services...)))
			if r.IntN(2) == 0 {
				conf = fmt.Sprintf(`{"split":[{"weight":%d,"destination":{"kuma.io/service":%q}},{"weight":%d,"destination":{"kuma.io/service":%q,"team":"a"}},{"weight":0,"destination":{"kuma.io/service":"rpc"}}]}`,
					1+r.IntN(9), pick(r, services...), 1+r.IntN(9), pick(r, services...))
			}
			out = append(out, fmt.Sprintf(
				`{"type":"TrafficRoute","name":"%c%d","sources":%s,"destinations":[{"match":{"kuma.io/service":%q}}],"conf":%s}`,
				'a'+rune(r.IntN(26)), i, selectors(r, true), to, conf))
		}
		return append(out, `{"type":"TrafficRoute","name":"all","sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[{"match":{"kuma.io/service":"*"}}],"conf":{"destination":{"kuma.io/service":"*"}}}`)
	}, func(t *testing.T, p *generate.Proxy) map[string]string {
		out := map[string]string{}
		for _, l := range listenersOf(t, p) {
			for _, f := range l.FilterChains[0].Filters {
				shares := map[string]uint32{}
				switch m := anyOf(t, f.GetTypedConfig()).(type) {
				case *tcpv3.TcpProxy:
					for _, w := range m.GetWeightedClusters().GetClusters() {
						shares[w.Name] += w.Weight
					}
					if c := m.GetCluster(); c != "" {
						shares[c] = 1
					}
				case *hcmv3.HttpConnectionManager:
					routes := m.GetRouteConfig().VirtualHosts[0].Routes
					to := routes[len(routes)-1].GetRoute()
					for _, w := range to.GetWeightedClusters().GetClusters() {
						shares[w.Name] += w.GetWeight().GetValue()
					}
					if c := to.GetCluster(); c != "" {
						shares[c] = 1
					}
				}
				out[l.Name] = fmt.Sprint(shares)
			}
		}
		return out
	})
}

func clustersOf(t *testing.T, p *generate.Proxy) []*clusterv3.Cluster {
	return resourcesOf(t, p, draft.TypeCluster, func() *clusterv3.Cluster { return &clusterv3.Cluster{} })
}

func listenersOf(t *testing.T, p *generate.Proxy) []*listenerv3.Listener {
	return resourcesOf(t, p, draft.TypeListener, func() *listenerv3.Listener { return &listenerv3.Listener{} })
}

func resourcesOf[M proto.Message](t *testing.T, p *generate.Proxy, typeURL string, empty func() M) []M {
	t.Helper()
	var out []M
	for _, r := range p.Sealed.Resources[draft.Rank(typeURL)] {
		m := empty()
		if err := proto.Unmarshal(r.Body(), m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func unpack(t *testing.T, a *anypb.Any, into proto.Message) {
	t.Helper()
	if err := a.UnmarshalTo(into); err != nil {
		t.Fatal(err)
	}
}

func anyOf(t *testing.T, a *anypb.Any) proto.Message {
	t.Helper()
	m, err := a.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m
}
