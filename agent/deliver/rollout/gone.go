package rollout

import (
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// maxGone is the maximum number of nodes without a stream that are remembered.
const maxGone = 256

// awaitGone starts the timer that forgets the accepted resources of disconnected clients. The
// caller holds mu.
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

// Shed frees memory: it forgets the accepted resources of clients that have been disconnected for a
// while.
func (p *Proxies) Shed() { p.forgetAccepted(p.opts.GoneTime / 4) }

// forgetAccepted forgets the accepted resources of clients that disconnected at least after ago. If
// such a client reconnects, it reports the versions that it has, as after a restart of the agent,
// and receives the difference.
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

// remembers reports whether the accepted resources of a disconnected node can be forgotten. They
// are needed if something is rejected.
func (n *proxy) remembers() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.streams) == 0 && !n.rejects &&
		(len(n.checkedAgainst) > 0 || n.hasAccepted())
}

// forget removes disconnected nodes in excess of maxGone, first those that never had a config. The
// caller holds mu.
func (p *Proxies) forget() {
	for len(p.gone) > maxGone {
		i := max(0, slices.IndexFunc(p.gone, func(n *proxy) bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return !n.served
		}))
		// A stream may have joined but not opened yet. Then the node stays, and Open removes it
		// from the list.
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
