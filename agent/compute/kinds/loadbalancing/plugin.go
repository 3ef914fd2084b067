// Package loadbalancing implements MeshLoadBalancingStrategy: how a proxy selects an endpoint of a
// service.
//
// It sets the algorithm of outbound clusters, the hash policies of routes (and of TCP proxies), and
// the preferred endpoints: the proxy's zone first, within the zone by affinity tags, and the
// fallback zones when endpoints fail. Other zones are always a fallback unless localityAwareness is
// disabled.
package loadbalancing

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "MeshLoadBalancingStrategy"

// Plugin declares the kind and its effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind,
			"meshloadbalancingstrategies", "mlbs", resource.PolicyShape{
				Top:     toolkit.Proxies("MeshGateway"),
				To:      toolkit.Destinations("MeshHTTPRoute"),
				NoItems: true,
				NewConf: func() resource.Conf { return new(Conf) },
				Check:   checkPolicy,
			})},
		Shapes: []match.Level{match.LevelCluster, match.LevelEndpoints},
		Apply:  apply,
		Reads:  policy.ReadsDataplane, // affinityTags read labels
	}
}

// effect is the converted conf of a rule, which many outbounds share.
type effect struct {
	conf       *Conf
	localities *policy.Localities // nil if all endpoints are equal
	weighted   bool               // apply the weights of localities
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
	hashes := map[*Conf]*hashing{}
	hashOf := func(r *policy.Rule) *hashing {
		return toolkit.Once(hashes, toolkit.Conf[Conf](r), newHashing)
	}
	for l := range toolkit.Listeners(d, draft.Outbound) {
		all := hashOf(rules.Outbound(l.Service))
		for _, ch := range l.Chains {
			all.apply(ch, func(r *routev3.Route) *hashing {
				return hashOf(rules.Route(l.Service, r.GetName(), ch.HTTP.Origins[r.GetName()]))
			})
		}
	}
	for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
		if e := of(cl.Service); e != nil {
			e.apply(c, cl)
		}
	}
}

func effectOf(c *policy.Context, r *policy.Rule, conf *Conf) *effect {
	e := &effect{conf: conf}
	if l := conf.LoadBalancer; l != nil && l.Type == ringHash && l.RingHash != nil {
		if reason := l.RingHash.sizeFault(); reason != "" {
			toolkit.WarnOrigins(c, r,
				"the ring sizes have no effect: loadBalancer.ringHash.maxRingSize, merged with other policies: %s", reason)
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
		group(m.LoadAssignment, e.localities)
	}
}

// apply sets the algorithm and its parameters. It replaces existing parameters, which may belong to
// another algorithm.
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
			m.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{
				MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: size(l.Maglev.TableSize)},
			}
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

// hashing holds the attributes by which requests and connections are hashed.
type hashing struct {
	given       bool // by hashPolicies beside loadBalancer, the only form for routes
	requests    []*routev3.RouteAction_HashPolicy
	connections []*typev3.HashPolicy // Envoy supports at most one
}

// newHashing converts the hash policies, by default those of the selected algorithm.
func newHashing(c *Conf) *hashing {
	var list []HashPolicy
	switch l := c.LoadBalancer; {
	case c.HashPolicies != nil:
		list = *c.HashPolicies
	case l == nil:
	case l.Type == ringHash && l.RingHash != nil:
		list = toolkit.Or(l.RingHash.HashPolicies, nil)
	case l.Type == maglev && l.Maglev != nil:
		list = toolkit.Or(l.Maglev.HashPolicies, nil)
	}
	out := &hashing{given: c.HashPolicies != nil}
	for i := range list {
		p := &list[i]
		out.requests = append(out.requests, p.request())
		if c := p.connection(); c != nil && out.connections == nil {
			out.connections = []*typev3.HashPolicy{c}
		}
	}
	return out
}

// apply adds the hash policies to all forwarding routes of a chain, or to its TCP proxy. ofRoute
// returns those of one route, which replace the others if they are given. It may be called on nil.
func (h *hashing) apply(ch *draft.Chain, ofRoute func(*routev3.Route) *hashing) {
	switch {
	case ch.TCP != nil:
		if h != nil && len(h.connections) > 0 {
			ch.TCP.HashPolicy = h.connections
		}
	case ch.HTTP != nil && ch.HTTP.Routes != nil:
		for r := range toolkit.Routes(ch.HTTP) {
			own := h
			if o := ofRoute(r); o != nil && o.given {
				own = o
			}
			if action := r.GetRoute(); action != nil && own != nil {
				action.HashPolicy = slices.Concat(action.HashPolicy, own.requests)
			}
		}
	}
}

// request converts the policy for a route. Validation ensures that the field for the type is set.
func (p *HashPolicy) request() *routev3.RouteAction_HashPolicy {
	out := &routev3.RouteAction_HashPolicy{Terminal: toolkit.Or(p.Terminal, false)}
	switch p.Type {
	case hashHeader:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{
			Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: p.Header.Name},
		}
	case hashCookie:
		c := &routev3.RouteAction_HashPolicy_Cookie{Name: p.Cookie.Name, Ttl: toolkit.Duration(p.Cookie.TTL),
			Path: toolkit.Or(p.Cookie.Path, "")}
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: c}
	case hashQuery:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_QueryParameter_{
			QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: p.QueryParameter.Name},
		}
	case hashFilterState:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_FilterState_{
			FilterState: &routev3.RouteAction_HashPolicy_FilterState{Key: p.FilterState.Key},
		}
	default:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_ConnectionProperties_{
			ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{
				SourceIp: p.bySource(),
			}}
	}
	return out
}

// connection converts the policy for a TCP proxy, or returns nil if it applies only to requests.
func (p *HashPolicy) connection() *typev3.HashPolicy {
	switch {
	case p.Type == hashFilterState:
		return &typev3.HashPolicy{PolicySpecifier: &typev3.HashPolicy_FilterState_{
			FilterState: &typev3.HashPolicy_FilterState{Key: p.FilterState.Key},
		}}
	case p.bySource():
		return &typev3.HashPolicy{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}}
	}
	return nil
}

func (p *HashPolicy) bySource() bool {
	return (p.Type == hashConnection || p.Type == hashSourceIP) && toolkit.Or(p.Connection.SourceIP, false)
}
