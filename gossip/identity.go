package gossip

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// A node ID belongs to one process. After a restart with another address, peers still list the
// earlier start, and if the state of a node was copied, two live processes have one ID. A probe of
// the earlier start distinguishes the two cases. If both processes live, the later one takes a new
// ID, and the earlier one keeps its place in the pool.

// Parameters of probes.
const (
	probeTime    = time.Second
	refusedTime  = 150 * time.Millisecond // for an answer over UDP, if nothing listens on TCP
	probesAtOnce = 32
	rivalEvery   = 10 * time.Second // between probes of another process with this node's ID
	clonedFor    = time.Hour        // how long to report a duplicate ID after it ended
	decideTime   = time.Second      // until members are used although no seed has responded
	staleAfter   = 15 * time.Second // after a change of the ID, to find the members again
)

// self is the identity of this node. It changes if the node takes a new ID.
type self struct {
	meta   meta
	member string      // member name in memberlist
	signer sign.Signer // nil: none
}

// probe asks whether a member is alive, to decide whether another one with the same ID replaces it.
type probe struct {
	target memberEvent
	rival  memberEvent
	down   bool // memberlist reports the target as dead
}

// probed is the result of a probe.
type probed struct {
	probe
	alive bool
}

// rival is another process that uses this node's ID, or an earlier start of this node.
type rival struct {
	memberEvent
	probing bool
	known   bool      // a probe has ended
	since   time.Time // wall time of the first answer; zero: it has not answered
	next    time.Time // of the next probe
}

// duplicate is the report of another process that uses or used this node's ID.
type duplicate struct {
	text   string
	until  time.Time // zero: while a rival responds
	failed error     // why this node could not take a new ID
}

// noteRival records a member with this node's ID. The caller holds mu.
func (n *Node) noteRival(ev memberEvent, out *changes) {
	self := n.self.Load()
	if ev.addr == n.addr || ev.name == self.member && !ev.same {
		return // this process, or an earlier one at its address
	}
	r := n.rivals[ev.addr]
	if r != nil && r.name != ev.name {
		n.endRival(r, out)
		r = nil
	}
	switch {
	case !ev.up && r != nil:
		n.endRival(r, out)
		delete(n.rivals, ev.addr)
		return
	case !ev.up:
		return
	case r == nil:
		r = &rival{memberEvent: ev}
		n.rivals[ev.addr] = r
	case r.sent && !ev.sent:
		r.memberEvent = ev // memberlist lists it too
	}
	if ev.sent {
		n.reportRival(r, out)
	}
	n.probeRivals(out)
}

// reportRival records that a rival is alive. The caller holds mu.
func (n *Node) reportRival(r *rival, out *changes) {
	n.duplicate.until = time.Time{}
	first := r.since.IsZero()
	if first {
		r.since = n.wall()
	}
	text := fmt.Sprintf("since %s, a process at %s uses the ID %s of this node", r.since.UTC().Format(time.RFC3339),
		r.addr, r.meta.node)
	switch yield := n.mustYield(r); {
	case yield && n.duplicate.failed != nil:
		text += fmt.Sprintf(", which it used first; a new ID cannot be saved: %v", n.duplicate.failed)
	case yield:
		text += ", which it used first: give this node another state directory"
	default:
		text += ": it started later and takes a new ID; if it does not, give it another state directory"
	}
	n.duplicate.text = text
	if first {
		out.lines = append(out.lines, text)
	}
}

// endRival records that a rival does not respond. If it used this node's ID, the engine publishes
// the items of this node again. The caller holds mu.
func (n *Node) endRival(r *rival, out *changes) {
	if r.since.IsZero() {
		return
	}
	r.since = time.Time{}
	if n.duplicate.until.IsZero() {
		n.duplicate.until = time.Now().Add(clonedFor)
	}
	out.events = append(out.events, n.sameID())
}

