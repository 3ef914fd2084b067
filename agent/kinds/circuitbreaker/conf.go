package circuitbreaker

import (
	"math"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf is what a MeshCircuitBreaker says about a cluster.
type Conf struct {
	ConnectionLimits *ConnectionLimits `json:"connectionLimits,omitempty"`
	OutlierDetection *OutlierDetection `json:"outlierDetection,omitempty"`
}

// ConnectionLimits bound what a cluster may have at a time. Nil leaves Envoy's default: 1024, for retries 3, and no
// bound for pools.
type ConnectionLimits struct {
	MaxConnections     *uint32 `json:"maxConnections,omitempty"`
	MaxConnectionPools *uint32 `json:"maxConnectionPools,omitempty"`
	MaxPendingRequests *uint32 `json:"maxPendingRequests,omitempty"`
	MaxRetries         *uint32 `json:"maxRetries,omitempty"`
	MaxRequests        *uint32 `json:"maxRequests,omitempty"`
}

// OutlierDetection leaves endpoints out that do worse than the others.
type OutlierDetection struct {
	Disabled *bool `json:"disabled,omitempty"`
	// Interval is the time between two looks at the endpoints. Default 10s.
	Interval *resource.Duration `json:"interval,omitempty"`
	// BaseEjectionTime, times the number of ejections, is how long an endpoint is left out. Default 30s.
	BaseEjectionTime *resource.Duration `json:"baseEjectionTime,omitempty"`
	// MaxEjectionPercent is the share of the endpoints that may be left out at a time; one always may. Default 10.
	MaxEjectionPercent *uint32 `json:"maxEjectionPercent,omitempty"`
	// SplitExternalAndLocalErrors counts what this side saw, such as a reset, apart from what the endpoint answered.
	SplitExternalAndLocalErrors *bool      `json:"splitExternalAndLocalErrors,omitempty"`
	Detectors                   *Detectors `json:"detectors,omitempty"`
	// HealthyPanicThreshold is the percentage of endpoints below which those left out are used again. Default 50.
	HealthyPanicThreshold *resource.Decimal `json:"healthyPanicThreshold,omitempty"`
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
	MinimumHosts  *uint32 `json:"minimumHosts,omitempty"`  // endpoints with that many requests. Default 5
	RequestVolume *uint32 `json:"requestVolume,omitempty"` // in an interval. Default 100
	// StandardDeviationFactor times the standard deviation is the distance from the mean. Default 1.9.
	StandardDeviationFactor *resource.Decimal `json:"standardDeviationFactor,omitempty"`
}

// FailurePercentage detects endpoints of whose requests a share fails.
type FailurePercentage struct {
	MinimumHosts  *uint32 `json:"minimumHosts,omitempty"`  // endpoints with that many requests. Default 5
	RequestVolume *uint32 `json:"requestVolume,omitempty"` // in an interval. Default 50
	Threshold     *uint32 `json:"threshold,omitempty"`     // percent of failures. Default 85
}

// Validate checks that something is said, and the numbers.
func (c *Conf) Validate(v *resource.Validator) {
	if c.ConnectionLimits == nil && c.OutlierDetection == nil {
		v.Faultf("the policy says nothing: give connectionLimits, outlierDetection or both")
	}
	if l := c.ConnectionLimits; l != nil {
		at := v.Field("connectionLimits")
		at.Field("maxConnections").AtLeastOne(l.MaxConnections)
		at.Field("maxConnectionPools").AtLeastOne(l.MaxConnectionPools)
		at.Field("maxPendingRequests").AtLeastOne(l.MaxPendingRequests)
		at.Field("maxRetries").AtLeastOne(l.MaxRetries)
		at.Field("maxRequests").AtLeastOne(l.MaxRequests)
	}
	if o := c.OutlierDetection; o != nil {
		o.validate(v.Field("outlierDetection"))
	}
}

func (o *OutlierDetection) validate(v *resource.Validator) {
	v.Field("interval").Positive(o.Interval)
	v.Field("baseEjectionTime").Positive(o.BaseEjectionTime)
	v.Field("maxEjectionPercent").Percent(o.MaxEjectionPercent)
	v.Field("healthyPanicThreshold").Percentage(o.HealthyPanicThreshold)
	at := v.Field("detectors")
	d := o.Detectors
	if d == nil || *d == (Detectors{}) {
		if o.Disabled == nil || !*o.Disabled {
			at.Faultf("no detector is given: give totalFailures, gatewayFailures, localOriginFailures, successRate or failurePercentage, or disabled: true")
		}
		return
	}
	d.TotalFailures.validate(at.Field("totalFailures"))
	d.GatewayFailures.validate(at.Field("gatewayFailures"))
	d.LocalOriginFailures.validate(at.Field("localOriginFailures"))
	if s := d.SuccessRate; s != nil {
		f := at.Field("successRate")
		f.Field("minimumHosts").AtLeastOne(s.MinimumHosts)
		f.Field("requestVolume").AtLeastOne(s.RequestVolume)
		CheckFactor(f.Field("standardDeviationFactor"), s.StandardDeviationFactor)
	}
	if p := d.FailurePercentage; p != nil {
		f := at.Field("failurePercentage")
		f.Field("minimumHosts").AtLeastOne(p.MinimumHosts)
		f.Field("requestVolume").AtLeastOne(p.RequestVolume)
		f.Field("threshold").Percent(p.Threshold)
	}
}

func (c *Consecutive) validate(v *resource.Validator) {
	if c != nil {
		v.Field("consecutive").AtLeastOne(c.Consecutive)
	}
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
