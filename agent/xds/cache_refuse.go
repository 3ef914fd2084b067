package xds

import (
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/clip"
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/node"
)

// Refusal is a resource of a config that the check of the agent itself finds unfit for Envoy. It is not sent: the client
// keeps the form of it that it has, and one that never had any goes without.
type Refusal struct {
	ID     draft.ResourceID
	Rule   int    // its number in envoy.Rules
	Reason string // for people: what Envoy would do, the place, the value, the bound and the remedy
	// Cause is the refused resource that this one needs and that alone is at fault; the zero value for none.
	Cause draft.ResourceID
}

// refuse takes note of what is unfit in the config in force. What was known of a refusal that stands stays known.
func (n *proxyNode) refuse(list []Refusal, now time.Time) {
	before := n.unfit
	n.unfit, n.refusals = [draft.NumTypes]map[string]*rejection{}, list
	var names [draft.NumTypes][]string // of those that are new
	for i := range list {
		f := &list[i]
		rank := draft.Rank(f.ID.TypeURL)
		if rank < 0 {
			continue
		}
		r := findResource(n.cfg.Resources[rank], f.ID.Name)
		if r == nil {
			continue
		}
		if n.unfit[rank] == nil {
			n.unfit[rank] = map[string]*rejection{}
			n.status(rank)
		}
		was := before[rank][r.Name]
		if was == nil || was.resource.Version != r.Version || was.cause != f.Cause {
			if was == nil || was.resource.Version != r.Version {
				names[rank] = append(names[rank], r.Name)
			}
			was = &rejection{check: true, resource: r, at: now, since: n.trouble(rank, r.Name), madeAt: n.cameUp[rank], cause: f.Cause}
		}
		was.rule, was.reason = f.Rule, clip.Text(f.Reason, maxReason)
		n.unfit[rank][r.Name] = was
	}
	for rank, list := range names {
		if len(list) == 0 {
			continue
		}
		reason := n.unfit[rank][list[0]].reason
		n.srv.metrics.refused.WithLabelValues(typeLabels[rank]).Add(float64(len(list)))
		n.record(Event{Kind: "held", TypeURL: draft.Types[rank], Version: n.cfg.Versions[rank], Reason: reason, Resources: list, Count: len(list)}, nil)
		n.srv.opts.Log.Warn("resources are held back from a proxy", "node", n.key.ID, "flavor", n.key.Flavor,
			"type", draft.Types[rank], "resources", firstNames(list, maxEventNames), "count", len(list), "reason", reason)
	}
}

// by says who refused.
func (r *rejection) by() string {
	if r.check {
		return HeldByCheck
	}
	return HeldByProxy
}

// trouble returns rejection.since of a name: there is trouble with it from now on, if there was none before.
func (n *proxyNode) trouble(rank int, name string) uint64 {
	if n.since[rank] == nil {
		n.since[rank] = map[string]uint64{}
	}
	if _, known := n.since[rank][name]; !known {
		n.since[rank][name] = n.took[rank]
	}
	return n.since[rank][name]
}

// known returns what the client has of a type: what it has accepted, and what is on its way to it.
func (n *proxyNode) known(rank int) []*draft.Resource {
	list := n.accepted[rank]
	for _, st := range n.streams {
		w := st.watches[rank]
		if w == nil {
			continue
		}
		for _, t := range w.unacked {
			list = n.after(list, t)
		}
		if w.ticket != nil {
			list = n.after(list, w.ticket)
		}
	}
	return list
}

// after returns what the client has after a response that it is not known to reject.
func (n *proxyNode) after(list []*draft.Resource, t *ticket) []*draft.Resource {
	send := t.send
	if bad := func(r *draft.Resource) bool { return n.isRejected(t.w.rank, r) }; slices.ContainsFunc(send, bad) {
		send = slices.DeleteFunc(slices.Clone(send), bad)
	}
	return mergeLists(list, send, func(name string) bool {
		_, gone := slices.BinarySearch(t.removed, name)
		return gone
	})
}

