package traffictest_test

import (
	"context"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/envoy"
)

// subscriber keeps the config of a proxy over one delta ADS stream, as Envoy does: clusters and listeners are all asked
// for, endpoints by the clusters that want them. A response is acknowledged when it is in force.
type subscriber struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	has    [envoy.NumKinds]map[string]*envoy.Resource
	asked  []string // load assignments
	take   func(*envoy.Snapshot) error
}

func subscribe(ctx context.Context, conn *grpc.ClientConn, node *core.Node, take func(*envoy.Snapshot) error) (*subscriber, error) {
	s := &subscriber{take: take}
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
		if err := s.askForEndpoints(); err != nil {
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

// askForEndpoints subscribes to the load assignments of clusters that have become known, and no more to those of
// others.
func (s *subscriber) askForEndpoints() error {
	var want []string
	for name, r := range s.has[envoy.KindCluster] {
		var c clusterv3.Cluster
		if proto.Unmarshal(r.Body, &c) == nil && c.GetType() == clusterv3.Cluster_EDS {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	without := func(list, other []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(n string) bool { return slices.Contains(other, n) })
	}
	added, gone := without(want, s.asked), without(s.asked, want)
	if len(added)+len(gone) == 0 {
		return nil
	}
	s.asked = want
	for _, name := range gone {
		delete(s.has[envoy.KindEndpoint], name)
	}
	return s.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.KindEndpoint.URL(), ResourceNamesSubscribe: added, ResourceNamesUnsubscribe: gone})
}
