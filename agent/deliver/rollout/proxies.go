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

// Options are the options of Proxies. The zero value is valid: it logs nothing, calls nothing, and
// has the default limits.
type Options struct {
	// Log receives log entries; nil discards them.
	Log *slog.Logger
	// Now is the clock for times in the status; nil is time.Now.
	Now func() time.Time
	// Changed is called when a stream is opened, when the last stream of a node ends, and when a
	// client from which something is withheld accepts listeners. It must not block or call Proxies.
	// Nil is a no-op.
	Changed func()
	// Stored returns the revision of the store that added a node, 0 if the store does not have it.
	// A node that was unknown at an earlier revision is not reported as unknown to its client
	// before the next pass. Stored must not block or call Proxies. Nil returns 0.
	Stored func(node.Ref) uint64
	// Decides is set if the publisher leaves policies out of rejected resources: it reads
	// [Proxies.Rejections] before it publishes a config.
	Decides bool
	// Rejected is called when a client has rejected something. It must not block. Nil is a no-op.
	Rejected func()
	// Recorded gets what clients do. It must not block or call Proxies. Nil is a no-op.
	Recorded func(Recorded)
	// Inbounds is called when a stream of an Envoy opens listeners of inbounds, with the names of all
	// that it has acknowledged, including everything to which they refer. It must not block or call
	// Proxies. Nil is a no-op.
	Inbounds func(ref node.Ref, peer *access.Process, listeners []string)
	// Registry registers the nearside_xds_* metrics of proxies; nil leaves them unregistered.
	Registry prometheus.Registerer

	// UnknownGrace is how long the stream of an unknown node stays open before it ends with an
	// error. The default is 10 s.
	UnknownGrace time.Duration
	// RemovalWait bounds how long the removal of a cluster, endpoint, or route waits for the
	// acknowledgement of the listeners and routes that referred to it. The default is 15 s.
	RemovalWait time.Duration
	// WarmWait bounds how long listeners and routes wait until an Envoy acknowledges clusters that
	// are new to it, which it does when they are warm. The default is 10 s.
	WarmWait time.Duration
	// DrainTime is how long connections may stay on a listener that an Envoy has replaced. The
	// Envoy keeps the resources to which the listener refers for this time. 0 keeps them until the
	// new listener is acknowledged.
	DrainTime time.Duration
	// HandoverTime is how long an Envoy keeps a listener whose protocol changes if others must
	// change first; see [handover]. 0 disables this.
	HandoverTime time.Duration
	// AckTimeout is how long a client may leave a response unanswered, whether it does not read it
	// or does not answer, before the stream is closed. The default is 2 min.
	AckTimeout time.Duration
	// GoneTime is how long the accepted resources of a node without a stream are remembered. The
	// default is 1 min. Rejections are remembered longer, together with the accepted resources.
	GoneTime time.Duration
	// Forgot is called when accepted resources of disconnected clients are forgotten. It must not
	// block or call Proxies. Nil is a no-op.
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
	if o.Recorded == nil {
		o.Recorded = func(Recorded) {}
	}
	o.UnknownGrace = cmp.Or(o.UnknownGrace, 10*time.Second)
	o.RemovalWait = cmp.Or(o.RemovalWait, 15*time.Second)
	o.WarmWait = cmp.Or(o.WarmWait, 10*time.Second)
	o.AckTimeout = cmp.Or(o.AckTimeout, 2*time.Minute)
	o.GoneTime = cmp.Or(o.GoneTime, time.Minute)
	return o
}

// Proxies holds the state of all proxies that have an xDS stream or had one recently. It is safe
// for concurrent use. Create it with New.
type Proxies struct {
	opts     Options
	metrics  *metrics
	watchers watchers

	rejecting  atomic.Int64  // number of proxies with rejections
	lastStream atomic.Uint64 // number of streams that were opened

	mu        sync.Mutex // locked before the mu of a proxy; guards all fields below
	ready     bool
	stopped   bool
	nodes     map[node.Key]*proxy
	gone      []*proxy    // nodes without a stream, the longest disconnected first
	goneTimer *time.Timer // runs until accepted resources are forgotten; see forgetAccepted

	progress   []Progress // computed after progressOf changes
	progressOf uint64
}

// New returns Proxies that send nothing until Ready is called.
func New(o Options) *Proxies {
	o = o.withDefaults()
	p := &Proxies{opts: o, nodes: map[node.Key]*proxy{}}
	p.metrics = newMetrics(o.Registry, held{p}, o.Log)
	return p
}

