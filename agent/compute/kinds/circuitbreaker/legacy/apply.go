// Package legacy implements CircuitBreaker, which MeshCircuitBreaker replaces: its conf, effect,
// and migration.
//
// CircuitBreaker policies affect the clusters of outbounds. Limits and outlier detection are
// independent: each is superseded if a MeshCircuitBreaker that selects the proxy sets it.
package legacy

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/circuitbreaker"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "CircuitBreaker"

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "circuit-breakers", "", resource.LegacyShape{
			NewConf: func() resource.Conf { return new(Conf) }, ConfRequired: true,
		}),
		SupersededBy: supersededBy,
		Apply:        apply,
		Migrate:      migrate,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	if !c.Rules.Legacy(kind) {
		return
	}
	var limits, outlier bool
	if k := c.Rules.Kind(circuitbreaker.Kind); k != nil {
		limits, outlier = halves(k.Policies)
	}
	if limits && outlier {
		return
	}
	memo := map[*Conf]*circuitbreaker.Breaker{}
	for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
		if cl.Service.Kind != mesh.KindTag || toolkit.SupersedingRoute(c.Rules, cl.Service) != nil {
			continue
		}
		conf := toolkit.LegacyConf[Conf](c.Rules.LegacyOutbound(kind, cl.Service.Name))
		toolkit.Once(memo, conf, func(conf *Conf) *circuitbreaker.Breaker {
			b := breakerOf(conf)
			if limits {
				b.Limits = nil
			}
			if outlier {
				b.Outlier = nil
			}
			return b
		}).Put(cl.Message)
	}
}

// breakerOf converts a conf. The result always has outlier detection. Detectors that the conf does
// not set are disabled, and unset numbers of the others have Envoy's defaults.
func breakerOf(c *Conf) *circuitbreaker.Breaker {
	d, with := toolkit.Or(c.Detectors, Detectors{}), *c
	with.Detectors = &d
	b := circuitbreaker.BreakerOf(with.converted())
	b.Outlier.EnforcingConsecutive_5Xx = circuitbreaker.Enforcing(d.TotalErrors != nil)
	b.Outlier.EnforcingConsecutiveGatewayFailure = circuitbreaker.Enforcing(d.GatewayErrors != nil)
	b.Outlier.EnforcingConsecutiveLocalOriginFailure = circuitbreaker.Enforcing(d.LocalErrors != nil)
	if d.StandardDeviation == nil {
		b.Outlier.EnforcingLocalOriginSuccessRate = nil
	}
	if d.Failure == nil {
		b.Outlier.EnforcingFailurePercentageLocalOrigin = nil
	}
	return b
}

// halves reports which halves, limits and outlier detection, any item of the MeshCircuitBreakers
// sets.
func halves(policies []*resource.Resource) (limits, outlier bool) {
	for _, p := range policies {
		spec, ok := p.Spec.(*resource.Policy)
		if !ok {
			continue
		}
		for _, item := range slices.Concat(spec.InboundItems(), spec.To) {
			if conf, ok := item.Conf.(*circuitbreaker.Conf); ok {
				limits = limits || conf.ConnectionLimits != nil
				outlier = outlier || conf.OutlierDetection != nil
			}
		}
	}
	return limits, outlier
}

// supersededBy returns the policy that overrides a field of a CircuitBreaker for a destination: a
// route, or the strongest MeshCircuitBreaker that sets the same half.
func supersededBy(r *policy.Rules, s draft.Service, path string) *resource.Resource {
	k := r.Kind(circuitbreaker.Kind)
	if p := toolkit.SupersedingRoute(r, s); p != nil || k == nil {
		return p
	}
	ofLimits := path == "thresholds" || strings.HasPrefix(path, "thresholds.")
	for _, p := range slices.Backward(k.Policies) {
		if limits, outlier := halves([]*resource.Resource{p}); ofLimits && limits || !ofLimits && outlier {
			return p
		}
	}
	return nil
}

