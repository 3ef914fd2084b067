package agent

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/inspect"
)

// logStreams returns the streams of access logs as the API has them.
func (a *Agent) logStreams() []inspect.LogStream {
	list := a.logs.Streams()
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

var (
	logRecordsDesc  = prometheus.NewDesc("nearside_log_records_total", "Lines that came into streams of access logs.", []string{"kind"}, nil)
	logBytesDesc    = prometheus.NewDesc("nearside_log_bytes_total", "Bytes that came into streams of access logs.", []string{"kind"}, nil)
	logWrittenDesc  = prometheus.NewDesc("nearside_log_records_written_total", "Lines that were handed on, are in the file, or were acknowledged by the collector.", []string{"kind"}, nil)
	logDroppedDesc  = prometheus.NewDesc("nearside_log_records_dropped_total", "Lines that were dropped.", []string{"kind", "reason"}, nil)
	logSpooledDesc  = prometheus.NewDesc("nearside_log_records_spooled", "Lines on disk that wait for their collector.", []string{"kind"}, nil)
	logInFlightDesc = prometheus.NewDesc("nearside_log_records_in_flight", "Lines in memory.", []string{"kind"}, nil)
	logSpoolDesc    = prometheus.NewDesc("nearside_log_spool_bytes", "Bytes of the spools on disk.", []string{"kind"}, nil)
)

// logMetrics sums up the streams of access logs by kind whenever metrics are read. Streams come and go, and their sums never fall:
// what one had counted when it was seen last stays in them.
type logMetrics struct {
	streams func() []inspect.LogStream

	mu    sync.Mutex
	seen  map[[2]string]inspect.LogStream // by kind and name, the last time
	ended map[string]*logSums             // by kind, of those that are gone
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
		m.ended = map[string]*logSums{}
	}
	for key, last := range m.seen {
		if is, ok := now[key]; !ok || is.In < last.In { // gone, or another one of that name
			if m.ended[key[0]] == nil {
				m.ended[key[0]] = &logSums{dropped: map[string]uint64{}}
			}
			m.ended[key[0]].add(&last)
		}
	}
	m.seen = now

	sums, gauges := map[string]*logSums{}, map[string][3]uint64{}
	for kind, s := range m.ended {
		sums[kind] = &logSums{s.in, s.bytes, s.written, maps.Clone(s.dropped)}
	}
	for i := range list {
		x := &list[i]
		if sums[x.Kind] == nil {
			sums[x.Kind] = &logSums{dropped: map[string]uint64{}}
		}
		sums[x.Kind].add(x)
		g := gauges[x.Kind]
		gauges[x.Kind] = [3]uint64{g[0] + x.Spooled, g[1] + x.InFlight, g[2] + x.SpoolBytes}
	}
	send := func(d *prometheus.Desc, t prometheus.ValueType, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, float64(n), labels...)
	}
	for _, kind := range slices.Sorted(maps.Keys(sums)) {
		s, g := sums[kind], gauges[kind]
		send(logRecordsDesc, prometheus.CounterValue, s.in, kind)
		send(logBytesDesc, prometheus.CounterValue, s.bytes, kind)
		send(logWrittenDesc, prometheus.CounterValue, s.written, kind)
		for cause, n := range s.dropped {
			send(logDroppedDesc, prometheus.CounterValue, n, kind, cause)
		}
		send(logSpooledDesc, prometheus.GaugeValue, g[0], kind)
		send(logInFlightDesc, prometheus.GaugeValue, g[1], kind)
		send(logSpoolDesc, prometheus.GaugeValue, g[2], kind)
	}
}