// Stop stops the timers of disconnected proxies. All streams must have ended.
func (p *Proxies) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.goneTimer != nil {
		p.goneTimer.Stop()
	}
}

// Ready lets the streams receive responses. Nothing is sent before, so that no client mistakes an
// agent that has not loaded its state for an empty mesh.
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

// Config is the config of a node for Publish.
type Config struct {
	Sealed *draft.Sealed // nil: the node is unknown
	// Refused ends the streams of a node without a config with RESOURCE_EXHAUSTED. Nil does not.
	Refused error
	// Keep leaves the config of a node as it is, which may be none: its client receives nothing, and
	// is not reported as unknown.
	Keep     bool
	Revision uint64 // revision of the store from which it was generated, or a later one with the same result
	// LastStream is the result of [Proxies.LastStream] before the inputs of the config were read. A
	// stream that was opened later does not receive the config, and is not reported as unknown: the
	// config may lack resources that the client reported, or changes from before it connected.
	LastStream uint64
	// Withheld lists the resources that the check withholds, each once. Sealed has a form of them
	// that was published before, or nothing. The list must not be changed.
	Withheld []draft.Withheld
	// Substituted lists the rejected resources of which Sealed has a form without some policies, or
	// no form because only these policies make them. The list must not be changed.
	Substituted []draft.Rejection
	// Listeners is the result of [Proxies.Listeners] from which Withheld was determined. If
	// something is withheld and the client has accepted other listeners since, no listener is sent
	// until a config based on these is published.
	Listeners []*draft.Resource
}

// Publish sets the config of nodes, each atomically. Nil means that the node is unknown: a
// connected client keeps its config, is listed as unknown, and receives an error after
// UnknownGrace. The configs of other nodes stay unchanged.
//
// The streams of a refused node without a config are ended. A node with a config keeps it.
//
// The caller publishes the config of every node of Connected whenever Changed is called. An
// unchanged config costs a comparison of pointers. Configs of nodes that are not connected are
// dropped: a node that reconnects waits for a new one.
func (p *Proxies) Publish(configs map[node.Key]Config) {
	var later []func() // log lines, which are written after all nodes are updated
	for key, cfg := range configs {
		n := p.proxyOf(key)
		if n == nil {
			continue
		}
		n.mu.Lock()
		n.decided()
		if cfg.Refused != nil {
			n.endRefused(cfg)
		} else if cfg.Keep {
			n.setKept()
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

// Waiting returns the nodes with a stream that has received nothing yet, with the time when it was
// opened: nodes without a config, and nodes whose last publication preceded the stream.
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

// Unserved returns the number of connected nodes for which nothing was published since their newest
// stream was opened, and when the first of these streams was opened. It measures how far a slow
// machine is behind; unknown nodes do not count.
func (p *Proxies) Unserved() (nodes int, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.nodes {
		n.mu.Lock()
		counted := false
		for _, st := range n.streams {
			if st.number == 0 || st.isPublishedFor() || n.keeps {
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

// LastStream returns the number of the stream that was opened last, 0 before the first. See
// [Config.LastStream].
func (p *Proxies) LastStream() uint64 { return p.lastStream.Load() }

// Peer returns the peer of the newest stream of a node, false if there is none or its client is not
// an Envoy.
func (p *Proxies) Peer(key node.Key) (access.Peer, bool) {
	n := p.proxyOf(key)
	if n == nil {
		return access.Peer{}, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.client.Peer, len(n.streams) > 0 && n.client.Build != nil
}

// HasConfig reports whether a config was published for a node with a stream.
func (p *Proxies) HasConfig(key node.Key) bool {
	n := p.proxyOf(key)
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cfg != nil && len(n.streams) > 0
}

// Build returns the Envoy build that the client of a node reports, nil if it is unknown. It must
// not be changed.
func (p *Proxies) Build(key node.Key) *finding.Build {
	n := p.proxyOf(key)
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.client.Build
}

// Listeners returns the listeners that the client of a node accepted last, sorted by name. Their
// addresses are in use. The list must not be changed.
func (p *Proxies) Listeners(key node.Key) []*draft.Resource {
	n := p.proxyOf(key)
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.accepted[draft.RankListener]
}

// proxyOf returns the state of a node, nil if it was never connected.
func (p *Proxies) proxyOf(key node.Key) *proxy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nodes[key]
}

func compareKeys(a, b node.Key) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Flavor, b.Flavor))
}
