package legacy

import (
	"fmt"
	"math"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/circuitbreaker"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// never is a number of failures or endpoints that is not reached: a detector that wants it is as
// good as off. What a weaker policy gives cannot be taken away by merging.
const never = math.MaxUint32

// What Envoy takes where a number is not given.
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

// migrate makes a MeshCircuitBreaker of each CircuitBreaker.
func migrate(in *policy.MigrateInput) policy.Migration {
	plan := in.Plan(policy.PlanOptions{Kinds: []string{circuitbreaker.Kind},
		SupersededBy: func(d *resource.Resource) *resource.Resource {
			list := in.Index.Ruled(d, circuitbreaker.Kind)
			if limits, outlier := speaks(list); !limits || !outlier {
				return nil
			}
			return list[len(list)-1]
		}})
	out := policy.Migration{Without: plan.Without}
	m := migration{sameLocal: true}
	out.Policies = toolkit.MigrateOutbound(in, plan, circuitbreaker.Kind, m.conf, m.over)
	out.Changes = changes(m.sameLocal, m.off)
	return out
}

// migration makes confs.
type migration struct {
	sameLocal bool // nothing depends on errors that are split and have no detector of deviations
	off       bool // there are detectors that are off by their numbers
}

// conf says what a CircuitBreaker says. Numbers that a MeshCircuitBreaker does not take are
// replaced.
func (m *migration) conf(old *Conf, notes *[]string) *circuitbreaker.Conf {
	if toolkit.Or(old.SplitExternalAndLocalErrors, false) &&
		(old.Detectors == nil || old.Detectors.StandardDeviation == nil) {
		m.sameLocal = false
	}
	c := old.current()
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

// atLeastOne replaces a number of 0.
func atLeastOne(notes *[]string, field string, n **uint32) {
	if *n != nil && **n == 0 {
		policy.AddNote(notes,
			fmt.Sprintf("conf.%s is 0, which MeshCircuitBreaker does not take: 1 stands in its place", field))
		*n = new(uint32(1))
	}
}

// consecutive gives a detector of failures in a row a number, without which it is off in a
// MeshCircuitBreaker. 0 failures never come.
func (m *migration) consecutive(notes *[]string, field string, c **circuitbreaker.Consecutive) {
	switch {
	case *c == nil:
	case (*c).Consecutive == nil:
		*c = &circuitbreaker.Consecutive{Consecutive: new(uint32(defaultConsecutive))}
	case *(*c).Consecutive == 0:
		policy.AddNote(notes, fmt.Sprintf("conf.detectors.%s.consecutive is 0, by which Envoy never leaves anything out: a "+
			"number that is not reached stands in its place", field))
		m.off = true
		*c = &circuitbreaker.Consecutive{Consecutive: new(uint32(never))}
	}
}

// over gives everything of which a weaker policy speaks, so that nothing of it takes effect:
// source-destination policies are not merged.
func (m *migration) over(c, weak *circuitbreaker.Conf, notes *[]string) {
	if w := weak.ConnectionLimits; w != nil {
		if c.ConnectionLimits == nil {
			c.ConnectionLimits = &circuitbreaker.ConnectionLimits{}
		}
		l := c.ConnectionLimits
		toolkit.Give(&l.MaxConnections, w.MaxConnections, defaultLimit)
		toolkit.Give(&l.MaxPendingRequests, w.MaxPendingRequests, defaultLimit)
		toolkit.Give(&l.MaxRequests, w.MaxRequests, defaultLimit)
		toolkit.Give(&l.MaxRetries, w.MaxRetries, defaultRetries)
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
	toolkit.Give(&o.Disabled, w.Disabled, false)
	toolkit.Give(&o.Interval, w.Interval, resource.Duration{Duration: defaultInterval})
	toolkit.Give(&o.BaseEjectionTime, w.BaseEjectionTime, resource.Duration{Duration: defaultEjection})
	toolkit.Give(&o.MaxEjectionPercent, w.MaxEjectionPercent, defaultPercent)
	toolkit.Give(&o.SplitExternalAndLocalErrors, w.SplitExternalAndLocalErrors, false)
	if w.Detectors != nil {
		m.detectors(o.Detectors, w.Detectors, notes)
	}
}

func (m *migration) detectors(d, weak *circuitbreaker.Detectors, notes *[]string) {
	off := false
	for _, f := range []struct {
		own  **circuitbreaker.Consecutive
		weak *circuitbreaker.Consecutive
	}{
		{&d.TotalFailures, weak.TotalFailures}, {&d.GatewayFailures, weak.GatewayFailures},
		{&d.LocalOriginFailures, weak.LocalOriginFailures},
	} {
		if *f.own == nil && f.weak != nil {
			*f.own, off = &circuitbreaker.Consecutive{Consecutive: new(uint32(never))}, true
		}
	}
	if w := weak.SuccessRate; w != nil {
		if d.SuccessRate == nil {
			d.SuccessRate, off = &circuitbreaker.SuccessRate{MinimumHosts: new(uint32(never))}, true
		}
		toolkit.Give(&d.SuccessRate.MinimumHosts, w.MinimumHosts, defaultHosts)
		toolkit.Give(&d.SuccessRate.RequestVolume, w.RequestVolume, defaultSuccesses)
		toolkit.Give(&d.SuccessRate.StandardDeviationFactor, w.StandardDeviationFactor, resource.NewDecimal(defaultDeviation))
	}
	if w := weak.FailurePercentage; w != nil {
		if d.FailurePercentage == nil {
			d.FailurePercentage, off = &circuitbreaker.FailurePercentage{MinimumHosts: new(uint32(never))}, true
		}
		toolkit.Give(&d.FailurePercentage.MinimumHosts, w.MinimumHosts, defaultHosts)
		toolkit.Give(&d.FailurePercentage.RequestVolume, w.RequestVolume, defaultFailures)
		toolkit.Give(&d.FailurePercentage.Threshold, w.Threshold, defaultThreshold)
	}
	if off {
		m.off = true
		policy.AddNote(notes, fmt.Sprintf("a weaker policy has detectors that this one has not, "+
			"and merging cannot take them away: they are given numbers that are not reached (%d)", uint32(never)))
	}
}

// changes explains what is written in another way. sameLocal is true where nothing depends on
// errors that are split and have no detector of deviations, and off where detectors are off by
// their numbers.
func changes(sameLocal, off bool) []policy.Change {
	const at, explicit = "Cluster/*/outlierDetection", "Envoy's default, written out"
	out := []policy.Change{
		{Path: at, Before: policy.Any, Same: sameLocal,
			Why: "CircuitBreaker wrote an outlier detection with every detector off, MeshCircuitBreaker writes none"},
		{Path: at + "/enforcingLocalOriginSuccessRate", After: "0", Same: sameLocal,
			Why: "a detector that is off is written so; CircuitBreaker left Envoy's default, " +
				"which counts with splitExternalAndLocalErrors alone"},
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
		const why = "a detector that is off by its number, which is not reached"
		if f[0] != "" {
			out = append(out, policy.Change{Path: at + "/" + f[0], After: fmt.Sprint(uint32(never)), Same: true, Why: why},
				policy.Change{Path: at + "/" + f[0], Before: "0", After: fmt.Sprint(uint32(never)), Same: true, Why: why})
		}
		out = append(out, policy.Change{Path: at + "/" + f[1], Before: "0", After: "100", Same: true, Why: why},
			policy.Change{Path: at + "/" + f[1], After: "100", Same: true, Why: why})
	}
	return out
}
