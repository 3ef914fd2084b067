package rollout

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// metrics are the metrics of all proxies. No label depends on a client.
type metrics struct {
	nacks   *prometheus.CounterVec // type
	refused *prometheus.CounterVec // type
	proxies prometheus.Gauge
	wait    prometheus.Histogram
}

// typeLabels are the values of the label "type", by rank.
var typeLabels = [...]string{"secret", "cluster", "endpoint", "listener", "route"}

// newMetrics registers the metrics, including the collector of held resources.
func newMetrics(r prometheus.Registerer, held prometheus.Collector, log *slog.Logger) *metrics {
	m := &metrics{
		nacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nearside_xds_nacks_total", Help: "Responses that a proxy rejected, by resource type."}, []string{"type"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nearside_xds_refused_total",
			Help: "Resources that the agent's check has withheld from a proxy, by resource type."}, []string{"type"}),
		proxies: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nearside_xds_connected_proxies", Help: "Nodes with an xDS stream, known or not."}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "nearside_xds_wait_duration_seconds",
			Help:    "Time from the opening of a stream to the publication of its first config.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}}),
	}
	for _, t := range typeLabels {
		m.nacks.WithLabelValues(t)
		m.refused.WithLabelValues(t)
	}
	if r != nil {
		for _, c := range []prometheus.Collector{m.nacks, m.refused, held, m.proxies, m.wait} {
			if err := r.Register(c); err != nil {
				log.Error("xDS metric is not exported", "error", err)
			}
		}
	}
	return m
}

var heldDesc = prometheus.NewDesc("nearside_xds_held_resources",
	"Resources that are not in force on connected proxies, by resource type and cause: rejected by the proxy, "+
		"or withheld by the agent's check.", []string{"type", "by"}, nil)

// held counts rejected and withheld resources, and waiting proxies, when metrics are read.
type held struct{ p *Proxies }

var unservedDesc = prometheus.NewDesc("nearside_xds_waiting_proxies",
	"Connected nodes that wait for a publication since their newest stream was opened.", nil, nil)

func (h held) Describe(ch chan<- *prometheus.Desc) { ch <- heldDesc; ch <- unservedDesc }

func (h held) Collect(ch chan<- prometheus.Metric) {
	var proxy, check [draft.NumTypes]int
	h.p.mu.Lock()
	for _, n := range h.p.nodes {
		if n.connected == 0 {
			continue
		}
		n.mu.Lock()
		for rank := range draft.Types {
			p, c := n.heldBy(rank)
			proxy[rank], check[rank] = proxy[rank]+p, check[rank]+c
		}
		n.mu.Unlock()
	}
	h.p.mu.Unlock()
	unserved, _ := h.p.Unserved()
	ch <- prometheus.MustNewConstMetric(unservedDesc, prometheus.GaugeValue, float64(unserved))
	for rank, label := range typeLabels {
		ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(proxy[rank]), label, api.HeldByProxy)
		ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(check[rank]), label, api.HeldByCheck)
	}
}
