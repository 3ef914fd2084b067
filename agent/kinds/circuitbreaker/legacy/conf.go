package legacy

import (
	"github.com/nearside-mesh/nearside/agent/kinds/circuitbreaker"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf is what a CircuitBreaker says about a cluster. Nil leaves Envoy's default.
type Conf struct {
	Interval                    *resource.Duration `json:"interval,omitempty"`
	BaseEjectionTime            *resource.Duration `json:"baseEjectionTime,omitempty"`
	MaxEjectionPercent          *uint32            `json:"maxEjectionPercent,omitempty"`
	SplitExternalAndLocalErrors *bool              `json:"splitExternalAndLocalErrors,omitempty"`
	Detectors                   *Detectors         `json:"detectors,omitempty"`
	Thresholds                  *Thresholds        `json:"thresholds,omitempty"`
}

// Detectors say what makes an endpoint an outlier. Nil switches a detector off; an empty one has Envoy's numbers.
type Detectors struct {
	TotalErrors       *circuitbreaker.Consecutive       `json:"totalErrors,omitempty"`
	GatewayErrors     *circuitbreaker.Consecutive       `json:"gatewayErrors,omitempty"`
	LocalErrors       *circuitbreaker.Consecutive       `json:"localErrors,omitempty"`
	StandardDeviation *Deviation                        `json:"standardDeviation,omitempty"`
	Failure           *circuitbreaker.FailurePercentage `json:"failure,omitempty"`
}

// Deviation detects endpoints whose share of successes lies below the mean of all.
type Deviation struct {
	RequestVolume *uint32           `json:"requestVolume,omitempty"`
	MinimumHosts  *uint32           `json:"minimumHosts,omitempty"`
	Factor        *resource.Decimal `json:"factor,omitempty"`
}

// Thresholds bound what a cluster may have at a time.
type Thresholds struct {
	MaxConnections     *uint32 `json:"maxConnections,omitempty"`
	MaxPendingRequests *uint32 `json:"maxPendingRequests,omitempty"`
	MaxRetries         *uint32 `json:"maxRetries,omitempty"`
	MaxRequests        *uint32 `json:"maxRequests,omitempty"`
}

// Validate checks that something is said, and the numbers.
func (c *Conf) Validate(v *resource.Validator) {
	if c.Detectors == nil && c.Thresholds == nil {
		v.Faultf("the policy says nothing: give detectors, thresholds or both")
	}
	v.Field("interval").Positive(c.Interval)
	v.Field("baseEjectionTime").Positive(c.BaseEjectionTime)
	v.Field("maxEjectionPercent").Percent(c.MaxEjectionPercent)
	if d := c.Detectors; d != nil {
		at := v.Field("detectors")
		if *d == (Detectors{}) {
			at.Faultf("no detector is given: give totalErrors, gatewayErrors, localErrors, standardDeviation or failure")
		}
		if s := d.StandardDeviation; s != nil {
			circuitbreaker.CheckFactor(at.Field("standardDeviation").Field("factor"), s.Factor)
		}
		if d.Failure != nil {
			at.Field("failure").Field("threshold").Percent(d.Failure.Threshold)
		}
	}
	if t := c.Thresholds; t != nil && *t == (Thresholds{}) {
		v.Field("thresholds").Faultf("no limit is given: give maxConnections, maxPendingRequests, maxRetries or maxRequests")
	}
}

// current is the conf of a MeshCircuitBreaker with the same values. It shares no part that holds some of them.
func (c *Conf) current() *circuitbreaker.Conf {
	out := &circuitbreaker.Conf{}
	if t := c.Thresholds; t != nil {
		out.ConnectionLimits = &circuitbreaker.ConnectionLimits{
			MaxConnections: t.MaxConnections, MaxPendingRequests: t.MaxPendingRequests, MaxRetries: t.MaxRetries, MaxRequests: t.MaxRequests,
		}
	}
	d := c.Detectors
	if d == nil {
		return out
	}
	into := &circuitbreaker.Detectors{TotalFailures: d.TotalErrors, GatewayFailures: d.GatewayErrors, LocalOriginFailures: d.LocalErrors}
	if s := d.StandardDeviation; s != nil {
		into.SuccessRate = &circuitbreaker.SuccessRate{MinimumHosts: s.MinimumHosts, RequestVolume: s.RequestVolume, StandardDeviationFactor: s.Factor}
	}
	if d.Failure != nil {
		into.FailurePercentage = new(*d.Failure)
	}
	out.OutlierDetection = &circuitbreaker.OutlierDetection{
		Interval: c.Interval, BaseEjectionTime: c.BaseEjectionTime, MaxEjectionPercent: c.MaxEjectionPercent,
		SplitExternalAndLocalErrors: c.SplitExternalAndLocalErrors, Detectors: into,
	}
	return out
}
