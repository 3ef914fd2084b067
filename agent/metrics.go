package agent

import (
	"context"
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

var policiesDesc = prometheus.NewDesc("nearside_policies",
	"Stored policies; state is active, rejected when a connected proxy lacks what the policy makes or its Envoy cannot "+
		"write the access log, no-effect if it is in force on no proxy that it selects, shadow, "+
		"or inert for kinds that this version does not act on.",
	[]string{"kind", "state"}, nil)

// policies collects the number of stored policies.
type policies struct{ a *Agent }

func (p policies) Describe(ch chan<- *prometheus.Desc) { ch <- policiesDesc }

func (p policies) Collect(ch chan<- prometheus.Metric) {
	set := p.a.store.Snapshot().Set()
	rejected, lacking := rejectedPolicies(p.a.rollout.Progress(), p.a.Last()), map[resource.Key]bool{}
	if s := p.a.api.Load(); s != nil {
		lacking = s.Lacking(context.Background())
		maps.Copy(rejected, s.Losing())
	}
	for _, d := range p.a.registry.All() {
		if !d.Policy {
			continue
		}
		counts := map[string]int{}
		for _, r := range set.Kind(d.Kind) {
			switch {
			case d.Inert:
				counts["inert"]++
			case r.Shadow():
				counts["shadow"]++
			case rejected[r.Key]:
				counts["rejected"]++
			case lacking[r.Key]:
				counts["no-effect"]++
			default:
				counts["active"]++
			}
		}
		for state, n := range counts {
			ch <- prometheus.MustNewConstMetric(policiesDesc, prometheus.GaugeValue, float64(n), d.Kind, state)
		}
	}
}

var proxiesDesc = prometheus.NewDesc("nearside_proxies",
	"Connected proxies of meshes that exist; state is synced, pending (an answer is outstanding), or rejected.",
	[]string{"mesh", "state"}, nil)

// proxies collects the number of connected proxies by mesh.
type proxies struct{ a *Agent }

func (p proxies) Describe(ch chan<- *prometheus.Desc) { ch <- proxiesDesc }

func (p proxies) Collect(ch chan<- prometheus.Metric) {
	counts := map[string]map[string]int{}
	for _, r := range p.a.store.Snapshot().Set().Kind("Mesh") {
		counts[r.Key.Name] = map[string]int{api.StateSynced: 0, api.StatePending: 0, api.StateRejected: 0}
	}
	for _, x := range p.a.rollout.Progress() {
		states := counts[x.Mesh]
		switch {
		case states == nil || x.State == api.StateDisconnected || x.State == api.StateUnknown:
		case len(x.Rejected) > 0:
			states[api.StateRejected]++
		case x.State != api.StateServing || x.Answered == 0 || len(x.Unanswered) > 0:
			states[api.StatePending]++
		default:
			states[api.StateSynced]++
		}
	}
	for mesh, states := range counts {
		for state, n := range states {
			ch <- prometheus.MustNewConstMetric(proxiesDesc, prometheus.GaugeValue, float64(n), mesh, state)
		}
	}
}

var (
	fileFaultsDesc = prometheus.NewDesc("nearside_resource_file_faults",
		"Faults and conflicts in the current resource files.", nil, nil)
	problemsDesc = prometheus.NewDesc("nearside_problems", "Entries of the list of problems of nearside "+
		"status, by class and severity: error or warning.", []string{"check", "severity"}, nil)
	lastPassDesc = prometheus.NewDesc("nearside_reconcile_last_timestamp_seconds",
		"Time at which the last pass over all meshes ended; 0 if there was none.", nil, nil)
)

// conditions collects the state of files and of the last pass.
type conditions struct{ a *Agent }

func (c conditions) Describe(ch chan<- *prometheus.Desc) {
	ch <- fileFaultsDesc
	ch <- problemsDesc
	ch <- lastPassDesc
}

func (c conditions) Collect(ch chan<- prometheus.Metric) {
	faults, last := 0, 0.0
	for _, f := range c.a.Files() {
		faults += len(f.Faults) + len(f.Conflicts)
	}
	if l := c.a.Last(); l != nil {
		last = float64(l.At.UnixMilli()) / 1000
	}
	ch <- prometheus.MustNewConstMetric(fileFaultsDesc, prometheus.GaugeValue, float64(faults))
	ch <- prometheus.MustNewConstMetric(lastPassDesc, prometheus.GaugeValue, last)
	for k, n := range c.problems() {
		ch <- prometheus.MustNewConstMetric(problemsDesc, prometheus.GaugeValue, float64(n), k[0], k[1])
	}
}

// problems counts the problems by class and severity. It has an entry for each of them.
func (c conditions) problems() map[[2]string]int {
	counts := map[[2]string]int{}
	for _, class := range api.ProblemClasses {
		counts[[2]string{class.Name, api.SeverityError}] = 0
		counts[[2]string{class.Name, api.SeverityWarning}] = 0
	}
	if s := c.a.api.Load(); s != nil {
		for _, p := range s.Status(context.Background()).Problems {
			counts[[2]string{p.Check, p.Severity}]++
		}
	}
	return counts
}

// rejectedPolicies returns the policies that most likely cause rejections by connected proxies,
// those that are not in force because of the host of a proxy, and those with a disabled access log.
func rejectedPolicies(progress []rollout.Progress, last *status.Result) map[resource.Key]bool {
	out := map[resource.Key]bool{}
	for _, p := range progress {
		if p.State == api.StateDisconnected {
			continue
		}
		for _, r := range p.Rejected {
			list := r.Blame
			if r.Substituted() || !api.OfHost(list) {
				list = r.Causes()
			}
			for _, b := range list {
				out[resource.Key{Kind: b.Type, Mesh: b.Mesh, Name: b.Name}] = true
			}
		}
	}
	if last == nil {
		return out
	}
	for _, list := range last.LeftOut {
		for _, l := range list {
			if l.Reason != status.NotReady {
				out[l.Policy] = true
			}
		}
	}
	return out
}
