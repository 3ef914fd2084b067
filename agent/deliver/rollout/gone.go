package rollout

import (
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// keepGone is how many nodes without a stream are remembered.
const maxGone = 256

// awaitGone has what clients had that are gone forgotten when the time has come. The mu is held.
func (p *Proxies) awaitGone() {
	if p.goneTimer != nil || p.stopped {
		return
	}
	for _, n := range p.gone {
		if n.remembers() {
			p.goneTimer = time.AfterFunc(max(0, time.Until(n.leftAt.Add(p.opts.GoneTime))), func() {
				p.mu.Lock()
				p.goneTimer = nil
				p.mu.Unlock()
				p.forgetAccepted(p.opts.GoneTime)
			})
			return
		}
	}
}

// Shed forgets what clients had that are gone for a while already, for the sake of memory.
func (p *Proxies) Shed() { p.forgetAccepted(p.opts.GoneTime / 4) }

// forgetAccepted forgets what clients had that are gone for some time. Those that come back later
// are like clients of an agent that was started anew: they bring the versions that they have, and
// are sent what differs.
func (p *Proxies) forgetAccepted(after time.Duration) {
	p.mu.Lock()
	forgot := false
	for _, n := range p.gone {
		if time.Since(n.leftAt) >= after && n.remembers() {
			n.mu.Lock()
			n.accepted, n.checkedAgainst = draft.Lists{}, nil
			n.mu.Unlock()
			forgot = true
		}
	}
	p.awaitGone()
	p.mu.Unlock()
	if forgot {
		p.opts.Forgot()
	}
}

// remembers says whether there is something to forget of a node that is gone. What was accepted is
// needed where something else was rejected.
func (n *proxy) remembers() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.streams) == 0 && !n.rejects &&
		(len(n.checkedAgainst) > 0 || n.hasAccepted())
}

// forget drops the nodes that are gone beyond keepGone, first those that never had a config. The mu
// is held.
func (p *Proxies) forget() {
	for len(p.gone) > maxGone {
		i := max(0, slices.IndexFunc(p.gone, func(n *proxy) bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return !n.served
		}))
		// A stream may just be on its way in; then its node stays, and opened takes it off the list.
		n := p.gone[i]
		n.mu.Lock()
		idle := len(n.streams) == 0
		if idle {
			p.countRejections(n, false)
		}
		n.mu.Unlock()
		if idle {
			delete(p.nodes, n.key)
		}
		p.gone = slices.Delete(p.gone, i, i+1)
	}
}
