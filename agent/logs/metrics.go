package logs

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	rotationsDesc = prometheus.NewDesc("nearside_log_rotations_total",
		"New log files; cause is size, or outside when others renamed, removed or changed the file.", []string{"cause"}, nil)
	fileBytesDesc = prometheus.NewDesc("nearside_log_file_bytes",
		"Size of the active log files together.", nil, nil)
)

// Collector are the metrics of rotated files.
type Collector struct {
	files *Files
}

// NewCollector returns the metrics of files.
func NewCollector(files *Files) *Collector { return &Collector{files: files} }

// Describe implements prometheus.Collector.
func (*Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rotationsDesc, fileBytesDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	total := c.files.Total()
	counter(rotationsDesc, total.Rotations, "size")
	counter(rotationsDesc, total.Outside, "outside")
	ch <- prometheus.MustNewConstMetric(fileBytesDesc, prometheus.GaugeValue, float64(total.Size))
}
