package agent

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/logs"
)

// logStreams returns the streams of access logs as the API has them.
func (a *Agent) logStreams() []inspect.LogStream {
	list := append(a.logs.Streams(), a.receivers.Streams()...)
	out := make([]inspect.LogStream, len(list))
	for i := range list {
		s := &list[i]
		out[i] = inspect.LogStream{
			Kind: string(s.Kind), Name: s.Name, Mesh: s.Mesh, Dataplane: s.Dataplane, Backend: s.Backend, Destination: s.Destination, Holder: s.Holder, Open: s.Open,
			In: s.In, Written: s.Written, Spooled: s.Spooled, InFlight: s.InFlight, Dropped: map[string]uint64{}, BytesIn: s.BytesIn,
			Unterminated: s.Unterminated, Oversize: s.Oversize, Repeated: s.Repeated, SpoolBytes: s.SpoolBytes, SpoolOldest: s.SpoolOldest, Health: s.Health,
		}
		for cause, n := range s.Stats.Dropped {
			out[i].Dropped[string(cause)] = n
		}
	}
	return out
}

// logLabels are those of a sum of streams: their kind, and the name of a receiver, which the config gives.
type logLabels struct{ kind, receiver string }

var logLabelNames = []string{"kind", "receiver"}

func labelsOf(s *inspect.LogStream) logLabels {
	l := logLabels{kind: s.Kind}
	if s.Kind == string(logs.KindReceiver) {
		l.receiver = s.Name
	}
	return l
}

func (l logLabels) compare(m logLabels) int {
	return cmp.Or(strings.Compare(l.kind, m.kind), strings.Compare(l.receiver, m.receiver))
}

var (
	logRecordsDesc  = prometheus.NewDesc("nearside_log_records_total", "Lines that came into streams of access logs.", logLabelNames, nil)
	logBytesDesc    = prometheus.NewDesc("nearside_log_bytes_total", "Bytes that came into streams of access logs.", logLabelNames, nil)
	logWrittenDesc  = prometheus.NewDesc("nearside_log_records_written_total", "Lines that were handed on, are in the file, or were acknowledged by the collector.", logLabelNames, nil)
	logDroppedDesc  = prometheus.NewDesc("nearside_log_records_dropped_total", "Lines that were dropped.", append(logLabelNames, "reason"), nil)
	logSpooledDesc  = prometheus.NewDesc("nearside_log_records_spooled", "Lines on disk that wait for their collector.", logLabelNames, nil)
	logInFlightDesc = prometheus.NewDesc("nearside_log_records_in_flight", "Lines in memory.", logLabelNames, nil)
	logSpoolDesc    = prometheus.NewDesc("nearside_log_spool_bytes", "Bytes of the spools on disk.", logLabelNames, nil)
)

// logMetrics sums up the streams of access logs by kind whenever metrics are read. Streams come and go, and their sums never fall:
// what one had counted when it was seen last stays in them.
type logMetrics struct {
	streams func() []inspect.LogStream

	mu    sync.Mutex
	seen  map[[2]string]inspect.LogStream // by kind and name, the last time
	ended map[logLabels]*logSums          // of those that are gone
}

// logSums are the counters of a kind.
type logSums struct {
	in, bytes, written uint64
	dropped            map[string]uint64
}

func (s *logSums) add(x *inspect.LogStream) {
	s.in += x.In
	s.bytes += x.BytesIn
	s.written += x.Written
	for cause, n := range x.Dropped {
		s.dropped[cause] += n
	}
}

// Describe implements [prometheus.Collector].
func (m *logMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{logRecordsDesc, logBytesDesc, logWrittenDesc, logDroppedDesc, logSpooledDesc, logInFlightDesc, logSpoolDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *logMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.streams()
	now := map[[2]string]inspect.LogStream{}
	for i := range list {
		now[[2]string{list[i].Kind, list[i].Name}] = list[i]
	}
	if m.ended == nil {
		m.ended = map[logLabels]*logSums{}
	}
	for key, last := range m.seen {
		if is, ok := now[key]; !ok || is.In < last.In { // gone, or another one of that name
			of := labelsOf(&last)
			if m.ended[of] == nil {
				m.ended[of] = &logSums{dropped: map[string]uint64{}}
			}
			m.ended[of].add(&last)
		}
	}
	m.seen = now

	sums, gauges := map[logLabels]*logSums{}, map[logLabels][3]uint64{}
	for of, s := range m.ended {
		sums[of] = &logSums{s.in, s.bytes, s.written, maps.Clone(s.dropped)}
	}
	for i := range list {
		x := &list[i]
		of := labelsOf(x)
		if sums[of] == nil {
			sums[of] = &logSums{dropped: map[string]uint64{}}
		}
		sums[of].add(x)
		g := gauges[of]
		gauges[of] = [3]uint64{g[0] + x.Spooled, g[1] + x.InFlight, g[2] + x.SpoolBytes}
	}
	send := func(d *prometheus.Desc, t prometheus.ValueType, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, float64(n), labels...)
	}
	for _, of := range slices.SortedFunc(maps.Keys(sums), logLabels.compare) {
		s, g := sums[of], gauges[of]
		send(logRecordsDesc, prometheus.CounterValue, s.in, of.kind, of.receiver)
		send(logBytesDesc, prometheus.CounterValue, s.bytes, of.kind, of.receiver)
		send(logWrittenDesc, prometheus.CounterValue, s.written, of.kind, of.receiver)
		for cause, n := range s.dropped {
			send(logDroppedDesc, prometheus.CounterValue, n, of.kind, of.receiver, cause)
		}
		send(logSpooledDesc, prometheus.GaugeValue, g[0], of.kind, of.receiver)
		send(logInFlightDesc, prometheus.GaugeValue, g[1], of.kind, of.receiver)
		send(logSpoolDesc, prometheus.GaugeValue, g[2], of.kind, of.receiver)
	}
}
