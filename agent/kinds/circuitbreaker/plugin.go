// Package circuitbreaker is the plugin of MeshCircuitBreaker: how many connections and requests a cluster may have at a
// time, and when an endpoint that fails is left out for a while.
//
// Its policies act on the clusters of outbounds and on those that lead to the workload.
package circuitbreaker

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Kind is the kind of the plugin's policies.
const Kind = "MeshCircuitBreaker"

// Plugin declares the kind and its effect, beside the kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshcircuitbreakers", "mcb", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway"},
			From:      []string{"Mesh"},
			To:        toolkit.Destinations(),
			NewConf:   func() resource.Conf { return new(Conf) },
		})},
		Legacy: legacy,
		Apply:  apply,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind(Kind)
	if k == nil {
		return
	}
	memo := map[*Conf]*Breaker{}
	of := func(r *policy.Rule) *Breaker { return toolkit.Once(memo, toolkit.Conf[Conf](r), BreakerOf) }
	for cl := range toolkit.Clusters(d, draft.InboundCluster) {
		of(k.InboundAll(cl.Inbound)).Put(cl.Message)
	}
	for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
		of(k.Outbound(cl.Service)).Put(cl.Message)
	}
}

// Breaker is a conf as Envoy's messages, which many clusters share and nobody changes. Nil is a half that says
// nothing.
type Breaker struct {
	Limits  *clusterv3.CircuitBreakers
	Outlier *clusterv3.OutlierDetection
	panic   *typev3.Percent
}

// BreakerOf converts a conf.
func BreakerOf(c *Conf) *Breaker {
	b := &Breaker{}
	if l := c.ConnectionLimits; l != nil {
		b.Limits = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxConnections:     toolkit.UInt32(l.MaxConnections),
			MaxConnectionPools: toolkit.UInt32(l.MaxConnectionPools),
			MaxPendingRequests: toolkit.UInt32(l.MaxPendingRequests),
			MaxRetries:         toolkit.UInt32(l.MaxRetries),
			MaxRequests:        toolkit.UInt32(l.MaxRequests),
		}}}
	}
	if o := c.OutlierDetection; o != nil {
		b.panic = toolkit.Percent(o.HealthyPanicThreshold)
		if !toolkit.Or(o.Disabled, false) {
			b.Outlier = outlierOf(o)
		}
	}
	return b
}

// Put replaces what the breaker speaks of; nil leaves the cluster as it is.
func (b *Breaker) Put(c *clusterv3.Cluster) {
	if b == nil {
		return
	}
	if b.Limits != nil {
		c.CircuitBreakers = b.Limits
	}
	if b.Outlier != nil {
		c.OutlierDetection = b.Outlier
	}
	if b.panic != nil {
		toolkit.EditLoadBalancing(c).HealthyPanicThreshold = b.panic
	}
}

// outlierOf switches every detector on or off by the percentage with which it is enforced: Envoy's defaults have some
// of them on.
func outlierOf(o *OutlierDetection) *clusterv3.OutlierDetection {
	out := &clusterv3.OutlierDetection{
		Interval:                       toolkit.Duration(o.Interval),
		BaseEjectionTime:               toolkit.Duration(o.BaseEjectionTime),
		MaxEjectionPercent:             toolkit.UInt32(o.MaxEjectionPercent),
		SplitExternalLocalOriginErrors: toolkit.Or(o.SplitExternalAndLocalErrors, false),
	}
	d := toolkit.Or(o.Detectors, Detectors{})
	out.Consecutive_5Xx, out.EnforcingConsecutive_5Xx = consecutive(d.TotalFailures)
	out.ConsecutiveGatewayFailure, out.EnforcingConsecutiveGatewayFailure = consecutive(d.GatewayFailures)
	out.ConsecutiveLocalOriginFailure, out.EnforcingConsecutiveLocalOriginFailure = consecutive(d.LocalOriginFailures)
	out.EnforcingSuccessRate = Enforcing(d.SuccessRate != nil)
	out.EnforcingLocalOriginSuccessRate = out.EnforcingSuccessRate
	if s := d.SuccessRate; s != nil {
		out.SuccessRateMinimumHosts = toolkit.UInt32(s.MinimumHosts)
		out.SuccessRateRequestVolume = toolkit.UInt32(s.RequestVolume)
		out.SuccessRateStdevFactor = factor(s.StandardDeviationFactor)
	}
	out.EnforcingFailurePercentage = Enforcing(d.FailurePercentage != nil)
	out.EnforcingFailurePercentageLocalOrigin = out.EnforcingFailurePercentage
	if p := d.FailurePercentage; p != nil {
		out.FailurePercentageMinimumHosts = toolkit.UInt32(p.MinimumHosts)
		out.FailurePercentageRequestVolume = toolkit.UInt32(p.RequestVolume)
		out.FailurePercentageThreshold = toolkit.UInt32(p.Threshold)
	}
	return out
}

// consecutive returns the number of failures in a row and how it is enforced.
func consecutive(c *Consecutive) (count, enforced *wrapperspb.UInt32Value) {
	if c == nil || c.Consecutive == nil {
		return nil, Enforcing(false)
	}
	return toolkit.UInt32(c.Consecutive), Enforcing(true)
}

// Enforcing is the percentage with which a detector leaves out what it has found.
func Enforcing(on bool) *wrapperspb.UInt32Value {
	if on {
		return wrapperspb.UInt32(100)
	}
	return wrapperspb.UInt32(0)
}

func factor(d *resource.Decimal) *wrapperspb.UInt32Value {
	if d == nil {
		return nil
	}
	return wrapperspb.UInt32(thousandths(d.Float()))
}
