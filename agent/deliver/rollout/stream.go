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

// Client is who opened a stream.
type Client struct {
	Peer      access.Peer
	UserAgent string         // as the client says, as all below
	Version   string         // of the user agent
	Build     *finding.Build // nil where it is not known
	Envoy     bool
	Delta     bool      // the stream speaks the delta protocol
	Opened    time.Time // when the stream was opened
}

// Transport is the connection of a stream. Its methods are called with locks held: they do not
// block, nor call back.
type Transport interface {
	// End ends the stream with an error, once; reason is the label under which that is counted.
	End(reason string, err error)
	// HasEnded reports whether the stream has ended or is about to.
	HasEnded() bool
}

// Stream is what one stream of a client asks for and has. Its methods are called by the goroutine
// of the stream.
type Stream struct {
	proxy     *proxy
	client    Client
	transport Transport
	number    uint64 // among those that were let in, from 1 on; 0 before

	// Guarded by the mu of the proxy.
	ended bool
	// subscribing is set while the delta handler changes the subscription of a watch, which nobody may
	// look at then; SubscribeDelta follows and makes up for what was missed.
	subscribing   bool
	watches       [draft.NumTypes]*typeWatch
	warming       map[string]struct{} // endpoints of clusters that were sent before endpoints were asked for
	graceTimer    *time.Timer
	removalTimer  *time.Timer
	removalForced bool
	warmTimer     *time.Timer // runs while listeners or routes wait for clusters that warm
	warmForced    bool
	ackTimer      *time.Timer // runs while a response is not acknowledged
}

// Join puts a stream under its node. It is served nothing until [Stream.Open].
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

// Open lets a stream in.
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
	// Ready may have been called since the stream joined.
	n.ready = p.ready
	st.number = p.lastStream.Add(1)
	n.setClient(st)
	st.watchGrace()
	n.mu.Unlock()
	p.mu.Unlock()
	p.watchers.notify()
	p.opts.Changed()
}

// Leave takes a stream off its node and reports whether it was the last one that was let in: then
// [Proxies.Left] follows. A node without streams is remembered for a while if one was ever let in.
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
		delete(p.nodes, n.key) // it was never let in
	}
	p.mu.Unlock()
	p.watchers.notify()
	return last
}

// Left has the next pass look at the nodes, since the last stream of one has ended.
func (p *Proxies) Left() { p.opts.Changed() }

// end stops all that the stream has under way. The mu of the node is held.
func (st *Stream) end() {
	st.ended = true
	for _, t := range []*time.Timer{st.graceTimer, st.removalTimer, st.warmTimer, st.ackTimer} {
		if t != nil {
			t.Stop()
		}
	}
}

// isLookedAt says whether what was published last for the node was made with what this stream
// brought, and from the state that its peer found. Until then nothing is known of it, not even that
// there is nothing. The mu of the node is held.
func (st *Stream) isPublishedFor() bool { return st.number > 0 && st.number <= st.proxy.publishedFor }

// waits says that a stream is served nothing yet. The mu of the node is held.
func (st *Stream) waits() bool { return st.number > 0 && (st.proxy.cfg == nil || !st.isPublishedFor()) }

// watchGrace starts the grace of a stream whose node is not known, and stops it once it is. The mu
// of the node is held.
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

// endGrace tells the client of a node that is not known so. A node that has been stored since
// somebody looked is known: that no pass has come to it yet is no fault of its client, however long
// it takes.
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
			"node id %q is not known: %s; if it is there, nearside status says why no config could be made",
			n.key.ID, n.ref.Remedy()))
	}
}

// awaitAck bounds how long the client may leave a response unanswered; progress says that it has
// just answered one. The mu of the node is held.
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

// inSync says whether a stream has, and has acknowledged, the config in all types that it asked
// for.
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
