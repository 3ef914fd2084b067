package logs

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/accesslog"
)

// streamSum identifies a sum of streams: by kind and, for receivers, by name.
type streamSum struct{ kind, receiver string }

var sumLabels = []string{"kind", "receiver"}

func sumOf(s *Stream) streamSum {
	l := streamSum{kind: string(s.Kind)}
	if s.Kind == KindReceiver {
		l.receiver = s.Name
	}
	return l
}

func (l streamSum) compare(m streamSum) int {
	return cmp.Or(strings.Compare(l.kind, m.kind), strings.Compare(l.receiver, m.receiver))
}

var (
	logRecordsDesc = prometheus.NewDesc("nearside_log_records_total", "Lines received by access-log streams.",
		sumLabels, nil)
	logBytesDesc = prometheus.NewDesc("nearside_log_bytes_total", "Bytes received by access-log streams.",
		sumLabels, nil)
	logWrittenDesc = prometheus.NewDesc("nearside_log_records_written_total",
		"Lines delivered, written to the file, or acknowledged by the collector.", sumLabels, nil)
	logDroppedDesc = prometheus.NewDesc("nearside_log_records_dropped_total",
		"Dropped lines.", append(sumLabels, "reason"), nil)
	logSpooledDesc = prometheus.NewDesc("nearside_log_records_spooled", "Lines on disk that wait for the collector.",
		sumLabels, nil)
	logInFlightDesc = prometheus.NewDesc("nearside_log_records_in_flight", "Lines in memory.", sumLabels, nil)
	logSpoolDesc    = prometheus.NewDesc("nearside_log_spool_bytes", "Size of the spools on disk.", sumLabels, nil)
	rotationsDesc   = prometheus.NewDesc("nearside_log_rotations_total",
		"New log files; cause is size, or outside if another process renamed, removed, or changed the file.",
		[]string{"cause"}, nil)
	fileBytesDesc = prometheus.NewDesc("nearside_log_file_bytes", "Total size of the active log files.", nil, nil)
)

// Collector exports the metrics of rotated files, and of streams summed by kind. The sums never
// decrease: the last counters of a removed stream stay in them.
type Collector struct {
	files   *Files
	streams func() []Stream

	mu    sync.Mutex
	seen  map[streamKey]Stream   // at the last collection
	ended map[streamSum]*logSums // of removed streams
}

type streamKey struct {
	kind Kind
	name string
}

// NewCollector returns the metrics of files and streams.
func NewCollector(files *Files, streams func() []Stream) *Collector {
	return &Collector{files: files, streams: streams}
}

// logSums are the summed counters of streams.
type logSums struct {
	in, bytes, delivered uint64
	dropped              map[accesslog.Cause]uint64
}

func (s *logSums) add(x *Stream) {
	s.in += x.In
	s.bytes += x.BytesIn
	s.delivered += x.Written
	for cause, n := range x.Dropped {
		s.dropped[cause] += n
	}
}

// Describe implements [prometheus.Collector].
func (m *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		logRecordsDesc, logBytesDesc, logWrittenDesc, logDroppedDesc, logSpooledDesc, logInFlightDesc, logSpoolDesc,
		rotationsDesc, fileBytesDesc,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Collector) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.streams()
	now := map[streamKey]Stream{}
	for i := range list {
		now[streamKey{list[i].Kind, list[i].Name}] = list[i]
	}
	if m.ended == nil {
		m.ended = map[streamSum]*logSums{}
	}
	for key, last := range m.seen {
		if is, ok := now[key]; !ok || is.In < last.In { // removed, or replaced by a stream with the same name
			of := sumOf(&last)
			if m.ended[of] == nil {
				m.ended[of] = &logSums{dropped: map[accesslog.Cause]uint64{}}
			}
			m.ended[of].add(&last)
		}
	}
	m.seen = now

	sums, gauges := map[streamSum]*logSums{}, map[streamSum][3]uint64{}
	for of, s := range m.ended {
		sums[of] = &logSums{s.in, s.bytes, s.delivered, maps.Clone(s.dropped)}
	}
	for i := range list {
		x := &list[i]
		of := sumOf(x)
		if sums[of] == nil {
			sums[of] = &logSums{dropped: map[accesslog.Cause]uint64{}}
		}
		sums[of].add(x)
		g := gauges[of]
		gauges[of] = [3]uint64{g[0] + x.Spooled, g[1] + x.InFlight, g[2] + x.SpoolBytes}
	}
	send := func(d *prometheus.Desc, t prometheus.ValueType, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, float64(n), labels...)
	}
	total := m.files.Total()
	send(rotationsDesc, prometheus.CounterValue, total.Rotations, "size")
	send(rotationsDesc, prometheus.CounterValue, total.Outside, "outside")
	ch <- prometheus.MustNewConstMetric(fileBytesDesc, prometheus.GaugeValue, float64(total.Size))
	for _, of := range slices.SortedFunc(maps.Keys(sums), streamSum.compare) {
		s, g := sums[of], gauges[of]
		send(logRecordsDesc, prometheus.CounterValue, s.in, of.kind, of.receiver)
		send(logBytesDesc, prometheus.CounterValue, s.bytes, of.kind, of.receiver)
		send(logWrittenDesc, prometheus.CounterValue, s.delivered, of.kind, of.receiver)
		for _, cause := range accesslog.Causes {
			send(logDroppedDesc, prometheus.CounterValue, s.dropped[cause], of.kind, of.receiver, string(cause))
		}
		send(logSpooledDesc, prometheus.GaugeValue, g[0], of.kind, of.receiver)
		send(logInFlightDesc, prometheus.GaugeValue, g[1], of.kind, of.receiver)
		send(logSpoolDesc, prometheus.GaugeValue, g[2], of.kind, of.receiver)
	}
}
