package resolver

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/dns/forward"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	requestsDesc = desc("nearside_dns_requests_total", "DNS queries by the type of records and by what became of them.",
		"type", "result")
	upstreamDesc = desc("nearside_dns_upstream_request_duration_seconds", "Time until an upstream has answered.")
	failuresDesc = desc("nearside_dns_upstream_failures_total",
		"Questions to upstreams without an answer that counts.", "reason")
	refusedDesc = desc("nearside_dns_forward_refused_total",
		"Queries that were not sent to upstreams, and answered with SERVFAIL.", "reason")
	loopsDesc   = desc("nearside_dns_loops_total", "Queries to upstreams that have come back to the agent.")
	flightDesc  = desc("nearside_dns_in_flight", "Questions to upstreams that wait for their answer.")
	cacheDesc   = desc("nearside_dns_cache_lookups_total", "Look-ups in the cache of answers of upstreams.", "result")
	evictedDesc = desc("nearside_dns_cache_evictions_total", "Answers that were dropped for others.")
	entriesDesc = desc("nearside_dns_cache_entries", "Answers of upstreams that are kept.")
	bytesDesc   = desc("nearside_dns_cache_bytes", "Memory of these.")
	namesDesc   = desc("nearside_dns_names", "Names of the meshes that the resolver answers, without reverse names.")
	tablesDesc  = desc("nearside_dns_tables_total", "Tables of names that were put in the place of another one.", "by")
	loggedDesc  = desc("nearside_dns_query_log_records_total", "Queries that the query log has written.")
	droppedDesc = desc("nearside_dns_query_log_records_dropped_total",
		"Queries that were to be logged and are not.", "reason")
)

// firstBucket is the first of the powers of two of microseconds that are told: 64 µs.
const firstBucket = 6

// Describe implements [prometheus.Collector].
func (r *Resolver) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{requestsDesc, upstreamDesc, failuresDesc, refusedDesc, loopsDesc, flightDesc,
		cacheDesc, evictedDesc, entriesDesc, bytesDesc, namesDesc, tablesDesc, loggedDesc, droppedDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector]. The counters are those of the resolver itself, summed
// up now.
func (r *Resolver) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	for k, n := range results(r.server.Counts()) {
		count(requestsDesc, n, k[0], k[1])
	}
	listed := 0
	if t := r.table.Load(); t != nil {
		listed = len(t.Names)
	}
	gauge(namesDesc, listed)
	count(tablesDesc, r.swaps[0].Load(), "whole")
	count(tablesDesc, r.swaps[1].Load(), "change")
	count(loggedDesc, r.queries.written.Load())
	count(droppedDesc, r.queries.full.Load(), droppedFull)
	count(droppedDesc, r.queries.discarded.Load(), droppedStop)
	if r.forward == nil {
		return
	}
	f := r.forward.Stats()
	count(refusedDesc, f.Refused.InFlight, "in-flight")
	count(refusedDesc, f.Refused.Waiters, "waiters")
	count(refusedDesc, f.Refused.Stopped, "stopped")
	count(refusedDesc, f.NoRoom, "no-socket")
	count(loopsDesc, f.Loops)
	gauge(flightDesc, f.InFlight)
	count(cacheDesc, f.Cache.Hits, "hit")
	count(cacheDesc, f.Cache.Stale, "stale")
	count(cacheDesc, f.Cache.Failures, "failure")
	count(cacheDesc, f.Cache.Misses, "miss")
	count(evictedDesc, f.Cache.Evicted)
	gauge(entriesDesc, f.Cache.Entries)
	gauge(bytesDesc, f.Cache.Bytes)
	all := r.past.sum(f.Servers)
	count(failuresDesc, all.Failures, "rcode")
	count(failuresDesc, all.Timeouts, "timeout")
	count(failuresDesc, all.Errors, "network")
	count(failuresDesc, all.Malformed, "malformed")
	count(failuresDesc, all.Mismatched, "mismatched")
	count(failuresDesc, all.Forged, "forged")
	buckets, total := map[float64]uint64{}, uint64(0)
	for i, n := range all.Latency {
		total += n
		if i >= firstBucket && i < len(all.Latency)-1 { // the last one has no bound
			buckets[(time.Duration(1<<i) * time.Microsecond).Seconds()] = total
		}
	}
	ch <- prometheus.MustNewConstHistogram(upstreamDesc, total, all.Took.Seconds(), buckets)
}

// upstreams keeps what servers have counted that are no longer asked, so that sums never fall.
type upstreams struct {
	mu   sync.Mutex
	seen []forward.ServerStats // the last time
	gone forward.ServerStats   // of those that were replaced
}

// sum adds up what all servers have counted.
func (u *upstreams) sum(now []forward.ServerStats) forward.ServerStats {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.seen {
		last, there := &u.seen[i], false
		for j := range now {
			there = there || now[j].Addr == last.Addr && now[j].Queries >= last.Queries
		}
		if !there {
			add(&u.gone, last)
		}
	}
	u.seen = now
	out := u.gone
	for i := range now {
		add(&out, &now[i])
	}
	return out
}

func add(to, s *forward.ServerStats) {
	to.Failures += s.Failures
	to.Timeouts += s.Timeouts
	to.Errors += s.Errors
	to.Malformed += s.Malformed
	to.Mismatched += s.Mismatched
	to.Forged += s.Forged
	to.Took += s.Took
	for i, n := range s.Latency {
		to.Latency[i] += n
	}
}
