package logs

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/accesslog"
)

var (
	recordsDesc = prometheus.NewDesc("nearside_log_records_total",
		"Lines of access logs that were read; receiver is the name of the receiver, or fifo or otlp for those of Envoys.", []string{"receiver"}, nil)
	droppedDesc = prometheus.NewDesc("nearside_log_records_dropped_total",
		"Lines of access logs that were dropped, by reason.", []string{"reason"}, nil)
	bytesDesc = prometheus.NewDesc("nearside_log_bytes_total",
		"Bytes written to rotated log files.", nil, nil)
	rotationsDesc = prometheus.NewDesc("nearside_log_rotations_total",
		"New log files; cause is size, or outside when others renamed, removed or changed the file.", []string{"cause"}, nil)
	fileBytesDesc = prometheus.NewDesc("nearside_log_file_bytes",
		"Size of the active log files together.", nil, nil)
)

// Collector are the metrics of access logs and their files.
type Collector struct {
	files   *Files
	streams []func() []Stream
}

// NewCollector returns the metrics of files and of streams. Those of Envoys are counted together, so that labels are bounded by the config.
func NewCollector(files *Files, streams ...func() []Stream) *Collector {
	return &Collector{files: files, streams: streams}
}

// Describe implements prometheus.Collector.
func (*Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{recordsDesc, droppedDesc, bytesDesc, rotationsDesc, fileBytesDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	dropped, read := map[accesslog.Cause]uint64{}, map[string]uint64{}
	for _, streams := range c.streams {
		for _, s := range streams() {
			switch s.Kind {
			case KindReceiver:
				read[s.Name] += s.In
			case KindFIFO, KindOTLP:
				read[string(s.Kind)] += s.In
			case KindFile: // who writes into it counts what it drops
				continue
			}
			for why, n := range s.Dropped {
				dropped[why] += n
			}
		}
	}
	for receiver, n := range read {
		counter(recordsDesc, n, receiver)
	}
	for why, n := range dropped {
		counter(droppedDesc, n, string(why))
	}
	total := c.files.Total()
	counter(bytesDesc, total.Bytes)
	counter(rotationsDesc, total.Rotations, "size")
	counter(rotationsDesc, total.Outside, "outside")
	ch <- prometheus.MustNewConstMetric(fileBytesDesc, prometheus.GaugeValue, float64(total.Size))
}
