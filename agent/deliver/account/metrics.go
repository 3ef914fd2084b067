package account

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	gapsDesc = prometheus.NewDesc("nearside_log_listeners_without_log",
		"Listeners that have no access log, because its destination is not ready.", nil, nil)
	unloggedConnectionsDesc = prometheus.NewDesc("nearside_log_unlogged_connections_total",
		"Connections of listeners while they had no access log, as reported by the Envoys.", nil, nil)
	unloggedRequestsDesc = prometheus.NewDesc("nearside_log_unlogged_requests_total",
		"Requests of listeners while they had no access log, as reported by the Envoys.", nil, nil)
	stalledDesc = prometheus.NewDesc("nearside_log_stalled_seconds",
		"Time since a collector acknowledged a line, while lines wait for it.", []string{"destination"}, nil)
)

// Describe implements [prometheus.Collector].
func (a *Account) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{gapsDesc, unloggedConnectionsDesc, unloggedRequestsDesc, stalledDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (a *Account) Collect(ch chan<- prometheus.Metric) {
	a.observe()
	sum := a.Unrecorded()
	ch <- prometheus.MustNewConstMetric(gapsDesc, prometheus.GaugeValue, float64(len(a.Gaps())))
	ch <- prometheus.MustNewConstMetric(unloggedConnectionsDesc, prometheus.CounterValue, float64(sum.Connections))
	ch <- prometheus.MustNewConstMetric(unloggedRequestsDesc, prometheus.CounterValue, float64(sum.Requests))
	for destination, idle := range a.Stalled() {
		ch <- prometheus.MustNewConstMetric(stalledDesc, prometheus.GaugeValue, idle.Seconds(), destination)
	}
}
