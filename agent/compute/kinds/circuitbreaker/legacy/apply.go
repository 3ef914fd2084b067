// Package legacy is CircuitBreaker, which MeshCircuitBreaker replaces: its conf, its effect and its
// migration.
//
// Its policies act on the clusters of outbounds. The two halves, limits and outlier detection, are
// independent: what CircuitBreaker says about one of them is superseded by a MeshCircuitBreaker
// that selects the proxy and speaks of it.
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
		limits, outlier = speaks(k.Policies)
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

// breakerOf converts a conf. Its outlier detection is there in any case, with the detectors that
// are not given switched off, and Envoy's own numbers for those that are.
func breakerOf(c *Conf) *circuitbreaker.Breaker {
	d, with := toolkit.Or(c.Detectors, Detectors{}), *c
	with.Detectors = &d
	b := circuitbreaker.BreakerOf(with.current())
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

// speaks says which halves MeshCircuitBreakers speak of, about whatever.
func speaks(policies []*resource.Resource) (limits, outlier bool) {
	for _, p := range policies {
		spec, ok := p.Spec.(*resource.Policy)
		if !ok {
			continue
		}
		for _, item := range slices.Concat(spec.Arriving(), spec.To) {
			if conf, ok := item.Conf.(*circuitbreaker.Conf); ok {
				limits = limits || conf.ConnectionLimits != nil
				outlier = outlier || conf.OutlierDetection != nil
			}
		}
	}
	return limits, outlier
}

// supersededBy returns what keeps a field of a CircuitBreaker from acting on the cluster of a
// destination: a route that leads there, or the strongest MeshCircuitBreaker that speaks of the
// same half.
func supersededBy(r *policy.Rules, s draft.Service, path string) *resource.Resource {
	k := r.Kind(circuitbreaker.Kind)
	if p := toolkit.SupersedingRoute(r, s); p != nil || k == nil {
		return p
	}
	ofLimits := path == "thresholds" || strings.HasPrefix(path, "thresholds.")
	for _, p := range slices.Backward(k.Policies) {
		if limits, outlier := speaks([]*resource.Resource{p}); ofLimits && limits || !ofLimits && outlier {
			return p
		}
	}
	return nil
}

// Conf is what a CircuitBreaker says about a cluster. Nil leaves Envoy's default.
type Conf struct {
	Interval                    *resource.Duration `json:"interval,omitempty" check:"positive"`
	BaseEjectionTime            *resource.Duration `json:"baseEjectionTime,omitempty" check:"positive"`
	MaxEjectionPercent          *uint32            `json:"maxEjectionPercent,omitempty" check:"percent"`
	SplitExternalAndLocalErrors *bool              `json:"splitExternalAndLocalErrors,omitempty"`
	Detectors                   *Detectors         `json:"detectors,omitempty"`
	Thresholds                  *Thresholds        `json:"thresholds,omitempty"`
}

// Detectors say what makes an endpoint an outlier. Nil switches a detector off; an empty one has
// Envoy's numbers.
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

// current is the conf of a MeshCircuitBreaker with the same values. It shares no part that holds
// some of them.
func (c *Conf) current() *circuitbreaker.Conf {
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