// Conf is the conf of a CircuitBreaker. Unset fields have Envoy's defaults.
type Conf struct {
	Interval                    *resource.Duration `json:"interval,omitempty" check:"positive"`
	BaseEjectionTime            *resource.Duration `json:"baseEjectionTime,omitempty" check:"positive"`
	MaxEjectionPercent          *uint32            `json:"maxEjectionPercent,omitempty" check:"percent"`
	SplitExternalAndLocalErrors *bool              `json:"splitExternalAndLocalErrors,omitempty"`
	Detectors                   *Detectors         `json:"detectors,omitempty"`
	Thresholds                  *Thresholds        `json:"thresholds,omitempty"`
}

// Detectors define when an endpoint is an outlier. A nil detector is disabled. Unset numbers have
// Envoy's defaults.
type Detectors struct {
	TotalErrors       *circuitbreaker.Consecutive       `json:"totalErrors,omitempty"`
	GatewayErrors     *circuitbreaker.Consecutive       `json:"gatewayErrors,omitempty"`
	LocalErrors       *circuitbreaker.Consecutive       `json:"localErrors,omitempty"`
	StandardDeviation *Deviation                        `json:"standardDeviation,omitempty"`
	Failure           *circuitbreaker.FailurePercentage `json:"failure,omitempty"`
}

// Deviation detects endpoints whose success rate is below the mean.
type Deviation struct {
	RequestVolume *uint32           `json:"requestVolume,omitempty"`
	MinimumHosts  *uint32           `json:"minimumHosts,omitempty"`
	Factor        *resource.Decimal `json:"factor,omitempty"`
}

// Thresholds limit the concurrent use of a cluster.
type Thresholds struct {
	MaxConnections     *uint32 `json:"maxConnections,omitempty"`
	MaxPendingRequests *uint32 `json:"maxPendingRequests,omitempty"`
	MaxRetries         *uint32 `json:"maxRetries,omitempty"`
	MaxRequests        *uint32 `json:"maxRequests,omitempty"`
}

// Validate checks that the conf is not empty and that numbers are valid.
func (c *Conf) Validate(v *resource.Validator) {
	if c.Detectors == nil && c.Thresholds == nil {
		v.Faultf("the conf is empty: give detectors, thresholds or both")
	}
	if d := c.Detectors; d != nil {
		at := v.Field("detectors")
		if *d == (Detectors{}) {
			at.Faultf("no detector is given: give totalErrors, gatewayErrors, localErrors, standardDeviation or failure")
		}
		if s := d.StandardDeviation; s != nil {
			circuitbreaker.CheckFactor(at.Field("standardDeviation").Field("factor"), s.Factor)
		}
	}
	if t := c.Thresholds; t != nil && *t == (Thresholds{}) {
		v.Field("thresholds").Faultf("no limit is given: give maxConnections, maxPendingRequests, maxRetries or maxRequests")
	}
}

// converted returns the conf of a MeshCircuitBreaker with the same values. The result shares no
// struct with several fields.
func (c *Conf) converted() *circuitbreaker.Conf {
	out := &circuitbreaker.Conf{}
	if t := c.Thresholds; t != nil {
		out.ConnectionLimits = &circuitbreaker.ConnectionLimits{
			MaxConnections: t.MaxConnections, MaxPendingRequests: t.MaxPendingRequests, MaxRetries: t.MaxRetries,
			MaxRequests: t.MaxRequests,
		}
	}
	d := c.Detectors
	if d == nil {
		return out
	}
	into := &circuitbreaker.Detectors{TotalFailures: d.TotalErrors, GatewayFailures: d.GatewayErrors,
		LocalOriginFailures: d.LocalErrors}
	if s := d.StandardDeviation; s != nil {
		into.SuccessRate = &circuitbreaker.SuccessRate{MinimumHosts: s.MinimumHosts, RequestVolume: s.RequestVolume,
			StandardDeviationFactor: s.Factor}
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
