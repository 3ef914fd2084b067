package legacy

import (
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// connectTimeout applies to clusters of a TrafficRoute unless a Timeout sets it.
const connectTimeout = 5 * time.Second

// apply sets timeouts and load balancing of the clusters of TrafficRoutes. If several lead to a
// cluster, the first one applies.
func apply(c *policy.Context, d *draft.Draft) {
	if !c.Rules.Legacy(kind) {
		return
	}
	var balancing map[string]*LoadBalancer // by cluster
	for _, l := range d.Listeners {
		if l.Kind != draft.Outbound || l.Service.Kind != mesh.KindTag {
			continue
		}
		if isClosed(l) {
			toolkit.AddEmptyCluster(d, kind)
		}
		if !isRouted(l) {
			continue
		}
		conf := toolkit.LegacyConf[Conf](c.Rules.LegacyOutbound(kind, l.Service.Name))
		if conf == nil {
			continue
		}
		if balancing == nil {
			balancing = make(map[string]*LoadBalancer, len(d.Clusters))
		}
		for _, ch := range l.Chains {
			eachCluster(ch, func(name string) {
				if _, set := balancing[name]; !set {
					balancing[name] = conf.LoadBalancer
				}
			})
		}
	}
	for _, cl := range d.Clusters {
		if lb, ok := balancing[cl.Message.GetName()]; ok {
			setCluster(cl, lb)
		}
	}
}

// isClosed reports whether a listener leads to no endpoint.
func isClosed(l *draft.Listener) bool {
	return slices.ContainsFunc(l.Chains, func(ch *draft.Chain) bool {
		return ch.TCP.GetCluster() == toolkit.ClusterEmpty
	})
}

// isRouted reports whether the chains of a listener have the form that this plugin gives to those
// of a TrafficRoute.
func isRouted(l *draft.Listener) bool {
	for _, ch := range l.Chains {
		if ch.HTTP != nil && ch.HTTP.Message.NormalizePath == nil || ch.TCP != nil && ch.TCP.IdleTimeout != nil {
			return true
		}
	}
	return false
}

// eachCluster calls fn for each cluster of a chain.
func eachCluster(ch *draft.Chain, fn func(name string)) {
	if ch.TCP != nil {
		switch s := ch.TCP.ClusterSpecifier.(type) {
		case *tcpv3.TcpProxy_Cluster:
			fn(s.Cluster)
		case *tcpv3.TcpProxy_WeightedClusters:
			for _, w := range s.WeightedClusters.Clusters {
				fn(w.Name)
			}
		}
	}
	if ch.HTTP == nil {
		return
	}
	for r := range toolkit.Routes(ch.HTTP) {
		switch s := r.GetRoute().GetClusterSpecifier().(type) {
		case *routev3.RouteAction_Cluster:
			fn(s.Cluster)
		case *routev3.RouteAction_WeightedClusters:
			for _, w := range s.WeightedClusters.Clusters {
				fn(w.Name)
			}
		}
	}
}

func setCluster(cl *draft.Cluster, lb *LoadBalancer) {
	cl.Message.ConnectTimeout = durationpb.New(connectTimeout)
	if mesh.Protocol(cl.Service.Protocol).HTTP() {
		toolkit.EditConnections(cl).IdleTimeout = &durationpb.Duration{}
	}
	if lb == nil || cl.Service.External { // external services always use round robin
		return
	}
	switch m := cl.Message; {
	case lb.LeastRequest != nil:
		m.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		if n := lb.LeastRequest.ChoiceCount; n > 0 {
			m.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{
				LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{ChoiceCount: wrapperspb.UInt32(n)},
			}
		}
	case lb.RingHash != nil:
		m.LbPolicy, m.LbConfig = clusterv3.Cluster_RING_HASH,
			&clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: lb.RingHash.envoy()}
	case lb.Random != nil:
		m.LbPolicy = clusterv3.Cluster_RANDOM
	case lb.Maglev != nil:
		m.LbPolicy = clusterv3.Cluster_MAGLEV
	}
}

func (r *RingHash) envoy() *clusterv3.Cluster_RingHashLbConfig {
	out := &clusterv3.Cluster_RingHashLbConfig{}
	if r.HashFunction == "MURMUR_HASH_2" {
		out.HashFunction = clusterv3.Cluster_RingHashLbConfig_MURMUR_HASH_2
	}
	if r.MinRingSize > 0 {
		out.MinimumRingSize = wrapperspb.UInt64(r.MinRingSize)
	}
	if r.MaxRingSize > 0 {
		out.MaximumRingSize = wrapperspb.UInt64(r.MaxRingSize)
	}
	return out
}

// destinations lists the destinations of a TrafficRoute for an outbound with some tags.
func destinations(p *resource.Resource, outbound map[string]string) []policy.BackendRef {
	conf := toolkit.LegacyConf[Conf](p)
	if conf == nil {
		return nil
	}
	var out []policy.BackendRef
	add := func(split []Split, tags map[string]string) {
		for _, s := range splitOf(split, tags) {
			if toolkit.Or(s.Weight, 1) > 0 {
				out = append(out, refOf(s.Destination, outbound))
			}
		}
	}
	add(conf.Split, conf.Destination)
	for i := range conf.HTTP {
		add(conf.HTTP[i].Split, conf.HTTP[i].Destination)
	}
	return out
}
