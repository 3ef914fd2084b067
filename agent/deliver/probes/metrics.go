package probes

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are the metrics of probes.
type counts struct {
	success, failure, skipped, late atomic.Uint64
	passing, failing, pending       atomic.Int64
}

var (
	runsDesc = prometheus.NewDesc("nearside_probes_total",
		"Probes of workloads by result: success, failure, or skipped (the network namespace cannot be entered).",
		[]string{"result"}, nil)
	lateDesc = prometheus.NewDesc("nearside_probes_late_total",
		"Probes of workloads that started late, because too many were running.", nil, nil)
	stateDesc = prometheus.NewDesc("nearside_probed_inbounds",
		"Inbounds whose workload is probed, by state: passing, failing, or pending (no result yet).", []string{"state"}, nil)
)

func (c *counts) Describe(ch chan<- *prometheus.Desc) {
	ch <- runsDesc
	ch <- lateDesc
	ch <- stateDesc
}

func (c *counts) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n *atomic.Uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), labels...)
	}
	counter(runsDesc, &c.success, "success")
	counter(runsDesc, &c.failure, "failure")
	counter(runsDesc, &c.skipped, "skipped")
	counter(lateDesc, &c.late)
	for state, n := range map[string]*atomic.Int64{"passing": &c.passing, "failing": &c.failing, "pending": &c.pending} {
		ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, float64(n.Load()), state)
	}
}

// state returns the number of inbounds in the state of a job.
func (c *counts) state(j *job) *atomic.Int64 {
	switch {
	case !j.known:
		return &c.pending
	case j.ok:
		return &c.passing
	}
	return &c.failing
}
