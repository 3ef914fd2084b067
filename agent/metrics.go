package agent

import (
	"github.com/prometheus/client_golang/prometheus"
)

var policiesDesc = prometheus.NewDesc("nearside_policies",
	"Stored policies; state is active, shadow, or inert for kinds that this version does not act on.", []string{"kind", "state"}, nil)

// policies counts the stored policies whenever metrics are read.
type policies struct{ a *Agent }

func (p policies) Describe(ch chan<- *prometheus.Desc) { ch <- policiesDesc }

func (p policies) Collect(ch chan<- prometheus.Metric) {
	set := p.a.store.Snapshot().Set()
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
			default:
				counts["active"]++
			}
		}
		for state, n := range counts {
			ch <- prometheus.MustNewConstMetric(policiesDesc, prometheus.GaugeValue, float64(n), d.Kind, state)
		}
	}
}
