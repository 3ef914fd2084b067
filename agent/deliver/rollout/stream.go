package rollout

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Client describes the client of a stream.
type Client struct {
	Peer      access.Peer
	UserAgent string         // as the client reports it, like the fields below
	Version   string         // of the user agent
	Build     *finding.Build // nil if unknown
	Envoy     bool
	Delta     bool      // the stream speaks the delta protocol
	Opened    time.Time // when the stream was opened
}

// Transport is the connection of a stream. Its methods are called with locks held: they must not
// block or call back.
type Transport interface {
	// End ends the stream with an error. Only the first call has an effect. reason is the metric
	// label.
	End(reason string, err error)
	// HasEnded reports whether the stream has ended or is about to.
	HasEnded() bool
}

// Stream is the subscriptions and resources of one stream of a client. Its methods are called by
// the goroutine of the stream.
type Stream struct {
	proxy     *proxy
	client    Client
	transport Transport
	number    uint64 // number among the opened streams, from 1; 0 before Open

	// Guarded by the mu of the proxy.
	ended bool
	// subscribing is set while the delta handler changes the subscription of a watch, which must
	// not be read meanwhile. The subsequent call of SubscribeDelta updates the stream.
	subscribing   bool
	retries       []retryName // due while subscribing was set
	watches       [draft.NumTypes]*typeWatch
	warming       map[string]struct{} // endpoints of clusters that were sent before the client subscribed to endpoints
	graceTimer    *time.Timer
	removalTimer  *time.Timer
	removalForced bool
	warmTimer     *time.Timer // runs while listeners or routes wait for warming clusters
	warmForced    bool
	ackTimer      *time.Timer // runs while a response is unanswered
	inbounds      inbounds
}

// Join adds a stream to its node. It receives nothing before [Stream.Open].
func (p *Proxies) Join(key node.Key, ref node.Ref, c Client, t Transport) *Stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[key]
	if n == nil {
		n = &proxy{proxies: p, key: key, ref: ref}
		p.nodes[key] = n
	}
	st := &Stream{proxy: n, client: c, transport: t}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready = p.ready
	n.streams = append(n.streams, st)
	return st
}

// Open opens a stream, which receives responses from now on.
func (st *Stream) Open() {
	n := st.proxy
	p := n.proxies
	p.mu.Lock()
	n.connected++
	if n.connected == 1 {
		p.metrics.proxies.Inc()
		if i := slices.Index(p.gone, n); i >= 0 {
			p.gone = slices.Delete(p.gone, i, i+1)
		}
	}
	n.mu.Lock()
	// Ready may have been called after Join.
	n.ready = p.ready
	st.number = p.lastStream.Add(1)
	n.setClient(st)
	st.watchGrace()
	n.mu.Unlock()
	p.mu.Unlock()
	p.watchers.notify()
	p.opts.Changed()
}

// Leave removes a stream from its node and reports whether it was the last opened stream. Then the
// caller calls [Proxies.Left]. A node without streams is remembered for a while if one was opened.
func (st *Stream) Leave() (last bool) {
	n, wasOpened := st.proxy, st.number > 0
	p := n.proxies
	p.mu.Lock()
	n.mu.Lock()
	n.countResources()
	st.end()
	n.streams = slices.DeleteFunc(n.streams, func(o *Stream) bool { return o == st })
	n.syncState.leave(&st.watches)
	alone := len(n.streams) == 0
	if wasOpened {
		n.record(api.Event{Kind: "disconnected"}, nil)
	}
	n.noteAnswered()
	n.mu.Unlock()
	if wasOpened {
		n.connected--
		last = n.connected == 0
	}
	if last {
		p.metrics.proxies.Dec()
		n.leftAt = time.Now()
		n.mu.Lock()
		n.dropConfig()
		n.mu.Unlock()
		p.gone = append(p.gone, n)
		p.forget()
		p.awaitGone()
	} else if alone && n.connected == 0 && !slices.Contains(p.gone, n) {
		n.mu.Lock()
		p.countRejections(n, false)
		n.mu.Unlock()
		delete(p.nodes, n.key) // it was never opened
	}
	p.mu.Unlock()
	p.watchers.notify()
	return last
}

// Left triggers a pass after the last stream of a node has ended.
func (p *Proxies) Left() { p.opts.Changed() }

// end stops the timers of the stream. The caller holds the mu of the proxy.
func (st *Stream) end() {
	st.ended = true
	for _, t := range []*time.Timer{st.graceTimer, st.removalTimer, st.warmTimer, st.ackTimer} {
		if t != nil {
			t.Stop()
		}
	}
}

// isPublishedFor reports whether the last publication for the node considered this stream and what
// its client brought. Until then nothing is known about the node, not even that it is unknown. The
// caller holds the mu of the proxy.
func (st *Stream) isPublishedFor() bool { return st.number > 0 && st.number <= st.proxy.publishedFor }

// waits reports whether the stream waits for its first config. The caller holds the mu of the
// proxy.
func (st *Stream) waits() bool { return st.number > 0 && (st.proxy.cfg == nil || !st.isPublishedFor()) }

// watchGrace starts the grace period of a stream whose node is unknown, and stops it when the node
// is known. The caller holds the mu of the proxy.
func (st *Stream) watchGrace() {
	n := st.proxy
	switch {
	case n.cfg != nil:
		if st.graceTimer != nil {
			st.graceTimer.Stop()
			st.graceTimer = nil
		}
	case n.ready && st.isPublishedFor() && st.graceTimer == nil && !st.ended:
		st.graceTimer = time.AfterFunc(n.proxies.opts.UnknownGrace, st.endGrace)
	}
}

// endGrace ends the stream of an unknown node with an error. A node that was stored since the last
// pass is known, although no pass has generated its config yet.
func (st *Stream) endGrace() {
	n := st.proxy
	n.mu.Lock()
	known := n.cfg != nil
	if !known && !st.ended && n.proxies.opts.Stored(n.ref) > n.revision {
		st.graceTimer, known = nil, true
		st.watchGrace()
	}
	n.mu.Unlock()
	if !known {
		st.transport.End("unknown", status.Errorf(codes.NotFound,
			"node id %q is not known: %s; if it exists, nearside status shows why it has no config",
			n.key.ID, n.ref.Remedy()))
	}
}

// awaitAck bounds how long the client may leave a response unanswered. progress is set if it has
// just answered one. The caller holds the mu of the proxy.
func (st *Stream) awaitAck(progress bool) {
	timeout := st.proxy.proxies.opts.AckTimeout
	outstanding := slices.ContainsFunc(st.watches[:], func(w *typeWatch) bool { return w != nil && len(w.unacked) > 0 })
	switch {
	case !outstanding && st.ackTimer != nil:
		st.ackTimer.Stop()
		st.ackTimer = nil
	case outstanding && st.ackTimer == nil:
		st.ackTimer = time.AfterFunc(timeout, func() {
			st.transport.End("stuck",
				status.Errorf(codes.DeadlineExceeded, "a response was neither acknowledged nor rejected within %v", timeout))
		})
	case outstanding && progress:
		st.ackTimer.Reset(timeout)
	}
}

// inSync reports whether the client has acknowledged the config in all types to which the stream
// subscribes.
func (st *Stream) inSync() bool {
	if st.proxy.cfg == nil || st.subscribing {
		return false
	}
	asked := false
	for _, w := range st.watches {
		if w == nil {
			continue
		}
		asked = true
		if !w.answered() || w.quiet(st.proxy.cfg) {
			return false
		}
		if c := st.pending(w); !c.empty() || c.waiting {
			return false
		}
	}
	return asked
}
