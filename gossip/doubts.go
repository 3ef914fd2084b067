package gossip

import "time"

// Any process with the key of the pool can tell memberlist that a member is dead or has left, and
// the member has to contradict. A member that signs counts as alive meanwhile, if it proves it.

const doubtEvery = 5 * time.Second // between probes while memberlist reports the member as dead

// doubt reports whether a probe decides if a member is dead. The caller holds mu.
func (n *Node) doubt(ev memberEvent, out *changes) bool {
	used, ok := n.up[ev.name]
	if !ok || used.meta.signature == "" || used.meta.features&FeatureProbe == 0 || n.left(used.meta.node) ||
		n.roster[used.meta.node].name != ev.name {
		delete(n.doubts, ev.name)
		return false
	}
	if _, ok := n.doubts[ev.name]; !ok {
		n.doubts[ev.name] = time.Now().Add(doubtEvery)
		out.probes = append(out.probes, probe{target: used, down: true})
	}
	return true
}

// decideDeath handles the result of a probe of a member that memberlist reports as dead. The caller
// holds mu.
func (n *Node) decideDeath(p probed, out *changes) {
	name := p.target.name
	if _, ok := n.doubts[name]; !ok || p.alive {
		return
	}
	delete(n.doubts, name)
	if n.listed(name) {
		return
	}
	delete(n.up, name)
	n.memberDown(p.target, out)
}

// listed reports whether memberlist counts a member as alive.
func (n *Node) listed(name string) bool {
	n.memberMu.Lock()
	defer n.memberMu.Unlock()
	return n.live[name]
}

// probeDoubts ends doubts about members that memberlist counts as alive again, and adds the probes
// that are due. The caller holds mu.
func (n *Node) probeDoubts(out *changes) {
	now := time.Now()
	for name, at := range n.doubts {
		ev, used := n.up[name]
		switch {
		case !used || n.listed(name):
			delete(n.doubts, name)
		case !at.After(now):
			n.doubts[name] = now.Add(doubtEvery)
			out.probes = append(out.probes, probe{target: ev, down: true})
		}
	}
}