// probeRivals adds the probes that are due. The caller holds mu.
func (n *Node) probeRivals(out *changes) {
	now := time.Now()
	for _, r := range n.rivals {
		if !r.probing && !r.next.After(now) {
			r.probing, r.next = true, now.Add(rivalEvery)
			out.probes = append(out.probes, probe{target: r.memberEvent, rival: r.memberEvent})
		}
	}
}

// undecided reports whether it is unknown if this node may use its ID. The caller holds mu.
func (n *Node) undecided() bool {
	if !n.joined.Load() && time.Since(n.opened) < decideTime {
		return true
	}
	for _, r := range n.rivals {
		if !r.known {
			return true
		}
	}
	return false
}

// mustYield reports whether this node started later than a rival. With the same epoch, the greater
// address yields. The caller holds mu.
func (n *Node) mustYield(r *rival) bool {
	own := n.self.Load().meta.epoch
	return own > r.meta.epoch || own == r.meta.epoch && n.addr.Compare(r.addr) > 0
}

// decide handles the result of a probe.
func (n *Node) decide(ctx context.Context, p probed) error {
	n.mu.Lock()
	var out changes
	if p.down {
		n.decideDeath(p, &out)
		n.mu.Unlock()
		n.execute(out)
		return nil
	}
	r := n.rivals[p.target.addr]
	if r == nil || r.name != p.target.name {
		n.decideMember(p, &out)
		n.mu.Unlock()
		n.execute(out)
		return nil
	}
	r.probing, r.known = false, true
	defer n.wakeLoop() // members may have waited for the result
	yield := false
	if !p.alive {
		n.endRival(r, &out)
		if r.same || r.sent {
			delete(n.rivals, r.addr) // memberlist reports the end of others
		}
	} else if yield = n.mustYield(r) && n.opt.NewID != nil; !yield {
		n.reportRival(r, &out)
	}
	n.mu.Unlock()
	n.execute(out)
	if !yield {
		return nil
	}
	if p.target.meta.features&FeatureProbe != 0 { // so it can report this node before this node has another ID
		limited, cancel := context.WithTimeout(ctx, probeTime)
		n.askAlive(limited, p.target)
		cancel()
	}
	return n.takeNewID(ctx, fmt.Sprintf("a process at %s uses the ID %s and started first", p.target.addr,
		p.target.meta.node))
}

// decideMember handles the result of a probe of another node. The caller holds mu.
func (n *Node) decideMember(p probed, out *changes) {
	old, seen := n.roster[p.target.meta.node]
	_, up := n.up[p.target.name]
	switch {
	case !seen:
	case p.alive && old.State != StateAlive && up:
		n.use(p.target, out)
	case !p.alive && old.State == StateAlive && old.name == p.target.name && p.rival.name != p.target.name:
		if next, ok := n.newest(p.target.meta.node); ok && next.name != old.name {
			n.use(next, out)
		}
	}
}

// takeNewID gives this node a new ID and joins the pool again, as another node. The loop calls it.
func (n *Node) takeNewID(ctx context.Context, reason string) error {
	id, signer, err := n.opt.NewID()
	if err != nil {
		n.opt.Log.Error("cannot create a new node ID; this node tries again", "reason", reason, "error", err)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.duplicate.failed = err
		var out changes
		for _, r := range n.rivals {
			n.reportRival(r, &out)
		}
		return nil
	}
	n.joining.Lock()
	defer n.joining.Unlock()
	old := n.self.Load()
	var names, addrs []string
	n.mu.Lock()
	for name, addr := range n.addrs {
		names, addrs = append(names, name), append(addrs, addr)
	}
	same := false
	for addr, r := range n.rivals {
		same = same || r.same
		addrs = append(addrs, addr.String())
	}
	list := n.list
	n.mu.Unlock()
	if !same { // with the same name, peers would count the other process as gone
		_ = list.Leave(probeTime / 2)
	}
	if err := list.Shutdown(); err != nil {
		return fmt.Errorf("gossip: take a new ID: %w", err)
	}
	n.mu.Lock()
	act := n.engine.Step(n.now(), engine.Identity{Node: id, Signer: signer})
	n.notify(act.Changed)
	err = n.rename(signer)
	n.stale, n.staleAt = names, time.Now().Add(staleAfter)
	n.report(fmt.Sprintf("%s; at %s, this node took the new ID %s", reason, n.wall().UTC().Format(time.RFC3339), id))
	n.mu.Unlock()
	if err != nil {
		return err
	}
	if err := n.disk.durable(act.Durable); err != nil {
		n.opt.Log.Error("cannot save the new node ID's epoch", "error", err)
	}
	act.Durable = nil
	n.act(act)
	n.opt.Log.Error("this node took a new ID", "reason", reason, "old", old.meta.node, "new", id)
	if err := n.open(); err != nil {
		return err
	}
	slices.Sort(addrs)
	select {
	case n.rejoin <- addrs:
	case <-ctx.Done():
	}
	return nil
}

