package rollout

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Options holds what Proxies need. The zero value works: it logs nowhere, tells nobody and has the
// default bounds.
type Options struct {
	// Log takes what an operator should know; nil discards.
	Log *slog.Logger
	// Now is the clock of the times in status; nil is time.Now.
	Now func() time.Time
	// Changed is called whenever a stream was let in, when the last one of a node has ended, and when
	// a client from which something is withheld has accepted listeners. It must not block, nor call
	// Proxies; nil for none.
	Changed func()
	// Stored returns the revision of the store at which a node came to be known last, 0 where it is
	// not. Who was found not to be known at an earlier revision is not told so while the next look is
	// on its way. It must not block, nor call Proxies. Nil: 0.
	Stored func(node.Ref) uint64
	// Rejected is called whenever a client has rejected something. It must not block; nil for none.
	Rejected func()
	// Registry takes the metrics nearside_xds_* of proxies; nil leaves them unregistered.
	Registry prometheus.Registerer

	// UnknownGrace is how long a stream of a node that is published as unknown is held before it is
	// told so; default 10 s.
	UnknownGrace time.Duration
	// RemovalWait bounds how long the removal of a cluster, endpoint or route waits for the
	// acknowledgement of the listeners and routes that moved off it; default 15 s.
	RemovalWait time.Duration
	// WarmWait bounds how long listeners and routes wait for the acknowledgement of clusters that are
	// new to an Envoy, which it gives once they are warm; default 10 s.
	WarmWait time.Duration
	// DrainTime is how long connections may stay on a listener that an Envoy has let go of: as long it
	// keeps what that listener refers to. 0: no longer than it takes to acknowledge.
	DrainTime time.Duration
	// HandoverTime is how long an Envoy goes on with a listener whose protocol changes, where others
	// have to change first; see [handover]. 0: it does not.
	HandoverTime time.Duration
	// AckTimeout is how long a client may neither acknowledge nor reject what it was sent, be it that
	// it does not read or does not answer, before the stream is closed; default 2 min.
	AckTimeout time.Duration
	// GoneTime is how long it is remembered what the client of a node without a stream has accepted;
	// default 1 min. What it has rejected is remembered longer, together with what it had instead.
	GoneTime time.Duration
	// Forgot is called when what gone clients had is forgotten. It must not block, nor call Proxies.
	// Nil: nothing.
	Forgot func()
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Stored == nil {
		o.Stored = func(node.Ref) uint64 { return 0 }
	}
	if o.Forgot == nil {
		o.Forgot = func() {}
	}
	if o.Rejected == nil {
		o.Rejected = func() {}
	}
	o.UnknownGrace = cmp.Or(o.UnknownGrace, 10*time.Second)
	o.RemovalWait = cmp.Or(o.RemovalWait, 15*time.Second)
	o.WarmWait = cmp.Or(o.WarmWait, 10*time.Second)
	o.AckTimeout = cmp.Or(o.AckTimeout, 2*time.Minute)
	o.GoneTime = cmp.Or(o.GoneTime, time.Minute)
	return o
}

// Proxies holds the state of all proxies that have, or had recently, an xDS stream. Make it with
// New; its methods may be called from any goroutine.
type Proxies struct {
	opts     Options
	metrics  *metrics
	watchers watchers

	rejecting  atomic.Int64  // proxies with rejections
	lastStream atomic.Uint64 // number of streams that were let in

	mu        sync.Mutex // taken before a proxy's mu; guards all below
	ready     bool
	stopped   bool
	nodes     map[node.Key]*proxy
	gone      []*proxy    // those without a stream, the longest gone first
	goneTimer *time.Timer // runs until the next of them is forgotten in part; see forgetAccepted

	progress   []Progress // as worked out after progressOf changes
	progressOf uint64
}

// New returns Proxies that send nothing until Ready is called.
func New(o Options) *Proxies {
	o = o.withDefaults()
	p := &Proxies{opts: o, nodes: map[node.Key]*proxy{}}
	p.metrics = newMetrics(o.Registry, held{p}, o.Log)
	return p
}

// Stop ends the timers of gone proxies. The streams have ended by then.
func (p *Proxies) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.goneTimer != nil {
		p.goneTimer.Stop()
	}
}

// Ready lets the streams be served. Until it is called nothing is sent to anyone, so that a client
// never takes an agent that has not loaded its state for an empty mesh.
func (p *Proxies) Ready() {
	p.mu.Lock()
	p.ready = true
	nodes := make([]*proxy, 0, len(p.nodes))
	for _, n := range p.nodes {
		nodes = append(nodes, n)
	}
	p.mu.Unlock()
	for _, n := range nodes {
		n.mu.Lock()
		n.ready = true
		n.refresh()
		n.mu.Unlock()
	}
	p.watchers.notify()
}

