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

// proxy is what the server knows of one node. It outlives the streams of the node for a while, so
// that a proxy which restarts is not given again what it rejected.
type proxy struct {
	all *Proxies
	key node.Key
	ref node.Ref

	// Guarded by the mu of all.
	connected int       // streams that were opened
	leftAt    time.Time // when the last of them ended

	mu       sync.Mutex // guards all below and the watches of the streams
	ready    bool
	looked   uint64        // Config.LastStream of the newest publication: it was made with what these streams brought
	cfg      *draft.Sealed // nil while no stream is open
	past     *draft.Sealed // cfg of before, while no stream is open, where something of it is rejected or withheld
	revision uint64        // of the store that cfg was made from
	lists    draft.Lists   // what the streams bring the client to; see hold
	served   bool          // had a config at any time
	pushedAt time.Time
	streams  []*Stream

	accepted draft.Lists // the last bytes that the client took, sorted by name
	rejected [draft.NumTypes]map[string]*rejection
	trials   [draft.NumTypes]trial
	spared   [draft.NumTypes]map[string]struct{}   // left out of lists for a trial; see isSpared
	delayed  [draft.NumTypes]bool                  // something waits until the client has answered other types
	waiting  [draft.NumTypes]map[string]*rejection // of listeners and routes: held for a cluster that is rejected
	since    [draft.NumTypes]map[string]uint64     // rejection.since, until the client has taken the resource

	against  []*draft.Resource                     // Config.Listeners
	checked  []draft.Withheld                      // by the check of the agent, as they were published with cfg
	withheld [draft.NumTypes]map[string]*rejection // the same
	unsent   [draft.NumTypes]bool                  // in place of some of withheld the client is sent nothing; see spares
	// state of the world: the client came with other resources than those known
	foreign [draft.NumTypes]bool

	draining   []drainingListener // the oldest first
	bridged    map[bridging]*draft.Resource
	leaveUntil time.Time            // see leavesStrays
	handovers  map[string]*handover // by listener
	drainTimer *time.Timer          // runs until the next of all these is over

	answered      uint64                 // the newest revision whose config the client has answered in whole
	takenRevision [draft.NumTypes]uint64 // the newest revision of which it has taken a type in whole
	cameUp        [draft.NumTypes]uint64 // the first revision with the present list of a type

	retryTimer *time.Timer // runs while something is to be tried again

	rejects bool // it has entries in rejected or withheld, and is counted in the rejecting of all

	later []func() // log lines, which are written once mu is free; see unlock

	client Client // of the newest stream
	types  [draft.NumTypes]*api.TypeStatus
	sentBy [draft.NumTypes]*typeWatch // of the last response; nil: its stream has ended
	events []api.Event                // the oldest first, once wrapped from nextEv on
	nextEv int
}

// logLater has a warning written when mu is free: nothing waits for whoever reads the log.
func (n *proxy) logLater(message string, args ...any) {
	n.later = append(n.later, func() { n.all.opts.Log.Warn(message, args...) })
}

// unlock frees mu and writes the log lines. The mu of the server must not be held.
func (n *proxy) unlock() {
	later := n.later
	n.later = nil
	n.mu.Unlock()
	for _, log := range later {
		log()
	}
}

// setConfig puts a config, or nil for none, in force and says whether streams have to look at it.
func (n *proxy) setConfig(c Config, now time.Time) bool {
	n.revision = c.Revision
	old, cfg := n.cfg, c.Sealed
	again := n.outdated()
	n.against = c.Listeners
	for _, st := range n.streams {
		if st.number > n.looked && st.number <= c.LastStream {
			again = true
			if c.Sealed != nil {
				n.all.metrics.wait.Observe(n.all.opts.Now().Sub(st.client.Opened).Seconds())
			}
		}
	}
	n.looked = max(n.looked, c.LastStream)
	if cfg == old && (cfg == nil || slices.Equal(c.Withheld, n.checked)) {
		return again
	}
	n.cfg = cfg
	if cfg == nil {
		return true
	}
	n.served = true
	if old == nil {
		old = n.past
	}
	n.past = nil
	if old == nil || old.Versions != cfg.Versions {
		n.pushedAt = now
	}
	for rank := range cfg.Versions {
		if old == nil || old.Versions[rank] != cfg.Versions[rank] {
			n.cameUp[rank] = c.Revision
		}
	}
	n.withhold(c.Withheld, now)
	n.reconsider(old, cfg)
	n.takeSides()
	n.hold()
	if n.outdated() {
		n.all.opts.Changed() // the client has accepted others since somebody looked
	}
	return true
}

// turnAway ends the streams of a node that is refused, where it has no config, and those that it
// was looked at for.
func (n *proxy) turnAway(c Config) {
	if n.cfg != nil {
		return
	}
	for _, st := range n.streams {
		if st.number > 0 && st.number <= c.LastStream {
			st.transport.End("memory", status.Error(codes.ResourceExhausted, c.Refused.Error()))
		}
	}
}

// dropConfig forgets the config when the last stream has ended: whoever comes next waits for what a
// pass makes of the state by then. What the client has rejected and accepted is remembered.
func (n *proxy) dropConfig() {
	if n.past = nil; n.rejects {
		n.past = n.cfg
	}
	n.cfg, n.lists = nil, draft.Lists{}
	n.armRetry()
	n.stopDrainTimer()
}

