package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/xds"
)

var policiesDesc = prometheus.NewDesc("nearside_policies",
	"Stored policies; state is active, rejected when a connected proxy refuses what the policy makes, shadow, or inert for kinds that this version does not act on.", []string{"kind", "state"}, nil)

// policies counts the stored policies whenever metrics are read.
type policies struct{ a *Agent }

func (p policies) Describe(ch chan<- *prometheus.Desc) { ch <- policiesDesc }

func (p policies) Collect(ch chan<- prometheus.Metric) {
	set := p.a.store.Snapshot().Set()
	rejected := rejectedPolicies(p.a.xds.Progress())
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
			default:
				counts["active"]++
			}
		}
		for state, n := range counts {
			ch <- prometheus.MustNewConstMetric(policiesDesc, prometheus.GaugeValue, float64(n), d.Kind, state)
		}
	}
}

// rejectedPolicies are those that connected proxies most likely reject something for.
func rejectedPolicies(progress []xds.Progress) map[resource.Key]bool {
	out := map[resource.Key]bool{}
	for _, p := range progress {
		if p.State == xds.StateDisconnected {
			continue
		}
		for _, r := range p.Rejected {
			for _, b := range xds.Causes(r.Blame) {
				out[resource.Key{Kind: b.Type, Mesh: b.Mesh, Name: b.Name}] = true
			}
		}
	}
	return out
}
