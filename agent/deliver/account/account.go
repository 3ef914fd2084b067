// Package account accounts for the lines of access logs: the traffic that Envoys counted, the lines
// that the agent read, delivered, and dropped, and the traffic of listeners without a logger. It
// finds the problems of these accounts.
package account

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Options configures an [Account]. Streams is required.
type Options struct {
	// Streams returns the state of all streams, sorted by kind and name. It does not block.
	Streams func() []api.LogStream
	// Counts queries the counters of an Envoy by node ID. Nil: unknown.
	Counts func(ctx context.Context, id string) (api.ProxyCounts, error)
	// Every is the interval of observations, default 5 s.
	Every time.Duration
	Log   *slog.Logger     // nil: no logs
	Now   func() time.Time // nil: time.Now
}

// Account accounts for the lines of access logs. It is safe for concurrent use.
type Account struct {
	o    Options
	wake chan struct{} // one slot

	mu      sync.Mutex
	at      time.Time // of the last observation
	streams map[streamKey]*observed
	gaps    map[gapKey]*gap
	total   api.ListenerTraffic // of gaps that have ended
	loggers map[string]loggers  // by node ID
}

// New returns an account without observations.
func New(o Options) *Account {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Every = cmp.Or(o.Every, 5*time.Second)
	return &Account{o: o, wake: make(chan struct{}, 1), streams: map[streamKey]*observed{}, gaps: map[gapKey]*gap{},
		loggers: map[string]loggers{}}
}

// Streams returns the state of all streams.
func (a *Account) Streams() []api.LogStream { return a.o.Streams() }

// Run observes the streams, and counts the traffic of listeners without a logger, until ctx ends.
func (a *Account) Run(ctx context.Context) error {
	every := time.NewTicker(a.o.Every)
	defer every.Stop()
	for {
		a.observe()
		a.count(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-every.C:
		}
	}
}

// loggers caches the listeners with a logger for each pipe of a published config.
type loggers struct {
	of        string              // version of the listeners
	listeners map[string][]string // names by [draft.Pipe.ID]
}

// loggersOf returns the listeners that log to each pipe of a config. a.mu is held.
func (a *Account) loggersOf(id string, s *draft.Sealed) map[string][]string {
	if have, ok := a.loggers[id]; ok && have.of == s.Versions[draft.RankListener] {
		return have.listeners
	}
	out := map[string][]string{}
	for _, l := range s.Resources[draft.RankListener] {
		for target := range envoy.LogTargets([]*draft.Resource{l}) {
			out[target] = append(out[target], l.Name)
		}
	}
	a.loggers[id] = loggers{s.Versions[draft.RankListener], out}
	return out
}

// Proxies returns the accounts of proxies, sorted by mesh, name, and destination. published are
// their configs, and counts the counters of their Envoys by node ID.
func (a *Account) Proxies(published map[node.Key]*draft.Sealed, counts map[string]api.ProxyCounts) []api.ProxyLog {
	of := map[[3]string]*api.LogStream{}
	list := a.o.Streams()
	for i := range list {
		if s := &list[i]; s.Dataplane != "" {
			of[[3]string{s.Mesh, s.Dataplane, s.Destination}] = s
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []api.ProxyLog{}
	for key, sealed := range published {
		ref, err := node.ParseRef(key.ID)
		if err != nil || key.Flavor != node.FlavorEnvoy || sealed == nil {
			continue
		}
		for i := range sealed.Pipes {
			p := &sealed.Pipes[i]
			x := api.ProxyLog{Mesh: ref.Mesh, Dataplane: ref.Name, Destination: string(p.Kind) + " " + p.Target,
				Dropped: map[string]uint64{}}
			names := a.loggersOf(key.ID, sealed)[p.ID()]
			x.Listeners = len(names)
			if n, known := counts[key.ID]; known {
				x.Traffic, x.Logged = &api.ListenerTraffic{}, &n.Logged
				for _, name := range names {
					x.Traffic.Connections += n.Listeners[name].Connections
					x.Traffic.Requests += n.Listeners[name].Requests
				}
			}
			if s := of[[3]string{x.Mesh, x.Dataplane, x.Destination}]; s != nil {
				x.In, x.Written, x.InFlight, x.Dropped = s.In, s.Written, s.InFlight+s.Spooled, s.Dropped
			}
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b api.ProxyLog) int {
		return cmp.Or(strings.Compare(a.Mesh, b.Mesh), strings.Compare(a.Dataplane, b.Dataplane),
			strings.Compare(a.Destination, b.Destination))
	})
	return out
}
