package traffictest_test

import (
	"context"
	"errors"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/envoy"
)

// subscriber keeps the config of a proxy over one delta ADS stream, as Envoy does: clusters and listeners are all asked
// for, endpoints by the clusters that want them, routes by the listeners. A response is acknowledged when it is in force.
type subscriber struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	has    [envoy.NumKinds]map[string]*envoy.Resource
	asked  map[envoy.Kind][]string // endpoints and routes, sorted
	take   func(*envoy.Snapshot) error
}

func subscribe(ctx context.Context, conn *grpc.ClientConn, node *core.Node, take func(*envoy.Snapshot) error) (*subscriber, error) {
	s := &subscriber{take: take, asked: map[envoy.Kind][]string{}}
	for k := range s.has {
		s.has[k] = map[string]*envoy.Resource{}
	}
	var err error
	if s.stream, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx); err != nil {
		return nil, err
	}
	for _, k := range []envoy.Kind{envoy.KindCluster, envoy.KindListener} {
		if err := s.stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: k.URL(), ResourceNamesSubscribe: []string{"*"}}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// run takes responses until the stream ends.
func (s *subscriber) run() error {
	for {
		r, err := s.stream.Recv()
		if err != nil {
			return err
		}
		for k := range envoy.NumKinds {
			if k.URL() != r.TypeUrl {
				continue
			}
			for _, x := range r.Resources {
				s.has[k][x.Name] = &envoy.Resource{Name: x.Name, Version: x.Version, Body: x.Resource.GetValue()}
			}
			for _, name := range r.RemovedResources {
				delete(s.has[k], name)
			}
		}
		if err := s.take(s.snapshot()); err != nil {
			return err
		}
		if err := s.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}); err != nil {
			return err
		}
		if err := s.askForOthers(); err != nil {
			return err
		}
	}
}

func (s *subscriber) snapshot() *envoy.Snapshot {
	out := &envoy.Snapshot{}
	for k, list := range s.has {
		for _, r := range list {
			out[k] = append(out[k], r)
		}
		slices.SortFunc(out[k], func(a, b *envoy.Resource) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}

// askForOthers subscribes to the endpoints of clusters and the routes of listeners that have become known, and no more to
// those of others.
func (s *subscriber) askForOthers() error {
	var clusters, routes []string
	for name, r := range s.has[envoy.KindCluster] {
		var c clusterv3.Cluster
		if proto.Unmarshal(r.Body, &c) == nil && c.GetType() == clusterv3.Cluster_EDS {
			clusters = append(clusters, name)
		}
	}
	for _, r := range s.has[envoy.KindListener] {
		var l listenerv3.Listener
		if proto.Unmarshal(r.Body, &l) == nil {
			routes = append(routes, routesOf(&l)...)
		}
	}
	return errors.Join(s.ask(envoy.KindEndpoint, clusters), s.ask(envoy.KindRoute, routes))
}

// routesOf returns the names of the route configurations that the filter chains of a listener take by RDS.
func routesOf(l *listenerv3.Listener) (out []string) {
	for _, chain := range append(l.GetFilterChains(), l.GetDefaultFilterChain()) {
		for _, f := range chain.GetFilters() {
			var m hcmv3.HttpConnectionManager
			if f.GetTypedConfig().MessageIs(&m) && f.GetTypedConfig().UnmarshalTo(&m) == nil && m.GetRds() != nil {
				out = append(out, m.GetRds().GetRouteConfigName())
			}
		}
	}
	return out
}

// ask subscribes to the names of one kind, and no more to others of it.
func (s *subscriber) ask(k envoy.Kind, want []string) error {
	slices.Sort(want)
	want = slices.Compact(want)
	without := func(list, other []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(n string) bool { return slices.Contains(other, n) })
	}
	added, gone := without(want, s.asked[k]), without(s.asked[k], want)
	if len(added)+len(gone) == 0 {
		return nil
	}
	s.asked[k] = want
	for _, name := range gone {
		delete(s.has[k], name)
	}
	return s.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: k.URL(), ResourceNamesSubscribe: added, ResourceNamesUnsubscribe: gone})
}
