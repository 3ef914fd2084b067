package rollout

import (
	"cmp"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Progress is the sync status of one node: a short form of [api.ProxyStatus].
type Progress struct {
	Node     node.Key
	Mesh     string
	Name     string
	State    string    // api.StateWaiting, api.StateUnknown, api.StateServing, or api.StateDisconnected
	Revision uint64    // revision of the store from which its config was generated; 0 without a config
	Opened   time.Time // when the newest stream was opened
	// Answered is the newest revision whose config the node has answered completely: every type to
	// which it subscribes is acknowledged, or rejected and listed in Rejected. It is 0 until then
	// after each connect.
	Answered uint64
	// Unanswered lists the types with an unanswered response, in make-before-break order. SentAt is
	// when the first of these was sent.
	Unanswered []string
	SentAt     time.Time
	Rejected   []draft.Rejection // sorted by type and name
	Draining   []Drain           // the oldest first, at most maxDrains; some may have ended
	// HandoverUntil is the time until which the node keeps a listener whose protocol changes, so
	// that the other side changes first; zero for none.
	HandoverUntil time.Time
}

// noteAnswered records which config the client has answered. It is called whenever a client may
// have finished. The caller holds the mu of the proxy.
func (n *proxy) noteAnswered() {
	if n.cfg == nil || len(n.streams) == 0 {
		return
	}
	all := true
	for _, st := range n.streams {
		if st.subscribing || st.ended {
			all = false
			continue
		}
		asked := false
		for rank, w := range st.watches {
			if w == nil {
				continue
			}
			asked = true
			switch {
			case !w.answered():
				all = false
			case n.pruneTrial(rank), n.delayed[rank]:
				all = false
			case w.quiet(n.cfg): // answered with a rejection
			default:
				if c := st.pending(w); !c.empty() || c.waiting {
					all = false
				} else {
					n.acceptedRevision[rank] = n.revision
				}
			}
		}
		// Envoy requests listeners only after it has its clusters.
		all = all && asked && !(st.client.Envoy && st.watches[draft.RankListener] == nil)
	}
	if all {
		n.answered = n.revision
	}
	for _, st := range n.streams {
		st.noteInbounds(all)
	}
	n.proxies.watchers.notify()
}

// answered reports whether the client has answered all responses and none is about to be sent.
func (w *typeWatch) answered() bool {
	return !w.fresh && w.sub != nil && w.ticket == nil && len(w.unacked) == 0
}

// progress returns the sync status of the node. The caller holds the mu of the proxy.
func (n *proxy) progress(connected bool) Progress {
	now := n.proxies.opts.Now()
	p := Progress{Node: n.key, Mesh: n.ref.Mesh, Name: n.ref.Name, State: n.state(connected), Opened: n.client.Opened,
		Rejected: n.rejections(), Draining: slices.Clone(n.drains), HandoverUntil: n.handoverUntil(now)}
	if n.cfg != nil {
		p.Revision, p.Answered = n.revision, n.answered
	}
	for rank := range draft.Types {
		for _, st := range n.streams {
			if w := st.watches[rank]; w == nil || len(w.unacked) == 0 {
				continue
			}
			p.Unanswered = append(p.Unanswered, typeLabels[rank])
			if at := n.status(rank).SentAt; p.SentAt.IsZero() || at.Before(p.SentAt) {
				p.SentAt = at
			}
			break
		}
	}
	return p
}

// rejections returns the resources that are not in force at the client. The caller holds the mu of
// the proxy.
func (n *proxy) rejections() []draft.Rejection {
	var out []draft.Rejection
	for rank := range draft.Types {
		for name, rej := range n.notInForce(rank) {
			r := draft.Rejection{
				Node: n.key, Mesh: n.ref.Mesh, Name: n.ref.Name, ID: draft.ResourceID{TypeURL: draft.Types[rank], Name: name},
				Resource: rej.resource, Reason: rej.reason, Suspect: rej.suspect, Retry: rej.retry.at, Time: rej.at, By: rej.by(),
				Rule: rej.rule, Cause: rej.cause, Since: rej.since, MadeAt: rej.madeAt, Overtakes: rej.overtakes,
				Blame: n.blameOf(rank, rej), Attributed: rej.attributed, AttributedAt: rej.attributedAt,
				Without: rej.without, Instead: rej.instead, InsteadRejected: n.rejectsInstead(rank, rej),
				Deciding: rej.deciding,
			}
			if a := n.acceptedForm(rank, name); a != nil && a.Version != rej.resource.Version {
				r.Accepted = a
			}
			if r.Accepted == nil {
				r.Older, r.Lacks = n.initialVersion(rank, name, rej)
			}
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b draft.Rejection) int {
		return cmp.Or(cmp.Compare(draft.Rank(a.ID.TypeURL), draft.Rank(b.ID.TypeURL)), cmp.Compare(a.ID.Name, b.ID.Name))
	})
	return out
}

// initialVersion returns the version of a rejected resource that the client had when a stream
// started and still has, or that the client lacks the resource according to the versions that it
// reported.
func (n *proxy) initialVersion(rank int, name string, rej *rejection) (version string, lacks bool) {
	for _, st := range n.streams {
		w := st.watches[rank]
		if w == nil {
			continue
		}
		if rej.initialOf == w {
			return rej.initialVersion, rej.lacks
		}
		if h, ok := w.over[name]; ok && h.kind == holdsVersion && h.version != rej.resource.Version {
			return h.version, false
		}
	}
	return "", false
}

// HasRejections reports whether any resource is rejected by a client or withheld from it, so that
// Progress.Rejected is not empty. It is cheap.
func (p *Proxies) HasRejections() bool { return p.rejecting.Load() > 0 }

// countRejections updates the number of nodes with rejections. The caller holds the mu of the
// proxy.
func (p *Proxies) countRejections(n *proxy, has bool) {
	if has == n.rejects {
		return
	}
	if n.rejects = has; has {
		p.rejecting.Add(1)
	} else {
		p.rejecting.Add(-1)
	}
}

// Progress returns the sync status of all nodes that are connected or were recently, sorted by node
// id. It is computed once after each change and shared, so the list must not be changed. It is much
// cheaper than Status.
func (p *Proxies) Progress() []Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	changes := p.watchers.changes.Load() // read first, so that a concurrent change is not missed
	if p.progress != nil && p.progressOf == changes {
		return p.progress
	}
	out := make([]Progress, 0, len(p.nodes))
	for _, n := range p.nodes {
		if n.connected == 0 && n.leftAt.IsZero() {
			continue // not opened yet
		}
		n.mu.Lock()
		out = append(out, n.progress(n.connected > 0))
		n.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Progress) int { return compareKeys(a.Node, b.Node) })
	p.progress, p.progressOf = out, changes
	return out
}

