package circuitbreaker

import "github.com/nearside-mesh/nearside/agent/resource"

// LegacyConf is what a CircuitBreaker says about a cluster. Nil leaves Envoy's default.
type LegacyConf struct {
	Interval                    *resource.Duration `json:"interval,omitempty"`
	BaseEjectionTime            *resource.Duration `json:"baseEjectionTime,omitempty"`
	MaxEjectionPercent          *uint32            `json:"maxEjectionPercent,omitempty"`
	SplitExternalAndLocalErrors *bool              `json:"splitExternalAndLocalErrors,omitempty"`
	Detectors                   *LegacyDetectors   `json:"detectors,omitempty"`
	Thresholds                  *LegacyThresholds  `json:"thresholds,omitempty"`
}

// LegacyDetectors say what makes an endpoint an outlier. Nil switches a detector off; an empty one has Envoy's numbers.
type LegacyDetectors struct {
	TotalErrors       *Consecutive       `json:"totalErrors,omitempty"`
	GatewayErrors     *Consecutive       `json:"gatewayErrors,omitempty"`
	LocalErrors       *Consecutive       `json:"localErrors,omitempty"`
	StandardDeviation *LegacyDeviation   `json:"standardDeviation,omitempty"`
	Failure           *FailurePercentage `json:"failure,omitempty"`
}

// LegacyDeviation detects endpoints whose share of successes lies below the mean of all.
type LegacyDeviation struct {
	RequestVolume *uint32           `json:"requestVolume,omitempty"`
	MinimumHosts  *uint32           `json:"minimumHosts,omitempty"`
	Factor        *resource.Decimal `json:"factor,omitempty"`
}

// LegacyThresholds bound what a cluster may have at a time.
type LegacyThresholds struct {
	MaxConnections     *uint32 `json:"maxConnections,omitempty"`
	MaxPendingRequests *uint32 `json:"maxPendingRequests,omitempty"`
	MaxRetries         *uint32 `json:"maxRetries,omitempty"`
	MaxRequests        *uint32 `json:"maxRequests,omitempty"`
}

// Validate checks that something is said, and the numbers.
func (c *LegacyConf) Validate(v *resource.Validator) {
	if c.Detectors == nil && c.Thresholds == nil {
		v.Faultf("the policy says nothing: give detectors, thresholds or both")
	}
	v.Field("interval").Positive(c.Interval)
	v.Field("baseEjectionTime").Positive(c.BaseEjectionTime)
	v.Field("maxEjectionPercent").Percent(c.MaxEjectionPercent)
	if d := c.Detectors; d != nil {
		at := v.Field("detectors")
		if *d == (LegacyDetectors{}) {
			at.Faultf("no detector is given: give totalErrors, gatewayErrors, localErrors, standardDeviation or failure")
		}
		if d.StandardDeviation != nil && d.StandardDeviation.Factor != nil {
			f := d.StandardDeviation.Factor
			validateFactor(at.Field("standardDeviation").Field("factor"), f.Float(), f)
		}
		if d.Failure != nil {
			at.Field("failure").Field("threshold").Percent(d.Failure.Threshold)
		}
	}
	if t := c.Thresholds; t != nil && *t == (LegacyThresholds{}) {
		v.Field("thresholds").Faultf("no limit is given: give maxConnections, maxPendingRequests, maxRetries or maxRequests")
	}
}
