package rollout

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// proxy is the state of one node. It outlives the streams of the node for a while, so that a proxy
// that restarts does not receive rejected resources again. It combines five components, each with a
// separate type and file: the resources that the client has, rejections, draining,
// replaced filter chains, and sync status.
type proxy struct {
	proxies *Proxies
	key     node.Key
	ref     node.Ref

	// Guarded by the mu of proxies.
	connected int       // number of opened streams
	leftAt    time.Time // end of the last stream

	mu           sync.Mutex // guards all fields below and the watches of the streams
	ready        bool
	publishedFor uint64 // Config.LastStream of the newest publication, which considered these streams
	streams      []*Stream
	client       Client          // of the newest stream
	later        []func()        // log lines to write when mu is free; see unlock
	keeps        bool            // the last publication was one with Keep
	keyed        map[string]bool // by version of a resource: it holds an inline key; for plain connections

	resourceState
	rejectionState
	drainState
	replacedState
	syncState
}

// logLater schedules a warning that is logged when mu is free, so that a slow log does not delay
// the proxy.
func (n *proxy) logLater(message string, args ...any) {
	n.later = append(n.later, func() { n.proxies.opts.Log.Warn(message, args...) })
}

// unlock releases mu and writes the scheduled log lines. The caller must not hold the mu of
// Proxies.
func (n *proxy) unlock() {
	later := n.later
	n.later = nil
	n.mu.Unlock()
	for _, log := range later {
		log()
	}
}

// setConfig sets the config, nil for an unknown node, and reports whether streams must be updated.
func (n *proxy) setConfig(c Config, now time.Time) bool {
	n.revision, n.keeps = c.Revision, false
	old, cfg := n.cfg, c.Sealed
	stale := n.outdated()
	n.checkedAgainst = c.Listeners
	for _, st := range n.streams {
		if st.number > n.publishedFor && st.number <= c.LastStream {
			stale = true
			if c.Sealed != nil {
				n.proxies.metrics.wait.Observe(n.proxies.opts.Now().Sub(st.client.Opened).Seconds())
			}
		}
	}
	n.publishedFor = max(n.publishedFor, c.LastStream)
	if cfg == old && (cfg == nil || slices.Equal(c.Withheld, n.checked) && n.sameSubstituted(c.Substituted)) {
		return stale
	}
	n.cfg = cfg
	if cfg == nil {
		return true
	}
	n.served = true
	if old == nil {
		old = n.previous
	}
	n.previous = nil
	if old == nil || old.Versions != cfg.Versions {
		n.pushedAt = now
	}
	for rank := range cfg.Versions {
		if old == nil || old.Versions[rank] != cfg.Versions[rank] {
			n.firstRevision[rank] = c.Revision
		}
	}
	n.substitute(c.Substituted)
	n.withhold(c.Withheld, now)
	n.dropObsoleteRejections(old, cfg)
	n.planHandovers()
	n.hold()
	if n.outdated() {
		n.proxies.opts.Changed() // the client has accepted other listeners since
	}
	return true
}

// setKept leaves the config as it is.
func (n *proxy) setKept() {
	n.keeps = true
}

// endRefused ends the streams of a refused node without a config for which the config was
// published.
func (n *proxy) endRefused(c Config) {
	if n.cfg != nil {
		return
	}
	for _, st := range n.streams {
		if st.number > 0 && st.number <= c.LastStream {
			st.transport.End("memory", status.Error(codes.ResourceExhausted, c.Refused.Error()))
		}
	}
}

// dropConfig forgets the config after the last stream has ended: the next stream waits for a new
// config. Rejections and accepted resources are remembered.
func (n *proxy) dropConfig() {
	n.keeps = false
	n.resourceState.close(n.rejects)
	n.scheduleRetry()
	n.drainState.stopTimer()
}

// refresh sends what the streams can receive, and starts or stops the grace period of streams
// without a config.
func (n *proxy) refresh() {
	for _, st := range n.streams {
		st.watchGrace()
		st.advance()
	}
}

// acknowledged records that a client accepted a response.
func (n *proxy) acknowledged(t *Response) {
	n.accept(t, func(*draft.Resource) bool { return true })
	s := n.status(t.w.rank)
	s.AckedVersion, s.AckedAt, s.NACK = t.Version, n.proxies.opts.Now(), nil
	s.Acknowledged++
	n.hold()
	n.record(api.Event{Kind: "ack", Version: t.Version, Nonce: t.nonce}, t)
}