// Attribute sets the policies of a revision that affect the resource of a rejection, the most
// likely cause first. The list may be empty. Attribute does nothing if the resource is no longer
// rejected in these bytes.
func (p *Proxies) Attribute(r draft.Rejection, blame []api.Blame, revision uint64) {
	n := p.proxyOf(r.Node)
	rank := draft.Rank(r.ID.TypeURL)
	if n == nil || rank < 0 {
		return
	}
	n.mu.Lock()
	if rej := n.notInForce(rank)[r.ID.Name]; rej != nil && rej.resource.Version == r.Resource.Version {
		rej.deciding = !rej.attributed && len(blame) > 0 && len(rej.without) == 0 && p.opts.Decides
		rej.attributed, rej.attributedAt, rej.blame = true, revision, slices.Clone(blame)
		if !rej.check && ReasonOfHost(rej.reason) {
			for i := range rej.blame {
				rej.blame[i].Evidence = api.BlameHost
			}
		}
		n.blameNACK(rank)
	}
	n.mu.Unlock()
	p.watchers.notify()
}

// maxNackBlame is the maximum number of policies that are listed for a response.
const maxNackBlame = 16

// blameNACK lists the policies that affect the resources of a rejected response: first the most
// likely cause of each resource, then the second one, and so on.
func (n *proxy) blameNACK(rank int) {
	nack := n.status(rank).NACK
	if nack == nil {
		return
	}
	before := nack.Policies
	nack.Policies = []api.Blame{}
	blamed := n.notInForce(rank)
	for i, more := 0, true; more; i++ {
		more = false
		for _, name := range nack.Resources {
			rej := blamed[name]
			if rej == nil || i >= len(rej.blame) {
				continue
			}
			more = true
			b := rej.blame[i]
			if len(nack.Policies) < maxNackBlame && !slices.ContainsFunc(nack.Policies, func(o api.Blame) bool {
				return o.Type == b.Type && o.Mesh == b.Mesh && o.Name == b.Name
			}) {
				nack.Policies = append(nack.Policies, b)
			}
		}
	}
	if len(nack.Policies) > 0 && !slices.EqualFunc(nack.Policies, before,
		func(a, b api.Blame) bool { return a.Type == b.Type && a.Mesh == b.Mesh && a.Name == b.Name }) {
		n.proxies.opts.Recorded(Recorded{Ref: n.ref, Policies: slices.Clone(nack.Policies), Event: api.Event{Kind: "nack",
			TypeURL: draft.Types[rank], Version: nack.Version, Reason: nack.Reason, Time: nack.Time,
			Resources: firstNames(nack.Resources, maxEventNames)}})
	}
}