// rename sets the identity of this node to that of its engine, and forgets everything that
// memberlist reported for the former one. The caller holds mu.
func (n *Node) rename(signer sign.Signer) error {
	st := n.engine.Stats()
	m := meta{node: n.engine.Self(), epoch: st.Epoch, name: n.opt.Name, zone: n.opt.Zone, version: n.opt.Version,
		protocol: n.opt.protocol, features: ownFeatures}
	if n.opt.noFeatures {
		m.features = 0
	}
	var err error
	if signer != nil {
		n.identities.know(m.node)
		if m.statement, err = n.statement(m.node); err != nil {
			return err
		}
	}
	n.memberMu.Lock()
	n.self.Store(&self{m, n.engine.Member(), signer})
	clear(n.live)
	n.membersHash.Store(0)
	n.memberEvents = nil
	n.memberMu.Unlock()
	clear(n.up)
	clear(n.refused)
	clear(n.doubts)
	clear(n.rivals)
	return nil
}

// report sets the text of [Stats.Cloned] for clonedFor. The caller holds mu.
func (n *Node) report(text string) {
	n.duplicate = duplicate{text: text, until: time.Now().Add(clonedFor)}
}

// sameID is the event that confirms the ID of this node.
func (n *Node) sameID() engine.Identity {
	self := n.self.Load()
	return engine.Identity{Node: self.meta.node, Signer: self.signer}
}

// confirmID makes the engine publish again if it has stopped because of another process with this
// ID, and no such process responds. The caller holds mu.
func (n *Node) confirmID(out *changes) {
	if !n.engine.Cloned() || time.Since(n.confirmed) < rivalEvery {
		return
	}
	for _, r := range n.rivals {
		if !r.since.IsZero() || !r.known {
			return
		}
	}
	n.confirmed = time.Now()
	out.events = append(out.events, n.sameID())
}

// dropStale counts members as dead that were alive under the former ID of this node and have not
// been found again. The caller holds mu.
func (n *Node) dropStale(out *changes) {
	if len(n.stale) == 0 || time.Now().Before(n.staleAt) {
		return
	}
	for _, name := range n.stale {
		if _, ok := n.up[name]; ok {
			continue
		}
		for _, k := range n.roster {
			if k.name == name {
				n.memberDown(memberEvent{name: name, meta: meta{node: k.Node}}, out)
			}
		}
	}
	n.stale = nil
}

// cloned returns the report of another process with this node's ID, or "". The caller holds mu.
func (n *Node) cloned() string {
	if u := n.duplicate.until; !u.IsZero() && time.Now().After(u) {
		return ""
	}
	return n.duplicate.text
}

// queueRival queues the news of another process with this node's ID that memberlist does not list.
func (n *Node) queueRival(ev memberEvent) {
	n.memberMu.Lock()
	defer n.memberMu.Unlock()
	n.queueMember(ev)
}