// accept records the resources of a response for which accepted returns true as accepted.
func (n *proxy) accept(t *Response, accepted func(*draft.Resource) bool) {
	rank := t.w.rank
	var good []*draft.Resource
	for _, r := range t.Send {
		if accepted(r) {
			good = append(good, r)
			n.forgetAccepted(rank, r, n.cfg == nil || n.configured(rank, r.Name) == r)
		}
	}
	if t.w.sub.IsWildcard() && len(n.rejected[rank]) == 0 && len(good) == len(t.Send) && len(t.w.unacked) == 0 {
		n.setAccepted(rank, t.base) // usually shared with the config
		return
	}
	n.setAccepted(rank, n.afterResponse(rank, good, t.Removed, t.base))
}

// refused records that a client rejected a response. A client applies the valid resources of a
// response and names the others in its message: named resources are rejected, the others are
// accepted. If the message names none, or Envoy only quotes names, the client has applied nothing
// and whole is true. Then the new resources of the response are suspects; see [trial].
func (n *proxy) refused(t *Response, reason string) (whole bool) {
	rank, now := t.w.rank, n.proxies.opts.Now()
	bad, suspectIn, message := namesIn(reason, t.Send), "", reason
	if len(bad) > 0 && !(n.client.Envoy && quotesWhole(rank, reason)) {
		n.accept(t, func(r *draft.Resource) bool { _, is := bad[r.Name]; return !is })
	} else if bad = n.newlySent(t); n.bisects(t.w) {
		whole = len(t.Send) > 0
	} else {
		suspectIn = t.list
	}
	reason = clip.PrintableText(reason, maxReason)
	if n.rejected[rank] == nil {
		n.rejected[rank] = map[string]*rejection{}
	}
	var names, onTrial []string
	for _, r := range t.Send {
		if _, is := bad[r.Name]; !is {
			continue
		}
		names = append(names, r.Name)
		if n.cfg != nil {
			if c := n.configured(rank, r.Name); c == nil || c.Version != r.Version ||
				suspectIn != "" && suspectIn != n.cfg.Versions[rank] {
				continue // it has changed since
			}
		}
		rej := &rejection{resource: r, reason: reason, at: now, suspectIn: suspectIn,
			since:  n.rejectedSince(rank, r.Name, n.acceptedRevision[rank]),
			madeAt: t.madeAt}
		if a := n.acceptedForm(rank, r.Name); a != nil && a.Version == r.Version {
			// The client accepted these bytes before. After a restart it may reject them, for
			// example because a port is in use. They are no longer in force.
			rej.overtakes, rej.since, n.since[rank][r.Name] = true, 0, 0
		}
		rej.noteInitialVersions(t, n.rejected[rank][r.Name])
		rej.alone = whole && len(bad) == 1
		if rej.suspect = whole && !rej.alone; rej.suspect {
			onTrial = append(onTrial, r.Name)
		} else if suspectIn == "" {
			rej.retry = schedule(n.rejected[rank][r.Name], r, reasonOf(message, r.Name, bad), now)
		}
		n.rejected[rank][r.Name] = rej
	}
	n.bisect(rank, onTrial)
	n.pruneTrial(rank)
	n.hold()
	s := n.status(rank)
	s.Rejections++
	s.NACK = &api.NACK{Version: t.Version, Time: now, Reason: reason, Resources: firstNames(names, maxNackNames),
		Policies: []api.Blame{}}
	n.proxies.metrics.nacks.WithLabelValues(typeLabels[rank]).Inc()
	n.record(api.Event{Kind: "nack", Version: t.Version, Nonce: t.nonce, Reason: reason, Resources: names,
		Count: len(names)}, t)
	n.logLater("proxy rejected a response", "node", n.key.ID, "flavor", n.key.Flavor,
		"type", draft.Types[rank], "version", t.Version, "reason", reason, "resources", firstNames(names, maxEventNames))
	n.proxies.opts.Rejected()
	return whole
}

// delivered records that a response is about to be sent.
func (n *proxy) delivered(t *Response) {
	s := n.status(t.w.rank)
	s.SentVersion, s.SentAt, n.sentBy[t.w.rank] = t.Version, n.proxies.opts.Now(), t.w
	s.Responses++
	n.record(api.Event{Kind: "sent", Version: t.Version, Nonce: t.nonce, Reason: t.cause,
		Count: len(t.Send) + len(t.Removed)}, t)
}
