package circuitbreaker

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// breaker is a conf as Envoy's messages, which many clusters share and nobody changes. Nil is a half that says
// nothing.
type breaker struct {
	limits  *clusterv3.CircuitBreakers
	outlier *clusterv3.OutlierDetection
	panic   *typev3.Percent
}

func breakerOf(c *Conf) *breaker {
	b := &breaker{}
	if l := c.ConnectionLimits; l != nil {
		b.limits = limitsOf(&clusterv3.CircuitBreakers_Thresholds{
			MaxConnections:     number(l.MaxConnections),
			MaxConnectionPools: number(l.MaxConnectionPools),
			MaxPendingRequests: number(l.MaxPendingRequests),
			MaxRetries:         number(l.MaxRetries),
			MaxRequests:        number(l.MaxRequests),
		})
	}
	if o := c.OutlierDetection; o != nil {
		if p := o.HealthyPanicThreshold; p != nil {
			b.panic = &typev3.Percent{Value: p.Float()}
		}
		if o.Disabled == nil || !*o.Disabled {
			b.outlier = outlierOf(o)
		}
	}
	return b
}

func limitsOf(t *clusterv3.CircuitBreakers_Thresholds) *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{t}}
}

// outlierOf switches every detector on or off by the percentage with which it is enforced: Envoy's defaults have some
// of them on.
func outlierOf(o *OutlierDetection) *clusterv3.OutlierDetection {
	out := &clusterv3.OutlierDetection{
		Interval:                       span(o.Interval),
		BaseEjectionTime:               span(o.BaseEjectionTime),
		MaxEjectionPercent:             number(o.MaxEjectionPercent),
		SplitExternalLocalOriginErrors: o.SplitExternalAndLocalErrors != nil && *o.SplitExternalAndLocalErrors,
	}
	d := o.Detectors
	if d == nil {
		d = &Detectors{}
	}
	out.Consecutive_5Xx, out.EnforcingConsecutive_5Xx = consecutive(d.TotalFailures)
	out.ConsecutiveGatewayFailure, out.EnforcingConsecutiveGatewayFailure = consecutive(d.GatewayFailures)
	out.ConsecutiveLocalOriginFailure, out.EnforcingConsecutiveLocalOriginFailure = consecutive(d.LocalOriginFailures)
	out.EnforcingSuccessRate = enforcing(d.SuccessRate != nil)
	out.EnforcingLocalOriginSuccessRate = out.EnforcingSuccessRate
	if s := d.SuccessRate; s != nil {
		out.SuccessRateMinimumHosts = number(s.MinimumHosts)
		out.SuccessRateRequestVolume = number(s.RequestVolume)
		out.SuccessRateStdevFactor = factor(s.StandardDeviationFactor)
	}
	out.EnforcingFailurePercentage = enforcing(d.FailurePercentage != nil)
	out.EnforcingFailurePercentageLocalOrigin = out.EnforcingFailurePercentage
	if p := d.FailurePercentage; p != nil {
		p.put(out)
	}
	return out
}

func (p *FailurePercentage) put(out *clusterv3.OutlierDetection) {
	out.FailurePercentageMinimumHosts = number(p.MinimumHosts)
	out.FailurePercentageRequestVolume = number(p.RequestVolume)
	out.FailurePercentageThreshold = number(p.Threshold)
}

// consecutive returns the number of failures in a row and how it is enforced.
func consecutive(c *Consecutive) (count, enforced *wrapperspb.UInt32Value) {
	if c == nil || c.Consecutive == nil {
		return nil, enforcing(false)
	}
	return number(c.Consecutive), enforcing(true)
}

// legacyBreakerOf is the same for a CircuitBreaker. Its outlier detection is there in any case, with the detectors that
// are not given switched off.
func legacyBreakerOf(c *LegacyConf) *breaker {
	b := &breaker{}
	if t := c.Thresholds; t != nil {
		b.limits = limitsOf(&clusterv3.CircuitBreakers_Thresholds{
			MaxConnections:     number(t.MaxConnections),
			MaxPendingRequests: number(t.MaxPendingRequests),
			MaxRetries:         number(t.MaxRetries),
			MaxRequests:        number(t.MaxRequests),
		})
	}
	d := c.Detectors
	if d == nil {
		d = &LegacyDetectors{}
	}
	out := &clusterv3.OutlierDetection{
		Interval:                               span(c.Interval),
		BaseEjectionTime:                       span(c.BaseEjectionTime),
		MaxEjectionPercent:                     number(c.MaxEjectionPercent),
		SplitExternalLocalOriginErrors:         c.SplitExternalAndLocalErrors != nil && *c.SplitExternalAndLocalErrors,
		EnforcingConsecutive_5Xx:               enforcing(d.TotalErrors != nil),
		EnforcingConsecutiveGatewayFailure:     enforcing(d.GatewayErrors != nil),
		EnforcingConsecutiveLocalOriginFailure: enforcing(d.LocalErrors != nil),
		EnforcingSuccessRate:                   enforcing(d.StandardDeviation != nil),
		EnforcingFailurePercentage:             enforcing(d.Failure != nil),
	}
	out.Consecutive_5Xx, _ = consecutive(d.TotalErrors)
	out.ConsecutiveGatewayFailure, _ = consecutive(d.GatewayErrors)
	out.ConsecutiveLocalOriginFailure, _ = consecutive(d.LocalErrors)
	if s := d.StandardDeviation; s != nil {
		out.EnforcingLocalOriginSuccessRate = enforcing(true)
		out.SuccessRateMinimumHosts = number(s.MinimumHosts)
		out.SuccessRateRequestVolume = number(s.RequestVolume)
		out.SuccessRateStdevFactor = factor(s.Factor)
	}
	if d.Failure != nil {
		out.EnforcingFailurePercentageLocalOrigin = enforcing(true)
		d.Failure.put(out)
	}
	b.outlier = out
	return b
}

// enforcing is the percentage with which a detector leaves out what it has found.
func enforcing(on bool) *wrapperspb.UInt32Value {
	if on {
		return wrapperspb.UInt32(100)
	}
	return wrapperspb.UInt32(0)
}

func number(n *uint32) *wrapperspb.UInt32Value {
	if n == nil {
		return nil
	}
	return wrapperspb.UInt32(*n)
}

func factor(d *resource.Decimal) *wrapperspb.UInt32Value {
	if d == nil {
		return nil
	}
	return wrapperspb.UInt32(thousandths(d.Float()))
}

func span(d *resource.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(d.Duration)
}
