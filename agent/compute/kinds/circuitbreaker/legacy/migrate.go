package legacy

import (
	"fmt"
	"math"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/circuitbreaker"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/value"
)

// never is a number of failures or endpoints that is never reached. It disables a detector that a
// weaker policy sets, because merging cannot unset a field.
const never = math.MaxUint32

// Envoy's defaults for unset numbers.
const (
	defaultLimit       = 1024
	defaultRetries     = 3
	defaultInterval    = 10 * time.Second
	defaultEjection    = 30 * time.Second
	defaultPercent     = 10
	defaultConsecutive = 5
	defaultHosts       = 5
	defaultSuccesses   = 100 // requests
	defaultDeviation   = 1.9
	defaultFailures    = 50 // requests
	defaultThreshold   = 85
)

// migrate returns a MeshCircuitBreaker for each CircuitBreaker.
func migrate(in *policy.MigrateInput) policy.Migration {
	plan := successor.NewPlan(in, successor.PlanOptions{Kinds: []string{circuitbreaker.Kind},
		SupersededBy: func(d *resource.Resource) *resource.Resource {
			list := in.Index.Ruled(d, circuitbreaker.Kind)
			if limits, outlier := halves(list); !limits || !outlier {
				return nil
			}
			return list[len(list)-1]
		}})
	out := policy.Migration{Without: plan.Without}
	m := migration{sameLocal: true}
	out.Policies = toolkit.MigrateOutbound(in, plan, circuitbreaker.Kind, m.conf, m.override)
	out.Changes = changes(m.sameLocal, m.off)
	return out
}

// migration converts confs.
type migration struct {
	sameLocal bool // no conf splits local errors without a deviation detector
	off       bool // some detectors are disabled by never
}

// conf converts a CircuitBreaker. It replaces numbers that a MeshCircuitBreaker does not accept.
func (m *migration) conf(old *Conf, notes *[]string) *circuitbreaker.Conf {
	if toolkit.Or(old.SplitExternalAndLocalErrors, false) &&
		(old.Detectors == nil || old.Detectors.StandardDeviation == nil) {
		m.sameLocal = false
	}
	c := old.converted()
	if l := c.ConnectionLimits; l != nil {
		atLeastOne(notes, "thresholds.maxConnections", &l.MaxConnections)
		atLeastOne(notes, "thresholds.maxPendingRequests", &l.MaxPendingRequests)
		atLeastOne(notes, "thresholds.maxRetries", &l.MaxRetries)
		atLeastOne(notes, "thresholds.maxRequests", &l.MaxRequests)
	}
	if c.OutlierDetection == nil {
		return c
	}
	d := c.OutlierDetection.Detectors
	m.consecutive(notes, "totalErrors", &d.TotalFailures)
	m.consecutive(notes, "gatewayErrors", &d.GatewayFailures)
	m.consecutive(notes, "localErrors", &d.LocalOriginFailures)
	if s := d.SuccessRate; s != nil {
		atLeastOne(notes, "detectors.standardDeviation.minimumHosts", &s.MinimumHosts)
		atLeastOne(notes, "detectors.standardDeviation.requestVolume", &s.RequestVolume)
	}
	if f := d.FailurePercentage; f != nil {
		atLeastOne(notes, "detectors.failure.minimumHosts", &f.MinimumHosts)
		atLeastOne(notes, "detectors.failure.requestVolume", &f.RequestVolume)
	}
	return c
}

// atLeastOne replaces 0 by 1.
func atLeastOne(notes *[]string, field string, n **uint32) {
	if *n != nil && **n == 0 {
		successor.AddNote(notes,
			fmt.Sprintf("conf.%s is 0, which MeshCircuitBreaker does not accept, so this policy sets 1", field))
		*n = new(uint32(1))
	}
}

