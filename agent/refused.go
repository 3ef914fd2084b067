package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/agent/host/envoyadmin"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Limits for reading the counters of Envoys.
const (
	refusedFor      = 5 * time.Second // how long counters are cached
	refusedPatience = time.Second     // time for one round; the remaining Envoys are asked in the next one
	refusedAtOnce   = 8
	refusedRetry    = time.Minute // after an Envoy did not answer
)

// refused counts the refused connections and the failed log writes of this node's Envoys. It
// queries the Envoys on demand.
type refused struct {
	proxies func() []api.ProxyStatus
	ask     func(context.Context, *api.ProxyStatus) (api.ProxyCounts, error)
	log     *slog.Logger
	// observe is called with the counters after each round.
	observe func(map[string]api.ProxyCounts)

	mu    sync.Mutex // held during queries, so that concurrent readers share the answers
	at    time.Time
	of    map[string]refusedBy // by node ID, connected or recently connected
	total api.ProxyCounts      // monotonic, even if Envoys restart
}

// refusedBy holds the counters of one Envoy.
type refusedBy struct {
	pid   int32 // of its process; counters start at 0 with it
	known bool
	count api.ProxyCounts
	retry time.Time // not queried before this time
}

func newRefused(proxies func() []api.ProxyStatus, dir string, log *slog.Logger) *refused {
	return &refused{proxies: proxies, log: log, of: map[string]refusedBy{}, ask: func(ctx context.Context,
		p *api.ProxyStatus) (api.ProxyCounts, error) {
		return envoyadmin.Envoy{Dir: dir, ID: p.NodeID, Peer: p.Peer}.Counts(ctx)
	}}
}

// read returns the counters of each connected Envoy by node ID, and the total of all Envoys since
// the start.
func (r *refused) read() (map[string]api.ProxyCounts, api.ProxyCounts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.at.IsZero() || time.Since(r.at) >= refusedFor
	if due {
		r.refresh()
		r.at = time.Now()
	}
	out := map[string]api.ProxyCounts{}
	for id, by := range r.of {
		if by.known {
			out[id] = by.count
		}
	}
	if due && r.observe != nil {
		r.observe(out)
	}
	total := r.total
	total.TimedOut = maps.Clone(total.TimedOut)
	return out, total
}

// refresh queries all connected Envoys. mu is held.
func (r *refused) refresh() {
	before := r.of
	r.of = map[string]refusedBy{}
	var due []api.ProxyStatus
	for _, p := range r.proxies() {
		if p.Type != node.ProxyDataplane || p.Flavor != node.FlavorEnvoy {
			continue
		}
		by := before[p.NodeID]
		if by.pid != p.Peer.PID {
			by = refusedBy{pid: p.Peer.PID}
		}
		r.of[p.NodeID] = by
		if p.Streams > 0 && !time.Now().Before(by.retry) {
			due = append(due, p)
		}
	}
	// Envoys that have answered come first, then those that were queried longest ago, so that no
	// Envoy starves others.
	slices.SortStableFunc(due, func(a, b api.ProxyStatus) int {
		x, y := r.of[a.NodeID], r.of[b.NodeID]
		if x.known != y.known {
			if x.known {
				return -1
			}
			return 1
		}
		return x.retry.Compare(y.retry)
	})
	began := time.Now()
	counts, errs := make([]api.ProxyCounts, len(due)), make([]error, len(due))
	var g errgroup.Group
	g.SetLimit(refusedAtOnce)
	asked := 0
	for ; asked < len(due) && time.Since(began) < refusedPatience; asked++ {
		i := asked
		g.Go(func() error {
			counts[i], errs[i] = r.ask(context.Background(), &due[i])
			return nil
		})
	}
	_ = g.Wait() // errors are in errs
	for i, p := range due[:asked] {
		by := r.of[p.NodeID]
		if errs[i] != nil {
			if by.retry.IsZero() && !errors.Is(errs[i], access.ErrPodAdmin) {
				r.log.Info("an Envoy does not report refused connections and lost log lines",
					"node", p.NodeID, "error", errs[i])
			}
			by.retry = time.Now().Add(refusedRetry)
		} else {
			r.total.Refused += grown(by.count.Refused, counts[i].Refused)
			r.total.WritesFailed += grown(by.count.WritesFailed, counts[i].WritesFailed)
			r.total.ReopensFailed += grown(by.count.ReopensFailed, counts[i].ReopensFailed)
			r.addTimeouts(by.count.TimedOut, counts[i].TimedOut)
			counts[i].Failing = failing(&by, &counts[i])
			by.known, by.count = true, counts[i]
		}
		r.of[p.NodeID] = by
	}
}

