package circuitbreaker

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind(kind)
	if k == nil && !c.Rules.Legacy(legacyKind) {
		return
	}
	a := &applier{
		c: c, rules: k, http: c.Rules.Kind(kindHTTPRoute), tcp: c.Rules.Kind(kindTCPRoute),
		made: map[resource.Conf]*breaker{},
	}
	if k != nil {
		a.limits, a.outlier = spoken(k.Policies)
	}
	for _, cl := range d.Clusters {
		switch cl.Kind {
		case draft.InboundCluster:
			if i := a.inboundAt(cl.Port); i >= 0 {
				a.ofRule(k.InboundAll(i)).put(cl.Message)
			}
		case draft.OutboundCluster:
			a.legacy(cl.Service).put(cl.Message)
			a.ofRule(k.Outbound(cl.Service)).put(cl.Message)
		}
	}
}

// applier finds what the policies say about clusters.
type applier struct {
	c         *policy.Context
	rules     *policy.KindRules
	http, tcp *policy.KindRules
	made      map[resource.Conf]*breaker // by the conf, which is one pointer for all that a rule is about
	// limits and outlier are true when a MeshCircuitBreaker that selects the proxy speaks of that half.
	limits, outlier bool
}

// spoken says which halves policies speak of, about whatever.
func spoken(policies []*resource.Resource) (limits, outlier bool) {
	for _, p := range policies {
		spec, ok := p.Spec.(*resource.Policy)
		if !ok {
			continue
		}
		for _, list := range [...][]resource.PolicyItem{spec.From, spec.To} {
			for i := range list {
				if conf, ok := list[i].Conf.(*Conf); ok {
					limits = limits || conf.ConnectionLimits != nil
					outlier = outlier || conf.OutlierDetection != nil
				}
			}
		}
	}
	return limits, outlier
}

func (a *applier) ofRule(r *policy.Rule) *breaker {
	if r == nil {
		return nil
	}
	conf, ok := r.Conf.(*Conf)
	if !ok {
		return nil
	}
	b := a.made[conf]
	if b == nil {
		b = breakerOf(conf)
		a.made[conf] = b
	}
	return b
}

// legacy returns what CircuitBreaker says about a destination, nil for nothing. Where a MeshHTTPRoute or
// MeshTCPRoute leads, source-destination policies say nothing.
func (a *applier) legacy(s draft.Service) *breaker {
	if a.limits && a.outlier || s.Kind != mesh.KindTag || a.http.Outbound(s) != nil || a.tcp.Outbound(s) != nil {
		return nil
	}
	p := a.c.Rules.LegacyOutbound(legacyKind, s.Name)
	if p == nil {
		return nil
	}
	spec, ok := p.Spec.(*resource.LegacyPolicy)
	if !ok {
		return nil
	}
	conf, ok := spec.Conf.(*LegacyConf)
	if !ok {
		return nil
	}
	b := a.made[conf]
	if b == nil {
		b = legacyBreakerOf(conf)
		if a.limits {
			b.limits = nil
		}
		if a.outlier {
			b.outlier = nil
		}
		a.made[conf] = b
	}
	return b
}

// inboundAt returns the index of the first inbound at a port, -1 for none.
func (a *applier) inboundAt(port uint32) int {
	in := a.c.Dataplane.Networking.Inbound
	for i := range in {
		if in[i].Port == port {
			return i
		}
	}
	return -1
}

// put replaces what the breaker speaks of.
func (b *breaker) put(c *clusterv3.Cluster) {
	if b == nil {
		return
	}
	if b.limits != nil {
		c.CircuitBreakers = b.limits
	}
	if b.outlier != nil {
		c.OutlierDetection = b.outlier
	}
	if b.panic != nil {
		lb := &clusterv3.Cluster_CommonLbConfig{}
		if c.CommonLbConfig != nil {
			lb = proto.Clone(c.CommonLbConfig).(*clusterv3.Cluster_CommonLbConfig)
		}
		lb.HealthyPanicThreshold = b.panic
		c.CommonLbConfig = lb
	}
}