// consecutive sets the number of a detector of consecutive failures, without which a
// MeshCircuitBreaker disables it. 0 becomes never.
func (m *migration) consecutive(notes *[]string, field string, c **circuitbreaker.Consecutive) {
	switch {
	case *c == nil:
	case (*c).Consecutive == nil:
		*c = &circuitbreaker.Consecutive{Consecutive: new(uint32(defaultConsecutive))}
	case *(*c).Consecutive == 0:
		successor.AddNote(notes,
			fmt.Sprintf("conf.detectors.%s.consecutive is 0, with which Envoy never ejects an endpoint, so "+
				"this policy sets a number that is never reached", field))
		m.off = true
		*c = &circuitbreaker.Consecutive{Consecutive: new(uint32(never))}
	}
}

// override sets every field that a policy with lower precedence sets and c does not, because
// targetRef policies are merged.
func (m *migration) override(c, weak *circuitbreaker.Conf, notes *[]string) {
	if w := weak.ConnectionLimits; w != nil {
		if c.ConnectionLimits == nil {
			c.ConnectionLimits = &circuitbreaker.ConnectionLimits{}
		}
		l := c.ConnectionLimits
		toolkit.Override(&l.MaxConnections, w.MaxConnections, defaultLimit)
		toolkit.Override(&l.MaxPendingRequests, w.MaxPendingRequests, defaultLimit)
		toolkit.Override(&l.MaxRequests, w.MaxRequests, defaultLimit)
		toolkit.Override(&l.MaxRetries, w.MaxRetries, defaultRetries)
	}
	w := weak.OutlierDetection
	if w == nil {
		return
	}
	o := c.OutlierDetection
	if o == nil {
		c.OutlierDetection = &circuitbreaker.OutlierDetection{Disabled: new(true)}
		return
	}
	if toolkit.Or(o.Disabled, false) {
		return
	}
	toolkit.Override(&o.Disabled, w.Disabled, false)
	toolkit.Override(&o.Interval, w.Interval, resource.Duration{Duration: defaultInterval})
	toolkit.Override(&o.BaseEjectionTime, w.BaseEjectionTime, resource.Duration{Duration: defaultEjection})
	toolkit.Override(&o.MaxEjectionPercent, w.MaxEjectionPercent, defaultPercent)
	toolkit.Override(&o.SplitExternalAndLocalErrors, w.SplitExternalAndLocalErrors, false)
	if w.Detectors != nil {
		m.detectors(o.Detectors, w.Detectors, notes)
	}
}

func (m *migration) detectors(d, weak *circuitbreaker.Detectors, notes *[]string) {
	off := false
	for _, f := range []struct {
		field **circuitbreaker.Consecutive
		weak  *circuitbreaker.Consecutive
	}{
		{&d.TotalFailures, weak.TotalFailures}, {&d.GatewayFailures, weak.GatewayFailures},
		{&d.LocalOriginFailures, weak.LocalOriginFailures},
	} {
		if *f.field == nil && f.weak != nil {
			*f.field, off = &circuitbreaker.Consecutive{Consecutive: new(uint32(never))}, true
		}
	}
	if w := weak.SuccessRate; w != nil {
		if d.SuccessRate == nil {
			d.SuccessRate, off = &circuitbreaker.SuccessRate{MinimumHosts: new(uint32(never))}, true
		}
		toolkit.Override(&d.SuccessRate.MinimumHosts, w.MinimumHosts, defaultHosts)
		toolkit.Override(&d.SuccessRate.RequestVolume, w.RequestVolume, defaultSuccesses)
		toolkit.Override(&d.SuccessRate.StandardDeviationFactor, w.StandardDeviationFactor,
			value.NewDecimal(defaultDeviation))
	}
	if w := weak.FailurePercentage; w != nil {
		if d.FailurePercentage == nil {
			d.FailurePercentage, off = &circuitbreaker.FailurePercentage{MinimumHosts: new(uint32(never))}, true
		}
		toolkit.Override(&d.FailurePercentage.MinimumHosts, w.MinimumHosts, defaultHosts)
		toolkit.Override(&d.FailurePercentage.RequestVolume, w.RequestVolume, defaultFailures)
		toolkit.Override(&d.FailurePercentage.Threshold, w.Threshold, defaultThreshold)
	}
	if off {
		m.off = true
		successor.AddNote(notes,
			fmt.Sprintf("a policy with lower precedence sets detectors that this one does not, and merging cannot unset "+
				"them, so this policy disables them with a number that is never reached (%d)", uint32(never)))
	}
}

