package resolver

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/dns/forward"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	requestsDesc = desc("nearside_dns_requests_total", "DNS queries by record type and result.",
		"type", "result")
	upstreamDesc = desc("nearside_dns_upstream_request_duration_seconds", "Time until an upstream responded.")
	failuresDesc = desc("nearside_dns_upstream_failures_total",
		"Queries to upstreams without a valid answer.", "reason")
	upstreamQueriesDesc = desc("nearside_dns_upstream_queries_total", "Queries to each upstream by result.",
		"domain", "upstream", "result")
	upstreamUpDesc = desc("nearside_dns_upstream_up", "1 if the upstream responds, else 0.", "domain", "upstream")
	refusedDesc    = desc("nearside_dns_forward_refused_total",
		"Queries that were answered with SERVFAIL instead of being forwarded.", "reason")
	connsDesc       = desc("nearside_dns_tcp_connections", "Open TCP connections of DNS clients.")
	connsClosedDesc = desc("nearside_dns_tcp_connections_closed_total",
		"TCP connections that were closed or refused because of the limits.", "reason")
	rebindDesc = desc("nearside_dns_rebind_dropped_total",
		"Addresses that were dropped from answers of upstreams, because only clients can reach them.", "reason")
	originsDesc = desc("nearside_dns_origin_queries_total",
		"Queries to servers that clients of intercepted network namespaces chose.")
	loopsDesc   = desc("nearside_dns_loops_total", "Queries to upstreams that were redirected back to the agent.")
	flightDesc  = desc("nearside_dns_in_flight", "Queries to upstreams in flight.")
	cacheDesc   = desc("nearside_dns_cache_lookups_total", "Lookups in the cache of upstream answers.", "result")
	evictedDesc = desc("nearside_dns_cache_evictions_total", "Cached answers that were evicted.")
	entriesDesc = desc("nearside_dns_cache_entries", "Cached upstream answers.")
	bytesDesc   = desc("nearside_dns_cache_bytes", "Memory of cached upstream answers.")
	namesDesc   = desc("nearside_dns_names", "Names of the meshes in the resolver's table, without reverse names.")
	tablesDesc  = desc("nearside_dns_tables_total", "Name tables that replaced another one.", "by")
	loggedDesc  = desc("nearside_dns_query_log_records_total", "Records written to the query log.")
	droppedDesc = desc("nearside_dns_query_log_records_dropped_total",
		"Query log records that were dropped.", "reason")
)

// firstBucket is the exponent of the first bucket: 2^6 = 64 µs.
const firstBucket = 6

// Describe implements [prometheus.Collector].
func (r *Resolver) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{requestsDesc, upstreamDesc, upstreamQueriesDesc, upstreamUpDesc, failuresDesc,
		refusedDesc, loopsDesc, flightDesc, originsDesc, rebindDesc, cacheDesc, evictedDesc, entriesDesc, bytesDesc,
		namesDesc, tablesDesc, loggedDesc, droppedDesc, connsDesc, connsClosedDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector]. It reads the resolver's own counters.
