package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/agent/envoyadmin"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// How Envoys are asked which connections they have refused.
const (
	refusedFor      = 5 * time.Second // what was read is good for so long
	refusedPatience = time.Second     // Envoys that have not been asked by then are asked the next time
	refusedAtOnce   = 8
	refusedRetry    = time.Minute // after an Envoy did not answer
)

// refused counts the connections that the Envoys of this node have refused. They are asked when somebody wants to know.
type refused struct {
	proxies func() []xds.ProxyStatus
	ask     func(context.Context, *xds.ProxyStatus) (uint64, error)
	log     *slog.Logger

	mu    sync.Mutex // held while Envoys are asked: who comes meanwhile gets what they answer
	at    time.Time
	of    map[string]refusedBy // by node id, of those that are connected or were recently
	total uint64               // never falls, whichever Envoys come, go and start anew
}

// refusedBy is what one Envoy has answered.
type refusedBy struct {
	pid   int32 // of its process, which counts from 0
	known bool
	count uint64
	retry time.Time // it is not asked before
}

func newRefused(proxies func() []xds.ProxyStatus, dir string, log *slog.Logger) *refused {
	return &refused{proxies: proxies, log: log, of: map[string]refusedBy{}, ask: func(ctx context.Context, p *xds.ProxyStatus) (uint64, error) {
		return envoyadmin.Envoy{Dir: dir, ID: p.NodeID, Peer: p.Peer}.Refused(ctx)
	}}
}

// read returns what each connected Envoy has refused, by node id, and the sum of all there have been.
func (r *refused) read() (map[string]uint64, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) >= refusedFor {
		r.refresh()
		r.at = time.Now()
	}
	out := map[string]uint64{}
	for id, by := range r.of {
		if by.known {
			out[id] = by.count
		}
	}
	return out, r.total
}

// refresh asks all connected Envoys. The mu is held.
func (r *refused) refresh() {
	before := r.of
	r.of = map[string]refusedBy{}
	var due []xds.ProxyStatus
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
	// Those that have answered go first, then those that were asked the longest ago, so that nobody keeps others from being asked.
	slices.SortStableFunc(due, func(a, b xds.ProxyStatus) int {
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
	counts, errs := make([]uint64, len(due)), make([]error, len(due))
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
			if by.retry.IsZero() {
				r.log.Info("an Envoy does not tell which connections it refuses", "node", p.NodeID, "error", errs[i])
			}
			by.retry = time.Now().Add(refusedRetry)
		} else {
			more := counts[i]
			if more >= by.count {
				more -= by.count
			}
			r.total += more
			by.known, by.count = true, counts[i]
		}
		r.of[p.NodeID] = by
	}
}

var refusedDesc = prometheus.NewDesc("nearside_proxy_refused_connections_total",
	"Connections to destinations outside of the mesh that the Envoys of this node have refused, as far as these tell.", nil, nil)

// Describe implements prometheus.Collector.
func (r *refused) Describe(ch chan<- *prometheus.Desc) { ch <- refusedDesc }

// Collect implements prometheus.Collector.
func (r *refused) Collect(ch chan<- prometheus.Metric) {
	_, total := r.read()
	ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(total))
}