// changes explains the differences between the config of MeshCircuitBreaker and CircuitBreaker.
// sameLocal is true if no conf splits local errors without a deviation detector. off is true if
// some detectors are disabled by never.
func changes(sameLocal, off bool) []policy.Change {
	const at, explicit = "Cluster/*/outlierDetection", "Envoy's default, set explicitly"
	out := []policy.Change{
		{Path: at, Before: policy.Any, Same: sameLocal,
			Why: "CircuitBreaker sets an outlier detection with all detectors disabled, MeshCircuitBreaker sets none"},
		{Path: at + "/enforcingLocalOriginSuccessRate", After: "0", Same: sameLocal,
			Why: "MeshCircuitBreaker disables an unused detector explicitly; CircuitBreaker left Envoy's default, " +
				"which has an effect only with splitExternalAndLocalErrors"},
		{Path: at + "/enforcingFailurePercentageLocalOrigin", After: "0", Same: true, Why: explicit},
	}
	for _, f := range []struct {
		path string
		n    int
	}{
		{"circuitBreakers/thresholds/0/maxConnections", defaultLimit},
		{"circuitBreakers/thresholds/0/maxPendingRequests", defaultLimit},
		{"circuitBreakers/thresholds/0/maxRequests", defaultLimit},
		{"circuitBreakers/thresholds/0/maxRetries", defaultRetries},
		{"outlierDetection/maxEjectionPercent", defaultPercent}, {"outlierDetection/consecutive5xx", defaultConsecutive},
		{"outlierDetection/consecutiveGatewayFailure", defaultConsecutive},
		{"outlierDetection/consecutiveLocalOriginFailure", defaultConsecutive},
		{"outlierDetection/successRateMinimumHosts", defaultHosts},
		{"outlierDetection/successRateRequestVolume", defaultSuccesses},
		{"outlierDetection/successRateStdevFactor", defaultDeviation * 1000},
		{"outlierDetection/failurePercentageMinimumHosts", defaultHosts},
		{"outlierDetection/failurePercentageRequestVolume", defaultFailures},
		{"outlierDetection/failurePercentageThreshold", defaultThreshold},
	} {
		out = append(out, policy.Change{Path: "Cluster/*/" + f.path, After: fmt.Sprint(f.n), Same: true, Why: explicit})
	}
	out = append(out,
		policy.Change{Path: at + "/interval", After: `"10s"`, Same: true, Why: explicit},
		policy.Change{Path: at + "/baseEjectionTime", After: `"30s"`, Same: true, Why: explicit})
	if !off {
		return out
	}
	for _, f := range [][2]string{
		{"consecutive5xx", "enforcingConsecutive5xx"}, {"consecutiveGatewayFailure", "enforcingConsecutiveGatewayFailure"},
		{"consecutiveLocalOriginFailure", "enforcingConsecutiveLocalOriginFailure"},
		{"successRateMinimumHosts", "enforcingSuccessRate"},
		{"", "enforcingLocalOriginSuccessRate"}, {"failurePercentageMinimumHosts", "enforcingFailurePercentage"},
		{"", "enforcingFailurePercentageLocalOrigin"},
	} {
		const why = "the detector is disabled by a number that is never reached"
		if f[0] != "" {
			out = append(out, policy.Change{Path: at + "/" + f[0], After: fmt.Sprint(uint32(never)), Same: true, Why: why},
				policy.Change{Path: at + "/" + f[0], Before: "0", After: fmt.Sprint(uint32(never)), Same: true, Why: why})
		}
		out = append(out, policy.Change{Path: at + "/" + f[1], Before: "0", After: "100", Same: true, Why: why},
			policy.Change{Path: at + "/" + f[1], After: "100", Same: true, Why: why})
	}
	return out
}
