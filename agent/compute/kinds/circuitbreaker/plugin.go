// Package circuitbreaker is the plugin of MeshCircuitBreaker: how many connections and requests a
// cluster may have at a time, and when an endpoint that fails is ejected for a while.
//
// Its policies act on the clusters of outbounds and on those that lead to the workload.
package circuitbreaker

import (
	"math"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
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
			Rules:     true,
			NoMatches: "Envoy counts the connections and requests of all clients together where they leave for the " +
				"workload: for some clients write to in a policy whose targetRef selects their proxies, or a MeshRateLimit",
			NewConf: func() resource.Conf { return new(Conf) },
		})},
		Legacy: legacy,
		Shapes: []match.Level{match.LevelCluster},
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

// Breaker is a conf as Envoy's messages, which many clusters share and nobody changes. Nil is a
// half that says nothing.
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

// outlierOf switches every detector on or off by the percentage with which it is enforced: Envoy's
// defaults have some of them on.
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

// Enforcing is the percentage with which a detector ejects what it has found.
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

// Conf is what a MeshCircuitBreaker says about a cluster.
type Conf struct {
	ConnectionLimits *ConnectionLimits `json:"connectionLimits,omitempty"`
	OutlierDetection *OutlierDetection `json:"outlierDetection,omitempty"`
}

// ConnectionLimits bound what a cluster may have at a time. Nil leaves Envoy's default: 1024, for
// retries 3, and no bound for pools.
type ConnectionLimits struct {
	MaxConnections     *uint32 `json:"maxConnections,omitempty" check:"atLeastOne"`
	MaxConnectionPools *uint32 `json:"maxConnectionPools,omitempty" check:"atLeastOne"`
	MaxPendingRequests *uint32 `json:"maxPendingRequests,omitempty" check:"atLeastOne"`
	MaxRetries         *uint32 `json:"maxRetries,omitempty" check:"atLeastOne"`
	MaxRequests        *uint32 `json:"maxRequests,omitempty" check:"atLeastOne"`
}

// OutlierDetection ejects endpoints that do worse than the others.
type OutlierDetection struct {
	Disabled *bool `json:"disabled,omitempty"`
	// Interval is the time between two looks at the endpoints. Default 10s.
	Interval *resource.Duration `json:"interval,omitempty" check:"positive"`
	// BaseEjectionTime, times the number of ejections, is how long an endpoint is ejected. Default
	// 30s.
	BaseEjectionTime *resource.Duration `json:"baseEjectionTime,omitempty" check:"positive"`
	// MaxEjectionPercent is the share of the endpoints that may be ejected at a time; one always may.
	// Default 10.
	MaxEjectionPercent *uint32 `json:"maxEjectionPercent,omitempty" check:"percent"`
	// SplitExternalAndLocalErrors counts what this side saw, such as a reset, apart from what the
	// endpoint answered.
	SplitExternalAndLocalErrors *bool      `json:"splitExternalAndLocalErrors,omitempty"`
	Detectors                   *Detectors `json:"detectors,omitempty"`
	// HealthyPanicThreshold is the percentage of endpoints below which ejected ones are used again.
	// Default 50.
	HealthyPanicThreshold *resource.Decimal `json:"healthyPanicThreshold,omitempty" check:"percentage"`
}

// Detectors say what makes an endpoint an outlier. Nil switches a detector off.
type Detectors struct {
	TotalFailures       *Consecutive       `json:"totalFailures,omitempty"`       // 5xx and what counts as such
	GatewayFailures     *Consecutive       `json:"gatewayFailures,omitempty"`     // 502, 503 and 504
	LocalOriginFailures *Consecutive       `json:"localOriginFailures,omitempty"` // with splitExternalAndLocalErrors
	SuccessRate         *SuccessRate       `json:"successRate,omitempty"`
	FailurePercentage   *FailurePercentage `json:"failurePercentage,omitempty"`
}

// Consecutive detects failures in a row. Nil switches the detector off.
type Consecutive struct {
	Consecutive *uint32 `json:"consecutive,omitempty"`
}

// SuccessRate detects endpoints whose share of successes lies below the mean of all.
type SuccessRate struct {
	// endpoints with that many requests. Default 5
	MinimumHosts  *uint32 `json:"minimumHosts,omitempty" check:"atLeastOne"`
	RequestVolume *uint32 `json:"requestVolume,omitempty" check:"atLeastOne"` // in an interval. Default 100
	// StandardDeviationFactor times the standard deviation is the distance from the mean. Default 1.9.
	StandardDeviationFactor *resource.Decimal `json:"standardDeviationFactor,omitempty"`
}

// FailurePercentage detects endpoints of whose requests a share fails.
type FailurePercentage struct {
	MinimumHosts  *uint32 `json:"minimumHosts,omitempty"`              // endpoints with that many requests. Default 5
	RequestVolume *uint32 `json:"requestVolume,omitempty"`             // in an interval. Default 50
	Threshold     *uint32 `json:"threshold,omitempty" check:"percent"` // percent of failures. Default 85
}

// Validate checks that something is said, and the numbers.
func (c *Conf) Validate(v *resource.Validator) {
	if c.ConnectionLimits == nil && c.OutlierDetection == nil {
		v.Faultf("the policy says nothing: give connectionLimits, outlierDetection or both")
	}
	if o := c.OutlierDetection; o != nil {
		o.validate(v.Field("outlierDetection"))
	}
}

func (o *OutlierDetection) validate(v *resource.Validator) {
	at := v.Field("detectors")
	d := o.Detectors
	if d == nil || *d == (Detectors{}) {
		if o.Disabled == nil || !*o.Disabled {
			at.Faultf("no detector is given: give totalFailures, gatewayFailures, localOriginFailures, " +
				"successRate or failurePercentage, or disabled: true")
		}
		return
	}
	at.Field("totalFailures").Field("consecutive").AtLeastOne(toolkit.Or(d.TotalFailures, Consecutive{}).Consecutive)
	at.Field("gatewayFailures").Field("consecutive").AtLeastOne(toolkit.Or(d.GatewayFailures, Consecutive{}).Consecutive)
	at.Field("localOriginFailures").Field("consecutive").
		AtLeastOne(toolkit.Or(d.LocalOriginFailures, Consecutive{}).Consecutive)
	CheckFactor(at.Field("successRate").Field("standardDeviationFactor"),
		toolkit.Or(d.SuccessRate, SuccessRate{}).StandardDeviationFactor)
	p, f := toolkit.Or(d.FailurePercentage, FailurePercentage{}), at.Field("failurePercentage")
	f.Field("minimumHosts").AtLeastOne(p.MinimumHosts)
	f.Field("requestVolume").AtLeastOne(p.RequestVolume)
}

// Envoy takes the factor in thousandths, as a number of 32 bits.
const maxFactor = math.MaxUint32 / 1000

// CheckFactor checks the factor of a standard deviation; nil is not given.
func CheckFactor(v *resource.Validator, d *resource.Decimal) {
	if d == nil {
		return
	}
	switch f := d.Float(); {
	case !(f > 0):
		v.Faultf("%v is not more than 0", d)
	case thousandths(f) == 0:
		v.Faultf("%v is too small: thousandths count, so give 0.001 or more", d)
	case f > maxFactor:
		v.Faultf("%v is too large: %d is allowed at most", d, maxFactor)
	}
}

// thousandths returns a factor as Envoy takes it.
func thousandths(f float64) uint32 {
	return uint32(min(max(math.Round(f*1000), 0), math.MaxUint32))
}
