package legacy

import (
	"fmt"
	"math"
	"time"

	"github.com/nearside-mesh/nearside/agent/kinds/circuitbreaker"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// never is a number of failures or endpoints that is not reached: a detector that wants it is as good as off. What a
// weaker policy gives cannot be taken away by merging.
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
	plan := in.Plan(policy.PlanOptions{Kinds: []string{circuitbreaker.Kind}, SupersededBy: func(d *resource.Resource) *resource.Resource {
		list := in.Index.Ruled(d, circuitbreaker.Kind)
		if limits, outlier := speaks(list); !limits || !outlier {
			return nil
		}
		return list[len(list)-1]
	}})
	out := policy.Migration{Without: plan.Without}
	confs := map[*policy.Unit]*circuitbreaker.Conf{}
	sameLocal, off := true, false
	for _, u := range plan.Units { // the weakest first
		old := toolkit.LegacyConf[Conf](u.Policy)
		if old == nil {
			continue
		}
		m := migration{notes: u.Notes}
		conf := m.conf(old)
		for _, w := range u.Weaker {
			m.over(conf, confs[w])
		}
		confs[u], off = conf, off || m.off
		split := toolkit.Or(old.SplitExternalAndLocalErrors, false)
		if split && (old.Detectors == nil || old.Detectors.StandardDeviation == nil) {
			sameLocal = false
		}
		policy.AddNote(&m.notes, in.Reach(u))
		policy.AddNote(&m.notes, in.Routed())
		out.Policies = append(out.Policies, policy.Migrated{
			Kind: circuitbreaker.Kind, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: m.notes,
			Spec: &resource.Policy{TargetRef: &u.Target, To: u.Items(conf)},
		})
	}
	out.Changes = changes(sameLocal, off)
	return out
}

// migration makes one conf.
type migration struct {
	notes []string
	off   bool // there are detectors that are off by their numbers
}

// conf says what a CircuitBreaker says. Numbers that a MeshCircuitBreaker does not take are replaced.
func (m *migration) conf(old *Conf) *circuitbreaker.Conf {
	c := old.current()
	if l := c.ConnectionLimits; l != nil {
		m.atLeastOne("thresholds.maxConnections", &l.MaxConnections)
		m.atLeastOne("thresholds.maxPendingRequests", &l.MaxPendingRequests)
		m.atLeastOne("thresholds.maxRetries", &l.MaxRetries)
		m.atLeastOne("thresholds.maxRequests", &l.MaxRequests)
	}
	if c.OutlierDetection == nil {
		return c
	}
	d := c.OutlierDetection.Detectors
	m.consecutive("totalErrors", &d.TotalFailures)
	m.consecutive("gatewayErrors", &d.GatewayFailures)
	m.consecutive("localErrors", &d.LocalOriginFailures)
	if s := d.SuccessRate; s != nil {
		m.atLeastOne("detectors.standardDeviation.minimumHosts", &s.MinimumHosts)
		m.atLeastOne("detectors.standardDeviation.requestVolume", &s.RequestVolume)
	}
	if f := d.FailurePercentage; f != nil {
		m.atLeastOne("detectors.failure.minimumHosts", &f.MinimumHosts)
		m.atLeastOne("detectors.failure.requestVolume", &f.RequestVolume)
	}
	return c
}

// atLeastOne replaces a number of 0.
func (m *migration) atLeastOne(field string, n **uint32) {
	if *n != nil && **n == 0 {
		policy.AddNote(&m.notes, fmt.Sprintf("conf.%s is 0, which MeshCircuitBreaker does not take: 1 stands in its place", field))
		*n = new(uint32(1))
	}
}

// consecutive gives a detector of failures in a row a number, without which it is off in a MeshCircuitBreaker. 0
// failures never come.
func (m *migration) consecutive(field string, c **circuitbreaker.Consecutive) {
	switch {
	case *c == nil:
	case (*c).Consecutive == nil:
		*c = &circuitbreaker.Consecutive{Consecutive: new(uint32(defaultConsecutive))}
	case *(*c).Consecutive == 0:
		policy.AddNote(&m.notes, fmt.Sprintf("conf.detectors.%s.consecutive is 0, by which Envoy never leaves anything out: a number that is not reached stands in its place", field))
		m.off = true
		*c = &circuitbreaker.Consecutive{Consecutive: new(uint32(never))}
	}
}

