package rollout

import (
	"cmp"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

const (
	maxEvents     = 64
	maxEventNames = 16
	maxEventName  = 256 // bytes
)

// setClient sets the client that opened a stream. Rejections by another peer are forgotten,
// otherwise the first peer could withhold resources from the proxy. Another version of the client
// may accept what the last one rejected. The caller holds the mu of the proxy.
func (n *proxy) setClient(st *Stream) {
	if known := !n.client.Opened.IsZero(); known && n.client.Peer.Holder() != st.client.Peer.Holder() {
		for rank := range n.accepted {
			n.setAccepted(rank, nil)
		}
		n.rejectionState.reset()
		n.syncState.reset()
		clear(n.foreign[:])
	} else if known && n.client.Version != st.client.Version {
		n.forgetRejected()
	}
	n.hold() // for the previous client
	if len(n.streams) == 1 {
		n.answered = 0 // a new connection has answered nothing
	}
	n.client = st.client
	n.record(api.Event{Kind: "connected", Reason: st.client.Peer.String()}, nil)
}

// Recorded is an event of a client.
type Recorded struct {
	api.Event // its slices must not change
	Ref       node.Ref
	// Policies that affect rejected resources, the most likely cause first. They are unknown when a
	// resource is rejected, so the event comes again when they are known.
	Policies []api.Blame
}

// record records an event of the client. The caller holds the mu of the proxy, and for an event of
// a stream also that of Proxies.
func (n *proxy) record(e api.Event, t *Response) {
	n.proxies.watchers.changes.Add(1)
	e.Time = n.proxies.opts.Now()
	e = n.syncState.add(e, t)
	if n.counts(e) {
		n.proxies.opts.Recorded(Recorded{Event: e, Ref: n.ref})
	}
}

// counts reports whether an event is not about a stream, or about the only one.
func (n *proxy) counts(e api.Event) bool {
	return e.Kind != "connected" && e.Kind != "disconnected" || n.connected == 1
}

// state returns the state of the client for the API. The caller holds the mu of the proxy.
func (n *proxy) state(connected bool) string {
	switch {
	case !connected:
		return api.StateDisconnected
	case !n.ready:
		return api.StateWaiting
	case n.cfg == nil:
		return api.StateUnknown
	}
	return api.StateServing
}

// snapshot returns the status of a node. The caller holds the mu of the proxy.
func (n *proxy) snapshot(connected bool) api.ProxyStatus {
	p := api.ProxyStatus{UserAgent: n.client.UserAgent, Version: n.client.Version, Peer: n.client.Peer,
		ConnectedAt: n.client.Opened, Delta: n.client.Delta}
	p.Type, p.Mesh, p.Name, p.NodeID, p.Flavor = n.ref.Type, n.ref.Mesh, n.ref.Name, n.key.ID, n.key.Flavor
	p.Streams, p.State = len(n.streams), n.state(connected)
	p.InSync = p.State == api.StateServing && len(n.streams) > 0
	p.Types = []api.TypeStatus{}
	n.countResources()
	for rank, ts := range n.types {
		if ts == nil {
			continue
		}
		t := *ts
		if t.NACK != nil {
			nack := *t.NACK
			nack.Resources = slices.Clone(nack.Resources)
			nack.Policies = slices.Clone(nack.Policies)
			for _, name := range nack.Resources {
				if rej := n.rejected[rank][name]; rej != nil && rej.retry.attempt > 0 {
					nack.Reason += rej.retry.reasonAt(n.proxies.opts.Now())
					break
				}
			}
			t.NACK = &nack
		}
		t.Held = []api.HeldResource{}
		for name, rej := range n.notInForce(rank) {
			h := api.HeldResource{Name: name, RejectedVersion: rej.resource.Version, By: rej.by(), Rule: rej.rule,
				Reason: rej.reasonAt(n.proxies.opts.Now()), Time: rej.at, Retry: rej.retry.at,
				Policies: n.blameOf(rank, rej), Without: rej.without}
			if a := n.acceptedForm(rank, name); a != nil && a.Version != rej.resource.Version {
				h.AcceptedVersion = a.Version
			}
			t.Held = append(t.Held, h)
		}
		slices.SortFunc(t.Held, func(a, b api.HeldResource) int { return cmp.Compare(a.Name, b.Name) })
		p.InSync = p.InSync && len(t.Held) == 0
		p.Types = append(p.Types, t)
	}
	for _, st := range n.streams {
		p.InSync = p.InSync && st.inSync()
	}
	p.Events = n.history()
	return p
}

// Status returns the status of all nodes that are connected or were recently, sorted by node id.
func (p *Proxies) Status() []api.ProxyStatus { return p.status(func(*proxy) bool { return true }) }

// StatusOf returns the status of the nodes of one proxy, at most one per flavor.
func (p *Proxies) StatusOf(ref node.Ref) []api.ProxyStatus {
	return p.status(func(n *proxy) bool { return n.ref == ref })
}

func (p *Proxies) status(wanted func(*proxy) bool) []api.ProxyStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []api.ProxyStatus{}
	for _, n := range p.nodes {
		if n.connected == 0 && n.leftAt.IsZero() || !wanted(n) {
			continue // not opened yet, or not wanted
		}
		n.mu.Lock()
		out = append(out, n.snapshot(n.connected > 0))
		n.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b api.ProxyStatus) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Flavor, b.Flavor))
	})
	return out
}
