package ads

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// serverMetrics are the metrics of a server. No label depends on a client.
type serverMetrics struct {
	delivery prometheus.Histogram
	closed   *prometheus.CounterVec // reason
}

func newServerMetrics(r prometheus.Registerer, refused refusedClients, log *slog.Logger) *serverMetrics {
	m := &serverMetrics{
		delivery: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "nearside_xds_delivery_seconds",
			Help:    "Time from the publication of a config to the write of a response to the connection.",
			Buckets: []float64{0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nearside_xds_streams_refused_total", Help: "Streams that the server ended, by reason."}, []string{"reason"}),
	}
	for _, reason := range closedReasons {
		m.closed.WithLabelValues(reason)
	}
	if r != nil {
		for _, c := range []prometheus.Collector{m.delivery, m.closed, refused} {
			if err := r.Register(c); err != nil {
				log.Error("xDS metric is not exported", "error", err)
			}
		}
	}
	return m
}