// withhold puts, for a type, the form that the client has in the place of each resource that is unfit, and leaves out
// those of which it has none. It returns what is in force beside the config and the names that are left out.
//
// A state-of-the-world client that came with a config of unknown bytes is sent unfit listeners and clusters as they are:
// to leave one out would remove it, while Envoy refuses it by itself and keeps what it has.
func (n *proxyNode) withhold(rank int) (old []*draft.Resource, out func(name string) bool) {
	if len(n.unfit[rank]) == 0 {
		return nil, nil
	}
	known := n.known(rank)
	for name, u := range n.unfit[rank] {
		form := findResource(known, name)
		u.out = form == nil && !n.foreign[rank]
		n.leftOut[rank] = n.leftOut[rank] || u.out
		if form != nil {
			old = append(old, form)
		}
	}
	return old, func(name string) bool {
		u := n.unfit[rank][name]
		return u != nil && u.out
	}
}

// spares says whether a client is left what it said it has under a name, in bytes that are not known, as after a restart
// of the agent: it is the form of a resource that is left out, or may be something that such a form needs.
func (n *proxyNode) spares(rank int, name string) bool {
	if u := n.unfit[rank][name]; u != nil && u.out {
		return true
	}
	return slices.ContainsFunc(referrers[rank], func(r int) bool { return n.leftOut[r] })
}

// spared is spares for a holding of the watch.
func (w *typeWatch) spared(name string, h holding) bool {
	return h.kind == holdsVersion && w.node.spares(w.rank, name)
}

// confirm takes what a client said it has for accepted where the config came to have the same.
func (n *proxyNode) confirm(w *typeWatch, settled map[string]holding) {
	var same []*draft.Resource
	for name, h := range settled {
		if r := findResource(w.base, name); h.kind == holdsVersion && r != nil && r.Version == h.version {
			same = append(same, r)
		}
	}
	if len(same) > 0 {
		slices.SortFunc(same, compareResources)
		n.accepted[w.rank] = mergeLists(n.accepted[w.rank], same, nil)
	}
}

// Accepted returns what the client of a node has: what it has accepted last of each name, and what is on its way to it.
// The result has no versions of lists. It is nil when nothing is known.
//
// Of a refused resource the client keeps the form in here, so refusals are worked out with it.
func (s *Server) Accepted(key node.Key) *draft.Sealed {
	n := s.lockNode(key)
	if n == nil {
		return nil
	}
	defer n.mu.Unlock()
	out, some := &draft.Sealed{}, false
	for rank := range draft.Types {
		out.Resources[rank] = n.known(rank)
		some = some || len(out.Resources[rank]) > 0
	}
	if !some {
		return nil
	}
	return out
}

// Epoch returns a number that is another one when refusals have to be worked out anew: some of what Accepted has returned
// for a node since it was this one may be lost, or a client that came has said what it has. [ServerOptions.Changed] is
// called then.
func (s *Server) Epoch(key node.Key) uint64 {
	n := s.lockNode(key)
	if n == nil {
		return 0
	}
	defer n.mu.Unlock()
	return n.epoch
}

// lockNode returns a node with its mu held, nil when it is not known.
func (s *Server) lockNode(key node.Key) *proxyNode {
	s.mu.Lock()
	n := s.nodes[key]
	s.mu.Unlock()
	if n != nil {
		n.mu.Lock()
	}
	return n
}

// forgot takes note that something else is known of the client than what refusals were worked out with.
func (n *proxyNode) forgot() { n.epoch = n.srv.epochs.Add(1) }

// doubt has refusals worked out anew, and holds back everything until then, where something else is known of the client
// since the epoch in which they were.
func (n *proxyNode) doubt(epoch uint64) {
	if n.cfg != nil && len(n.refusals) > 0 && n.epoch != epoch {
		n.stale = true
		n.srv.opts.Changed()
	}
}

// heldBy counts the resources of a type that are held back from the client: by its own rejections and by the check.
func (n *proxyNode) heldBy(rank int) (proxy, check int) {
	for name := range n.rejected[rank] {
		if n.unfit[rank][name] == nil {
			proxy++
		}
	}
	return proxy, len(n.unfit[rank])
}

// troubles returns the rejections of a type, those of the check before those of the client, in any order.
func (n *proxyNode) troubles(rank int) map[string]*rejection {
	switch {
	case len(n.unfit[rank]) == 0:
		return n.rejected[rank]
	case len(n.rejected[rank]) == 0:
		return n.unfit[rank]
	}
	out := make(map[string]*rejection, len(n.rejected[rank])+len(n.unfit[rank]))
	for _, names := range []map[string]*rejection{n.rejected[rank], n.unfit[rank]} {
		for name, r := range names {
			out[name] = r
		}
	}
	return out
}