// Config is what Publish gives a node.
type Config struct {
	Sealed *draft.Sealed // nil: the node is unknown
	// Refused ends the streams of a node without a config with RESOURCE_EXHAUSTED. Nil: it is not
	// refused.
	Refused  error
	Revision uint64 // of the store that it was made from, or from a later one without a difference
	// LastStream is what [Proxies.LastStream] gave before anything was looked at that the config was
	// made from. A stream that was let in later is not served with it, nor told that its node is
	// unknown: it may have brought something, and what its peer did before it came may not be in it.
	LastStream uint64
	// Withheld are the resources that the check does not let through, each once. Sealed has bytes in
	// their place that it let through before, or nothing. It must not be changed.
	Withheld []draft.Withheld
	// Listeners is what [Proxies.Listeners] gave when it was worked out what to withhold. Where
	// something is withheld and the client has accepted others since, no listener is sent until a
	// config comes that was worked out with those.
	Listeners []*draft.Resource
}

// Publish sets the config of nodes, each at once. A nil config says that the node is unknown: a
// connected client keeps what it has, is listed as unknown and is told after UnknownGrace. The
// configs of other nodes stay as they are.
//
// A node that is refused has its streams ended, where it has no config: that of one that is served
// stays.
//
// The caller publishes the config of every node that Connected returns whenever Changed was called;
// one that is the same as before costs a comparison of pointers. Configs of nodes that are not
// connected are dropped: a node that comes back waits for a fresh one.
func (p *Proxies) Publish(configs map[node.Key]Config) {
	var later []func() // log lines: no node waits for those of another one
	for key, cfg := range configs {
		n := p.proxyOf(key)
		if n == nil {
			continue
		}
		n.mu.Lock()
		if cfg.Refused != nil {
			n.endRefused(cfg)
		} else if n.setConfig(cfg, time.Now()) {
			n.refresh()
		}
		n.noteAnswered()
		later, n.later = append(later, n.later...), nil
		n.mu.Unlock()
	}
	p.watchers.notify()
	for _, log := range later {
		log()
	}
}

// Connected returns the keys of the nodes with a stream, known or not, sorted.
func (p *Proxies) Connected() []node.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []node.Key
	for key, n := range p.nodes {
		if n.connected > 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// Waiting returns the nodes with a stream that is served nothing yet, since when it is there: those
// without a config, and those whose last publication was made before it came.
func (p *Proxies) Waiting() map[node.Key]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[node.Key]time.Time{}
	for key, n := range p.nodes {
		n.mu.Lock()
		for _, st := range n.streams {
			if since, waits := out[key]; st.waits() && (!waits || st.client.Opened.Before(since)) {
				out[key] = st.client.Opened
			}
		}
		n.mu.Unlock()
	}
	return out
}

// Unserved returns how many connected nodes nobody has looked at since their newest stream came,
// and since when the first of these is there. It is the work that a slow machine is behind with: a
// node that is not known is none of them.
func (p *Proxies) Unserved() (nodes int, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.nodes {
		n.mu.Lock()
		counted := false
		for _, st := range n.streams {
			if st.number == 0 || st.isPublishedFor() {
				continue
			}
			if !counted {
				counted = true
				nodes++
			}
			if since.IsZero() || st.client.Opened.Before(since) {
				since = st.client.Opened
			}
		}
		n.mu.Unlock()
	}
	return nodes, since
}

// LastStream returns the number of the stream that was let in last, 0 before the first. See
// [Config.LastStream].
func (p *Proxies) LastStream() uint64 { return p.lastStream.Load() }

// Peer returns who is at the other end of the newest stream of a node; false where there is none,
// or its client is no Envoy.
func (p *Proxies) Peer(key node.Key) (access.Peer, bool) {
	n := p.proxyOf(key)
	if n == nil {
		return access.Peer{}, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.client.Peer, len(n.streams) > 0 && n.client.Build != nil
}

// Build returns what the client of a node says of itself; nil where it is not known. It is not
// changed.
func (p *Proxies) Build(key node.Key) *finding.Build {
	n := p.proxyOf(key)
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.client.Build
}

// Listeners returns the listeners that the client of a node has accepted last, sorted by name. They
// tell which addresses it has left. The list must not be changed.
func (p *Proxies) Listeners(key node.Key) []*draft.Resource {
	n := p.proxyOf(key)
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.accepted[draft.RankListener]
}

// proxyOf returns what is known of a node; nil where it was never connected and has no config.
func (p *Proxies) proxyOf(key node.Key) *proxy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nodes[key]
}

func compareKeys(a, b node.Key) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Flavor, b.Flavor))
}