// over gives everything of which a weaker policy speaks, so that nothing of it takes effect: source-destination
// policies are not merged.
func (m *migration) over(c, weak *circuitbreaker.Conf) {
	if weak == nil {
		return
	}
	if w := weak.ConnectionLimits; w != nil {
		if c.ConnectionLimits == nil {
			c.ConnectionLimits = &circuitbreaker.ConnectionLimits{}
		}
		l := c.ConnectionLimits
		give(&l.MaxConnections, w.MaxConnections, defaultLimit)
		give(&l.MaxPendingRequests, w.MaxPendingRequests, defaultLimit)
		give(&l.MaxRequests, w.MaxRequests, defaultLimit)
		give(&l.MaxRetries, w.MaxRetries, defaultRetries)
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
	give(&o.Disabled, w.Disabled, false)
	give(&o.Interval, w.Interval, resource.Duration{Duration: defaultInterval})
	give(&o.BaseEjectionTime, w.BaseEjectionTime, resource.Duration{Duration: defaultEjection})
	give(&o.MaxEjectionPercent, w.MaxEjectionPercent, defaultPercent)
	give(&o.SplitExternalAndLocalErrors, w.SplitExternalAndLocalErrors, false)
	if w.Detectors != nil {
		m.detectors(o.Detectors, w.Detectors)
	}
}

func (m *migration) detectors(d, weak *circuitbreaker.Detectors) {
	for _, f := range []struct {
		own  **circuitbreaker.Consecutive
		weak *circuitbreaker.Consecutive
	}{{&d.TotalFailures, weak.TotalFailures}, {&d.GatewayFailures, weak.GatewayFailures}, {&d.LocalOriginFailures, weak.LocalOriginFailures}} {
		if *f.own == nil && f.weak != nil {
			*f.own, m.off = &circuitbreaker.Consecutive{Consecutive: new(uint32(never))}, true
		}
	}
	if w := weak.SuccessRate; w != nil {
		if d.SuccessRate == nil {
			d.SuccessRate, m.off = &circuitbreaker.SuccessRate{MinimumHosts: new(uint32(never))}, true
		}
		give(&d.SuccessRate.MinimumHosts, w.MinimumHosts, defaultHosts)
		give(&d.SuccessRate.RequestVolume, w.RequestVolume, defaultSuccesses)
		give(&d.SuccessRate.StandardDeviationFactor, w.StandardDeviationFactor, resource.NewDecimal(defaultDeviation))
	}
	if w := weak.FailurePercentage; w != nil {
		if d.FailurePercentage == nil {
			d.FailurePercentage, m.off = &circuitbreaker.FailurePercentage{MinimumHosts: new(uint32(never))}, true
		}
		give(&d.FailurePercentage.MinimumHosts, w.MinimumHosts, defaultHosts)
		give(&d.FailurePercentage.RequestVolume, w.RequestVolume, defaultFailures)
		give(&d.FailurePercentage.Threshold, w.Threshold, defaultThreshold)
	}
	if m.off {
		policy.AddNote(&m.notes, fmt.Sprintf("a weaker policy has detectors that this one has not, and merging cannot take them away: they are given numbers that are not reached (%d)", uint32(never)))
	}
}

// give sets a field that is open and of which a weaker policy speaks.
func give[T any](field **T, weak *T, v T) {
	if *field == nil && weak != nil {
		*field = &v
	}
}

// changes explains what is written in another way. sameLocal is true where nothing depends on errors that are split
// and have no detector of deviations, and off where detectors are off by their numbers.
func changes(sameLocal, off bool) []policy.Change {
	const at, explicit = "Cluster/*/outlierDetection", "Envoy's default, written out"
	out := []policy.Change{
		{Path: at, Before: policy.Any, Same: sameLocal, Why: "CircuitBreaker wrote an outlier detection with every detector off, MeshCircuitBreaker writes none"},
		{Path: at + "/enforcingLocalOriginSuccessRate", After: "0", Same: sameLocal,
			Why: "a detector that is off is written so; CircuitBreaker left Envoy's default, which counts with splitExternalAndLocalErrors alone"},
		{Path: at + "/enforcingFailurePercentageLocalOrigin", After: "0", Same: true, Why: explicit},
	}
	for _, f := range []struct {
		path string
		n    int
	}{
		{"circuitBreakers/thresholds/0/maxConnections", defaultLimit}, {"circuitBreakers/thresholds/0/maxPendingRequests", defaultLimit},
		{"circuitBreakers/thresholds/0/maxRequests", defaultLimit}, {"circuitBreakers/thresholds/0/maxRetries", defaultRetries},
		{"outlierDetection/maxEjectionPercent", defaultPercent}, {"outlierDetection/consecutive5xx", defaultConsecutive},
		{"outlierDetection/consecutiveGatewayFailure", defaultConsecutive}, {"outlierDetection/consecutiveLocalOriginFailure", defaultConsecutive},
		{"outlierDetection/successRateMinimumHosts", defaultHosts}, {"outlierDetection/successRateRequestVolume", defaultSuccesses},
		{"outlierDetection/successRateStdevFactor", defaultDeviation * 1000}, {"outlierDetection/failurePercentageMinimumHosts", defaultHosts},
		{"outlierDetection/failurePercentageRequestVolume", defaultFailures}, {"outlierDetection/failurePercentageThreshold", defaultThreshold},
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
		{"consecutiveLocalOriginFailure", "enforcingConsecutiveLocalOriginFailure"}, {"successRateMinimumHosts", "enforcingSuccessRate"},
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
