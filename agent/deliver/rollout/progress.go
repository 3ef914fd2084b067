package rollout

import (
	"cmp"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Progress is how far one node is with its config: what [api.ProxyStatus] says in full, in little.
type Progress struct {
	Node     node.Key
	Mesh     string
	Name     string
	State    string    // api.StateWaiting, api.StateUnknown, api.StateServing or api.StateDisconnected
	Revision uint64    // of the store that its config was made from; 0 without a config
	Opened   time.Time // when its newest stream was opened
	// Answered is the newest revision whose config it has answered in whole: every type that it asks
	// for is acknowledged, or rejected and then listed in Rejected. 0 until it has done so since it
	// connected.
	Answered uint64
	// Unanswered are the types with a response that it has not answered, in make-before-break order,
	// and SentAt is when the first of these was sent.
	Unanswered []string
	SentAt     time.Time
	Rejected   []draft.Rejection // sorted by type and name
	Draining   []Drain           // by revision, at most 16
	// HandoverUntil is until when it keeps a listener whose protocol changes, so that the other side
	// changes first; zero for none.
	HandoverUntil time.Time
}

// Drain says that filter chains which a config of a revision has replaced may have open
// connections. What holds on these at once is said in docs/xds.md.
type Drain struct {
	Revision uint64
	Until    time.Time // at the latest
}

// maxDrains bounds the drains of a [Progress]; the newest are named.
const maxDrains = 16

// OldUntil is when the last connection that may be on filter chains from before a revision has
// drained; zero where none is left.
func (p *Progress) OldUntil(revision uint64, now time.Time) time.Time {
	for _, d := range p.Draining {
		if d.Revision >= revision && d.Until.After(now) {
			return d.Until
		}
	}
	return time.Time{}
}

// noteAnswered takes note of what the client has answered by now. It is called whenever something
// may have come to an end. The mu of the node is held.
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
			case w.quiet(n.cfg): // answered, if not with a yes
			default:
				if c := st.pending(w); !c.empty() || c.waiting {
					all = false
				} else {
					n.acceptedRevision[rank] = n.revision
				}
			}
		}
		// Envoy asks for listeners only when it has its clusters.
		all = all && asked && !(st.client.Envoy && st.watches[draft.RankListener] == nil)
	}
	if all {
		n.answered = n.revision
	}
	n.proxies.watchers.notify()
}

// answered says that no response is on its way to the client or unanswered by it.
func (w *typeWatch) answered() bool {
	return !w.fresh && w.sub != nil && w.ticket == nil && len(w.unacked) == 0
}

// progress returns how far the node is. The mu of the node is held.
func (n *proxy) progress(connected bool) Progress {
	now := n.proxies.opts.Now()
	p := Progress{Node: n.key, Mesh: n.ref.Mesh, Name: n.ref.Name, State: n.state(connected), Opened: n.client.Opened,
		Rejected: n.rejections(), Draining: n.drains(now), HandoverUntil: n.handoverUntil(now)}
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

// rejections returns what the client refuses. The mu of the node is held.
func (n *proxy) rejections() []draft.Rejection {
	var out []draft.Rejection
	for rank := range draft.Types {
		for name, rej := range n.notInForce(rank) {
			r := draft.Rejection{
				Node: n.key, Mesh: n.ref.Mesh, Name: n.ref.Name, ID: draft.ResourceID{TypeURL: draft.Types[rank], Name: name},
				Resource: rej.resource, Reason: rej.reason, Suspect: rej.suspect, Retry: rej.retry.at, Time: rej.at, By: rej.by(),
				Rule: rej.rule, Cause: rej.cause, Since: rej.since, MadeAt: rej.madeAt, Overtakes: rej.overtakes,
				Blame: slices.Clone(rej.blame), Attributed: rej.attributed, AttributedAt: rej.attributedAt,
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

// came returns the version of a resource that a stream came with, other than the one that was
// refused, and which the client is left; or that it lacks the resource, as it has said at the start
// what it has.
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

// HasRejections reports whether any client rejects something, or something is withheld from one:
// whether the Rejected of a [Progress] is worth a look. It costs nothing.
func (p *Proxies) HasRejections() bool { return p.rejecting.Load() > 0 }

// countRejections takes note of whether a node has rejections. The mu of the node is held.
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

// Progress returns how far all nodes are, connected or recently so, sorted by node id. It costs far
// less than Status, and is worked out once after each change, for all who ask: the list must not be
// changed.
func (p *Proxies) Progress() []Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	changes := p.watchers.changes.Load() // before the nodes are looked at: what changes meanwhile is looked at again
	if p.progress != nil && p.progressOf == changes {
		return p.progress
	}
	out := make([]Progress, 0, len(p.nodes))
	for _, n := range p.nodes {
		if n.connected == 0 && n.leftAt.IsZero() {
			continue // not let in yet
		}
		n.mu.Lock()
		out = append(out, n.progress(n.connected > 0))
		n.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Progress) int { return compareKeys(a.Node, b.Node) })
	p.progress, p.progressOf = out, changes
	return out
}

// Attribute says which policies of a revision shape the resource of a rejection, the most likely
// cause first; none is possible. It does nothing when the resource is not refused in these bytes
// any more.
func (p *Proxies) Attribute(r draft.Rejection, blame []api.Blame, revision uint64) {
	n := p.proxyOf(r.Node)
	rank := draft.Rank(r.ID.TypeURL)
	if n == nil || rank < 0 {
		return
	}
	n.mu.Lock()
	if rej := n.notInForce(rank)[r.ID.Name]; rej != nil && rej.resource.Version == r.Resource.Version {
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

// maxNackBlame bounds the policies that are named for a whole response.
const maxNackBlame = 16

// blameNACK puts together who shapes the resources of a rejected response: of each first who comes
// first there.
func (n *proxy) blameNACK(rank int) {
	nack := n.status(rank).NACK
	if nack == nil {
		return
	}
	nack.Policies = []api.Blame{}
	for place, more := 0, true; more; place++ {
		more = false
		for _, name := range nack.Resources {
			rej := n.rejected[rank][name]
			if rej == nil || place >= len(rej.blame) {
				continue
			}
			more = true
			b := rej.blame[place]
			if len(nack.Policies) < maxNackBlame && !slices.ContainsFunc(nack.Policies, func(o api.Blame) bool {
				return o.Type == b.Type && o.Mesh == b.Mesh && o.Name == b.Name
			}) {
				nack.Policies = append(nack.Policies, b)
			}
		}
	}
}

// blameOf returns who shapes a rejected resource, as far as that is known.
func blameOf(rej *rejection) []api.Blame { return append([]api.Blame{}, rej.blame...) }
