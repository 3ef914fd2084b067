// Package loadbalancing is the plugin of MeshLoadBalancingStrategy: how a proxy chooses among the endpoints of a service.
//
// It sets the algorithm of the outbound clusters, what requests are hashed by on the routes (and connections, where a
// service speaks TCP), and where endpoints are preferred to be: the proxy's own zone before others, within the zone by
// affinity tags, and which zones take over when endpoints fail. Whatever a policy says about a service, endpoints of
// other zones come second unless localityAwareness is disabled.
package loadbalancing

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/match"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshLoadBalancingStrategy"

// Plugin declares the kind and its effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshloadbalancingstrategies", "mlbs", resource.PolicyShape{
			Top:     toolkit.Proxies("MeshGateway"),
			To:      toolkit.Destinations(),
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy,
		})},
		Shapes: []match.Level{match.LevelCluster, match.LevelEndpoints},
		Apply:  apply,
	}
}

// effect is what one rule comes to. Many outbounds have the same rule.
type effect struct {
	conf       *Conf
	hash       hashing
	localities *policy.Localities // nil: all endpoints are equal
	weighted   bool               // the weights of localities count
}

func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(kind)
	if rules == nil {
		return
	}
	effects := map[*Conf]*effect{}
	of := func(s draft.Service) *effect {
		r := rules.Outbound(s)
		return toolkit.Once(effects, toolkit.Conf[Conf](r), func(conf *Conf) *effect { return effectOf(c, r, conf) })
	}
	for l := range toolkit.Listeners(d, draft.Outbound) {
		if e := of(l.Service); e != nil {
			for _, ch := range l.Chains {
				e.hash.apply(ch)
			}
		}
	}
	for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
		if e := of(cl.Service); e != nil {
			e.apply(c, cl)
		}
	}
}

func effectOf(c *policy.Context, r *policy.Rule, conf *Conf) *effect {
	e := &effect{conf: conf, hash: newHashing(conf.LoadBalancer)}
	if l := conf.LoadBalancer; l != nil && l.Type == ringHash && l.RingHash != nil {
		if reason := l.RingHash.sizeFault(); reason != "" {
			toolkit.WarnOrigins(c, r, "loadBalancer.ringHash.maxRingSize, merged with other policies: %s; the sizes have no effect until then", reason)
		}
	}
	e.localities, e.weighted = localities(c, conf.LocalityAwareness)
	return e
}

func (e *effect) apply(c *policy.Context, cluster *draft.Cluster) {
	m := cluster.Message
	if e.weighted {
		toolkit.EditLoadBalancing(m).LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}
	}
	if e.conf.LoadBalancer != nil {
		e.conf.LoadBalancer.apply(m)
	}
	if m.LoadAssignment == nil {
		c.Host.Localities(m.Name, e.localities)
	} else if e.localities != nil {
		place(m.LoadAssignment, e.localities)
	}
}

// apply sets algorithm and parameters. Those of an earlier step are dropped, as they may belong to another algorithm.
func (l *LoadBalancer) apply(m *clusterv3.Cluster) {
	m.LbConfig = nil
	switch l.Type {
	case roundRobin:
		m.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
	case random:
		m.LbPolicy = clusterv3.Cluster_RANDOM
	case leastRequest:
		m.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		if l.LeastRequest != nil && *l.LeastRequest != (LeastRequest{}) {
			m.LbConfig = l.LeastRequest.config()
		}
	case ringHash:
		m.LbPolicy = clusterv3.Cluster_RING_HASH
		if l.RingHash != nil {
			m.LbConfig = l.RingHash.config()
		}
	case maglev:
		m.LbPolicy = clusterv3.Cluster_MAGLEV
		if l.Maglev != nil && l.Maglev.TableSize != nil {
			m.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: size(l.Maglev.TableSize)}}
		}
	}
}

func (l *LeastRequest) config() *clusterv3.Cluster_LeastRequestLbConfig_ {
	out := &clusterv3.Cluster_LeastRequestLbConfig{ChoiceCount: toolkit.UInt32(l.ChoiceCount)}
	if l.ActiveRequestBias != nil {
		out.ActiveRequestBias = &corev3.RuntimeDouble{DefaultValue: l.ActiveRequestBias.Float()}
	}
	return &clusterv3.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: out}
}

func (r *RingHash) config() *clusterv3.Cluster_RingHashLbConfig_ {
	out := &clusterv3.Cluster_RingHashLbConfig{}
	if toolkit.Or(r.HashFunction, "") == "MurmurHash2" {
		out.HashFunction = clusterv3.Cluster_RingHashLbConfig_MURMUR_HASH_2
	}
	if r.sizeFault() == "" {
		out.MinimumRingSize, out.MaximumRingSize = size(r.MinRingSize), size(r.MaxRingSize)
	}
	return &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: out}
}

func size(n *uint32) *wrapperspb.UInt64Value {
	if n == nil {
		return nil
	}
	return wrapperspb.UInt64(uint64(*n))
}