// refresh lets the streams take what they can and starts or stops the grace of those without a
// config.
func (n *proxy) refresh() {
	for _, st := range n.streams {
		st.watchGrace()
		st.advance()
	}
}

// acknowledged takes note that a client accepted a response.
func (n *proxy) acknowledged(t *Response) {
	n.accept(t, func(*draft.Resource) bool { return true })
	s := n.status(t.w.rank)
	s.AckedVersion, s.AckedAt, s.NACK = t.Version, n.all.opts.Now(), nil
	n.hold()
	n.record(api.Event{Kind: "ack", Version: t.Version, Nonce: t.nonce}, t)
}

// accept remembers the resources of a response that took admits as the last good ones.
func (n *proxy) accept(t *Response, took func(*draft.Resource) bool) {
	rank := t.w.rank
	var good []*draft.Resource
	for _, r := range t.Send {
		if took(r) {
			good = append(good, r)
			if n.isRejected(rank, r) {
				delete(n.rejected[rank], r.Name)
			}
			if len(n.since[rank]) > 0 && n.withheld[rank][r.Name] == nil &&
				(n.cfg == nil || draft.Find(n.cfg.Resources[rank], r.Name) == r) {
				delete(n.since[rank], r.Name)
			}
		}
	}
	if t.w.sub.IsWildcard() && len(n.rejected[rank]) == 0 && len(good) == len(t.Send) && len(t.w.unacked) == 0 {
		n.setAccepted(rank, t.base) // shared with the config, as a rule
		return
	}
	accepted := draft.Merge(n.accepted[rank], good, func(name string) bool {
		_, gone := slices.BinarySearch(t.Removed, name)
		return gone
	})
	// What a client lets go of without a word, as endpoints, is forgotten once there is more than
	// could be current.
	if n.cfg != nil && len(accepted) > len(n.cfg.Resources[rank]) {
		accepted = draft.Merge(accepted, nil, func(name string) bool {
			return draft.Find(n.cfg.Resources[rank], name) == nil && draft.Find(t.base, name) == nil
		})
	}
	n.setAccepted(rank, accepted)
}

// refused takes note that a client rejected a response. A client applies the good resources of a
// response and names the bad ones in its message: those named are taken as rejected and the others
// as accepted. Where none is named, or Envoy only quotes names, nothing of it is in force: the
// client has what it had, and whole is true. What was new is suspected then; see [trial].
func (n *proxy) refused(t *Response, reason string) (whole bool) {
	rank, now := t.w.rank, n.all.opts.Now()
	bad, suspectIn, message := namesIn(reason, t.Send), "", reason
	if len(bad) > 0 && !(n.client.Envoy && quotesWhole(rank, reason)) {
		n.accept(t, func(r *draft.Resource) bool { _, is := bad[r.Name]; return !is })
	} else if bad = n.suspects(t); n.bisects(t.w) {
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
			if c := draft.Find(n.cfg.Resources[rank], r.Name); c == nil || c.Version != r.Version ||
				suspectIn != "" && suspectIn != n.cfg.Versions[rank] {
				continue // changed since
			}
		}
		rej := &rejection{resource: r, reason: reason, at: now, suspectIn: suspectIn, since: n.rejectedSince(rank, r.Name),
			madeAt: t.madeAt}
		if a := draft.Find(n.accepted[rank], r.Name); a != nil && a.Version == r.Version {
			// The client took these bytes before, as one does that was started anew where a port is in use
			// by now. They are in force no longer.
			rej.overtakes, rej.since, n.since[rank][r.Name] = true, 0, 0
		}
		rej.noteCame(t, n.rejected[rank][r.Name])
		rej.alone = whole && len(bad) == 1
		if rej.suspect = whole && !rej.alone; rej.suspect {
			onTrial = append(onTrial, r.Name)
		} else if suspectIn == "" {
			rej.retry = schedule(n.rejected[rank][r.Name], r, reasonOf(message, r.Name, bad), now)
		}
		n.rejected[rank][r.Name] = rej
	}
	n.halve(rank, onTrial)
	n.goOn(rank)
	n.hold()
	s := n.status(rank)
	s.NACK = &api.NACK{Version: t.Version, Time: now, Reason: reason, Resources: firstNames(names, maxNackNames),
		Policies: []api.Blame{}}
	n.all.metrics.nacks.WithLabelValues(typeLabels[rank]).Inc()
	n.record(api.Event{Kind: "nack", Version: t.Version, Nonce: t.nonce, Reason: reason, Resources: names,
		Count: len(names)}, t)
	n.logLater("proxy rejected a response", "node", n.key.ID, "flavor", n.key.Flavor,
		"type", draft.Types[rank], "version", t.Version, "reason", reason, "resources", firstNames(names, maxEventNames))
	n.all.opts.Rejected()
	return whole
}

// delivered takes note that a response is on its way.
func (n *proxy) delivered(t *Response) {
	s := n.status(t.w.rank)
	s.SentVersion, s.SentAt, n.sentBy[t.w.rank] = t.Version, n.all.opts.Now(), t.w
	n.record(api.Event{Kind: "sent", Version: t.Version, Nonce: t.nonce, Reason: t.cause,
		Count: len(t.Send) + len(t.Removed)}, t)
}

// status returns the status of a type, which is made when it is first asked for.
func (n *proxy) status(rank int) *api.TypeStatus {
	if n.types[rank] == nil {
		n.types[rank] = &api.TypeStatus{TypeURL: draft.Types[rank]}
	}
	return n.types[rank]
}
