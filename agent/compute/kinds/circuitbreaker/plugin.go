// Package circuitbreaker implements MeshCircuitBreaker: limits on connections and requests of a
// cluster, and ejection of failing endpoints.
//
// MeshCircuitBreaker policies affect the clusters of outbounds and of the workload.
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

// Kind is the policy kind of the plugin.
const Kind = "MeshCircuitBreaker"

// Plugin declares the kind with the legacy kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshcircuitbreakers", "mcb", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway"},
			From:      []string{"Mesh"},
			To:        toolkit.Destinations(),
			Rules:     true, FromAsRules: true,
			NoMatches: "Envoy counts the connections and requests of all clients of a workload together: to limit specific " +
				"clients, use to in a policy whose targetRef selects their proxies, or a MeshRateLimit",
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

// Breaker is a conf converted to Envoy's messages, which clusters share and must not modify. An
// unset half is nil.
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

// Put sets the halves that the breaker has. It may be called on nil.
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

// outlierOf enables or disables every detector explicitly by its enforcement percentage, because
// Envoy enables some by default.
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

// consecutive returns the number of consecutive failures and its enforcement percentage.
func consecutive(c *Consecutive) (count, enforced *wrapperspb.UInt32Value) {
	if c == nil || c.Consecutive == nil {
		return nil, Enforcing(false)
	}
	return toolkit.UInt32(c.Consecutive), Enforcing(true)
}

// Enforcing returns the enforcement percentage of a detector.
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

// Conf is the conf of a MeshCircuitBreaker.
type Conf struct {
	ConnectionLimits *ConnectionLimits `json:"connectionLimits,omitempty"`
	OutlierDetection *OutlierDetection `json:"outlierDetection,omitempty"`
}

// ConnectionLimits limit the concurrent use of a cluster. Unset fields have Envoy's defaults: 1024,
// 3 retries, and no limit of pools.
type ConnectionLimits struct {
	MaxConnections     *uint32 `json:"maxConnections,omitempty" check:"atLeastOne"`
	MaxConnectionPools *uint32 `json:"maxConnectionPools,omitempty" check:"atLeastOne"`
	MaxPendingRequests *uint32 `json:"maxPendingRequests,omitempty" check:"atLeastOne"`
	MaxRetries         *uint32 `json:"maxRetries,omitempty" check:"atLeastOne"`
	MaxRequests        *uint32 `json:"maxRequests,omitempty" check:"atLeastOne"`
}

// OutlierDetection ejects endpoints that fail more than others.
type OutlierDetection struct {
	Disabled *bool `json:"disabled,omitempty"`
	// Interval is the time between two evaluations of the endpoints. Default 10s.
	Interval *resource.Duration `json:"interval,omitempty" check:"positive"`
	// BaseEjectionTime, multiplied by the number of ejections, is the duration of an ejection.
	// Default 30s.
	BaseEjectionTime *resource.Duration `json:"baseEjectionTime,omitempty" check:"positive"`
	// MaxEjectionPercent is the maximum percentage of ejected endpoints; one endpoint may always be
	// ejected. Default 10.
	MaxEjectionPercent *uint32 `json:"maxEjectionPercent,omitempty" check:"percent"`
	// SplitExternalAndLocalErrors counts errors of the proxy, such as resets, separately from
	// responses of the endpoint.
	SplitExternalAndLocalErrors *bool      `json:"splitExternalAndLocalErrors,omitempty"`
	Detectors                   *Detectors `json:"detectors,omitempty"`
	// HealthyPanicThreshold is the percentage of endpoints below which ejected ones receive traffic
	// again. Default 50.
	HealthyPanicThreshold *resource.Decimal `json:"healthyPanicThreshold,omitempty" check:"percentage"`
}

// Detectors define when an endpoint is an outlier. A nil detector is disabled.
type Detectors struct {
	TotalFailures       *Consecutive       `json:"totalFailures,omitempty"`       // 5xx and equivalent errors
	GatewayFailures     *Consecutive       `json:"gatewayFailures,omitempty"`     // 502, 503 and 504
	LocalOriginFailures *Consecutive       `json:"localOriginFailures,omitempty"` // with splitExternalAndLocalErrors
	SuccessRate         *SuccessRate       `json:"successRate,omitempty"`
	FailurePercentage   *FailurePercentage `json:"failurePercentage,omitempty"`
}

// Consecutive detects consecutive failures. If Consecutive is nil, the detector is disabled.
type Consecutive struct {
	Consecutive *uint32 `json:"consecutive,omitempty"`
}

// SuccessRate detects endpoints whose success rate is below the mean.
type SuccessRate struct {
	// minimum number of endpoints with RequestVolume requests. Default 5
	MinimumHosts *uint32 `json:"minimumHosts,omitempty" check:"atLeastOne"`
	// minimum requests in an interval. Default 100
	RequestVolume *uint32 `json:"requestVolume,omitempty" check:"atLeastOne"`
	// StandardDeviationFactor, multiplied by the standard deviation, is the maximum distance from
	// the mean. Default 1.9.
	StandardDeviationFactor *resource.Decimal `json:"standardDeviationFactor,omitempty"`
}

// FailurePercentage detects endpoints with a high percentage of failed requests.
type FailurePercentage struct {
	// minimum endpoints with RequestVolume requests. Default 5
	MinimumHosts  *uint32 `json:"minimumHosts,omitempty"`
	RequestVolume *uint32 `json:"requestVolume,omitempty"`             // minimum requests in an interval. Default 50
	Threshold     *uint32 `json:"threshold,omitempty" check:"percent"` // percentage of failures. Default 85
}

// Validate checks that the conf is not empty and that numbers are valid.
func (c *Conf) Validate(v *resource.Validator) {
	if c.ConnectionLimits == nil && c.OutlierDetection == nil {
		v.Faultf("the conf is empty: give connectionLimits, outlierDetection or both")
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

// maxFactor is the largest standard deviation factor: Envoy expects thousandths in 32 bits.
const maxFactor = math.MaxUint32 / 1000

// CheckFactor validates the factor of a standard deviation. It accepts nil.
func CheckFactor(v *resource.Validator, d *resource.Decimal) {
	if d == nil {
		return
	}
	switch f := d.Float(); {
	case !(f > 0):
		v.Faultf("%v is not positive", d)
	case thousandths(f) == 0:
		v.Faultf("%v is too small: give 0.001 or more", d)
	case f > maxFactor:
		v.Faultf("%v is too large: the maximum is %d", d, maxFactor)
	}
}

// thousandths converts a factor to Envoy's unit.
func thousandths(f float64) uint32 {
	return uint32(min(max(math.Round(f*1000), 0), math.MaxUint32))
}