func (r *Resolver) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	requests := results(r.server.Counts())
	for _, typ := range [...]string{"A", "AAAA", "SRV", "PTR", "HTTPS", "other"} {
		for _, result := range [...]string{"local", "local_nxdomain", "cache", "forwarded", "servfail", "refused", "formerr",
			"notimp", "error", "dropped"} {
			k := [2]string{typ, result}
			count(requestsDesc, requests[k], typ, result)
			delete(requests, k)
		}
	}
	for k, n := range requests {
		count(requestsDesc, n, k[0], k[1])
	}
	listed := 0
	if t := r.table.Load(); t != nil {
		listed = len(t.Names)
	}
	gauge(namesDesc, listed)
	count(tablesDesc, r.swaps[0].Load(), "whole")
	count(tablesDesc, r.swaps[1].Load(), "change")
	count(loggedDesc, r.queries.records.Load())
	count(droppedDesc, r.queries.full.Load(), droppedFull)
	count(droppedDesc, r.queries.discarded.Load(), droppedStop)
	conns := r.server.Conns()
	gauge(connsDesc, conns.Open)
	count(connsClosedDesc, conns.ClosedIdle, "idle")
	count(connsClosedDesc, conns.ClosedBusy, "busy")
	count(connsClosedDesc, conns.Refused, "refused")
	if r.forward == nil {
		return
	}
	f, clients := r.forward.Stats(), r.server.Refused()
	count(refusedDesc, clients.Client, "client")
	count(refusedDesc, clients.Rate, "client-rate")
	count(refusedDesc, f.Refused.Domain, "silent-domain")
	count(refusedDesc, f.Refused.InFlight, "in-flight")
	count(refusedDesc, f.Refused.Waiters, "waiters")
	count(refusedDesc, f.Refused.Stopped, "stopped")
	count(refusedDesc, f.Refused.Network, "network")
	count(refusedDesc, f.Refused.Origin, "origin")
	count(refusedDesc, f.NoSocket, "no-socket")
	count(loopsDesc, f.Loops)
	gauge(flightDesc, f.InFlight)
	count(cacheDesc, f.Cache.Hits, "hit")
	count(cacheDesc, f.Cache.Stale, "stale")
	count(cacheDesc, f.Cache.Failures, "failure")
	count(cacheDesc, f.Cache.Misses, "miss")
	count(evictedDesc, f.Cache.Evicted)
	gauge(entriesDesc, f.Cache.Entries)
	gauge(bytesDesc, f.Cache.Bytes)
	all := r.upstreamTotals.sum(f.Servers)
	all.Add(&f.OriginTotal)
	count(originsDesc, f.OriginTotal.Queries)
	for reason, n := range r.forward.Dropped() {
		count(rebindDesc, n, reason)
	}
	count(failuresDesc, all.Failures, "rcode")
	count(failuresDesc, all.Timeouts, "timeout")
	count(failuresDesc, all.Errors, "network")
	count(failuresDesc, all.Malformed, "malformed")
	count(failuresDesc, all.Mismatched, "mismatched")
	count(failuresDesc, all.Forged, "forged")
	for i := range f.Servers {
		s, domain := &f.Servers[i], ""
		if len(s.Domains) > 0 {
			domain = s.Domains[0]
		}
		at, up := s.Addr.String(), 1.0
		if s.Down {
			up = 0
		}
		count(upstreamQueriesDesc, s.Answers, domain, at, "answer")
		count(upstreamQueriesDesc, s.Failures, domain, at, "rcode")
		count(upstreamQueriesDesc, s.Timeouts, domain, at, "timeout")
		count(upstreamQueriesDesc, s.Errors, domain, at, "network")
		ch <- prometheus.MustNewConstMetric(upstreamUpDesc, prometheus.GaugeValue, up, domain, at)
	}
	buckets, total := map[float64]uint64{}, uint64(0)
	for i, n := range all.Latency {
		total += n
		if i >= firstBucket && i < len(all.Latency)-1 { // the last bucket has no upper bound
			buckets[(time.Duration(1<<i) * time.Microsecond).Seconds()] = total
		}
	}
	ch <- prometheus.MustNewConstHistogram(upstreamDesc, total, all.Elapsed.Seconds(), buckets)
}

// upstreams adds the counters of removed upstreams, so that sums never decrease.
type upstreams struct {
	mu   sync.Mutex
	seen []forward.ServerStats // at the last call
	gone forward.ServerStats   // total of removed upstreams
}

// sum returns the total of all upstreams.
func (u *upstreams) sum(now []forward.ServerStats) forward.ServerStats {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.seen {
		last, there := &u.seen[i], false
		for j := range now {
			there = there || now[j].Addr == last.Addr && slices.Equal(now[j].Domains, last.Domains) &&
				now[j].Queries >= last.Queries
		}
		if !there {
			u.gone.Add(last)
		}
	}
	u.seen = now
	out := u.gone
	for i := range now {
		out.Add(&now[i])
	}
	return out
}