// Limits and names of listeners in metrics.
const (
	maxTimedOut   = 100
	otherListener = "other" // of further listeners
)

// addTimeouts adds the increase of the inspection timeouts of one Envoy. mu is held.
func (r *refused) addTimeouts(before, now map[string]uint64) {
	if r.total.TimedOut == nil {
		r.total.TimedOut = map[string]uint64{}
	}
	for name, n := range now {
		if _, known := r.total.TimedOut[name]; !known && len(r.total.TimedOut) >= maxTimedOut {
			r.total.TimedOut[otherListener] += grown(before[name], n)
			continue
		}
		r.total.TimedOut[name] += grown(before[name], n)
	}
}

// failing reports whether an Envoy fails to write access logs: writes or attempts to reopen a log
// have failed after the last query, or they failed before and no write has succeeded since.
func failing(before *refusedBy, now *api.ProxyCounts) bool {
	last := &before.count
	switch {
	case !before.known:
		return now.WritesFailed+now.ReopensFailed > 0 && now.WritesDone == 0
	case now.WritesFailed > last.WritesFailed, now.ReopensFailed > last.ReopensFailed:
		return true
	}
	return last.Failing && now.WritesDone == last.WritesDone
}

// grown returns the increase of a counter that may have been reset.
func grown(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

var refusedDesc = prometheus.NewDesc("nearside_proxy_refused_connections_total",
	"Connections to destinations outside of the mesh that the Envoys of this node have refused, as reported by them.",
	nil, nil)

var (
	writesFailedDesc = prometheus.NewDesc("nearside_proxy_log_writes_failed_total",
		"Failed writes of the Envoys of this node to access logs, as reported by them. Each failure loses lines.",
		nil, nil)
	reopensFailedDesc = prometheus.NewDesc("nearside_proxy_log_reopens_failed_total",
		"Failed attempts of the Envoys of this node to reopen an access log, as reported by them. "+
			"Lines are lost until an attempt succeeds.", nil, nil)
	timedOutDesc = prometheus.NewDesc("nearside_proxy_inspection_timeouts_total",
		"Connections to the Envoys of this node whose clients sent too few bytes before the timeout of the listener "+
			"filters, as reported by them.", []string{"listener"}, nil)
)

// Describe implements [prometheus.Collector].
func (r *refused) Describe(ch chan<- *prometheus.Desc) {
	ch <- refusedDesc
	ch <- writesFailedDesc
	ch <- reopensFailedDesc
	ch <- timedOutDesc
}

// Collect implements [prometheus.Collector].
func (r *refused) Collect(ch chan<- prometheus.Metric) {
	_, total := r.read()
	ch <- prometheus.MustNewConstMetric(timedOutDesc, prometheus.CounterValue, float64(total.TimedOut[otherListener]),
		otherListener)
	for name, n := range total.TimedOut {
		if name != otherListener {
			ch <- prometheus.MustNewConstMetric(timedOutDesc, prometheus.CounterValue, float64(n), name)
		}
	}
	ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(total.Refused))
	ch <- prometheus.MustNewConstMetric(writesFailedDesc, prometheus.CounterValue, float64(total.WritesFailed))
	ch <- prometheus.MustNewConstMetric(reopensFailedDesc, prometheus.CounterValue, float64(total.ReopensFailed))
}
