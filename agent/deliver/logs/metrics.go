package logs

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/accesslog"
)

// streamSum identifies a sum of streams: by kind, destination, and, for receivers, by name.
type streamSum struct{ kind, receiver, destination string }

var sumLabels = []string{"kind", "receiver", "destination"}

// Limit of the destinations in metrics, and the label of further ones.
const (
	maxDestinations  = 1000
	otherDestination = "other"
)

// sumOf returns the sum to which a stream belongs. m.mu is held.
func (m *Collector) sumOf(s *Stream) streamSum {
	l := streamSum{kind: string(s.Kind), destination: s.Destination}
	if s.Kind == KindReceiver {
		l.receiver = s.Name
	}
	if !m.destinations[l.destination] {
		if len(m.destinations) >= maxDestinations {
			l.destination = otherDestination
		} else {
			m.destinations[l.destination] = true
		}
	}
	return l
}

func (l streamSum) labels() []string { return []string{l.kind, l.receiver, l.destination} }

func (l streamSum) compare(m streamSum) int { return slices.Compare(l.labels(), m.labels()) }

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
	logLimitDesc    = prometheus.NewDesc("nearside_log_spool_limit_bytes", "Limit of each spool; 0 for none.", nil, nil)
	logOldestDesc   = prometheus.NewDesc("nearside_log_spool_oldest_seconds", "Age of the oldest line in a spool.",
		sumLabels, nil)
	logRefusedDesc = prometheus.NewDesc("nearside_log_connections_refused_total",
		"Connections of senders that a receiver refused, because its limit was reached.", []string{"receiver"}, nil)
	logFailingDesc = prometheus.NewDesc("nearside_log_failing_streams",
		"Streams that cannot deliver all lines now: a file or spool cannot be written, or a collector does not accept "+
			"lines.", sumLabels, nil)
	logDirectoryDesc = prometheus.NewDesc("nearside_log_directory_changes_total",
		"Times that the directory of a file, FIFO, or spool was removed, replaced, or made unsafe, and was opened again.",
		sumLabels, nil)
	rotationsDesc = prometheus.NewDesc("nearside_log_rotations_total",
		"New log files; cause is size, or outside if another process renamed, removed, or changed the file.",
		[]string{"cause"}, nil)
	fileBytesDesc = prometheus.NewDesc("nearside_log_file_bytes", "Total size of the active log files.", nil, nil)
)

// Collector exports the metrics of rotated files, and of streams summed by kind and destination.
// The sums never decrease: the last counters of a removed stream stay in them.
type Collector struct {
	files   *Files
	streams func() []Stream

	mu    sync.Mutex
	seen  map[streamKey]Stream   // at the last collection
	ended map[streamSum]*logSums // of removed streams
	// destinations with own labels
	destinations map[string]bool
}

type streamKey struct {
	kind Kind
	name string
}

// NewCollector returns the metrics of files and streams.
func NewCollector(files *Files, streams func() []Stream) *Collector {
	return &Collector{files: files, streams: streams, ended: map[streamSum]*logSums{}, destinations: map[string]bool{}}
}

// logSums are the summed counters of streams.
type logSums struct {
	in, bytes, delivered, refused, moved uint64
	dropped                              map[accesslog.Cause]uint64
}

func (s *logSums) add(x *Stream) {
	s.in += x.In
	s.bytes += x.BytesIn
	s.delivered += x.Written
	s.refused += x.Refused
	s.moved += x.DirChanges
	for cause, n := range x.Dropped {
		s.dropped[cause] += n
	}
}

// Describe implements [prometheus.Collector].
func (m *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		logRecordsDesc, logBytesDesc, logWrittenDesc, logDroppedDesc, logSpooledDesc, logInFlightDesc, logSpoolDesc,
		logLimitDesc, logOldestDesc, logRefusedDesc, logFailingDesc, logDirectoryDesc, rotationsDesc, fileBytesDesc,
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
	for key, last := range m.seen {
		if is, ok := now[key]; !ok || is.In < last.In { // removed, or replaced by a stream with the same name
			of := m.sumOf(&last)
			if m.ended[of] == nil {
				m.ended[of] = &logSums{dropped: map[accesslog.Cause]uint64{}}
			}
			m.ended[of].add(&last)
		}
	}
	m.seen = now

	sums, gauges := map[streamSum]*logSums{}, map[streamSum]logGauges{}
	for of, s := range m.ended {
		sums[of] = &logSums{s.in, s.bytes, s.delivered, s.refused, s.moved, maps.Clone(s.dropped)}
	}
	for i := range list {
		x := &list[i]
		of := m.sumOf(x)
		if sums[of] == nil {
			sums[of] = &logSums{dropped: map[accesslog.Cause]uint64{}}
		}
		sums[of].add(x)
		g := gauges[of]
		gauges[of] = logGauges{g.spooled + x.Spooled, g.inFlight + x.InFlight, g.spoolBytes + x.SpoolBytes,
			max(g.oldest, x.SpoolOldest), g.failing + failing(x)}
	}
	send := func(d *prometheus.Desc, t prometheus.ValueType, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, float64(n), labels...)
	}
	total := m.files.Total()
	send(rotationsDesc, prometheus.CounterValue, total.Rotations, "size")
	send(rotationsDesc, prometheus.CounterValue, total.Outside, "outside")
	ch <- prometheus.MustNewConstMetric(fileBytesDesc, prometheus.GaugeValue, float64(total.Size))
	ch <- prometheus.MustNewConstMetric(logLimitDesc, prometheus.GaugeValue, float64(m.files.Spool.MaxBytes))
	for _, of := range slices.SortedFunc(maps.Keys(sums), streamSum.compare) {
		s, g := sums[of], gauges[of]
		labels := of.labels()
		send(logRecordsDesc, prometheus.CounterValue, s.in, labels...)
		send(logBytesDesc, prometheus.CounterValue, s.bytes, labels...)
		send(logWrittenDesc, prometheus.CounterValue, s.delivered, labels...)
		for _, cause := range accesslog.Causes {
			send(logDroppedDesc, prometheus.CounterValue, s.dropped[cause], append(labels, string(cause))...)
		}
		send(logSpooledDesc, prometheus.GaugeValue, g.spooled, labels...)
		send(logInFlightDesc, prometheus.GaugeValue, g.inFlight, labels...)
		send(logSpoolDesc, prometheus.GaugeValue, g.spoolBytes, labels...)
		send(logFailingDesc, prometheus.GaugeValue, g.failing, labels...)
		send(logDirectoryDesc, prometheus.CounterValue, s.moved, labels...)
		ch <- prometheus.MustNewConstMetric(logOldestDesc, prometheus.GaugeValue, g.oldest, labels...)
		if of.kind == string(KindReceiver) {
			send(logRefusedDesc, prometheus.CounterValue, s.refused, of.receiver)
		}
	}
}

// logGauges are the summed gauges of streams.
type logGauges struct {
	spooled, inFlight, spoolBytes uint64
	oldest                        float64
	failing                       uint64
}

// failing returns 1 if a stream has a problem, otherwise 0.
func failing(x *Stream) uint64 {
	if x.Health != "" {
		return 1
	}
	return 0
}
