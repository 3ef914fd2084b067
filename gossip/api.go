package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/draft"
	"github.com/nearside-mesh/nearside/gossip/engine/heal"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Seal returns the next versions of some keys. The caller stores them, and then calls committed,
// which merges them into the state of the node and sends them to its peers. If the caller cannot
// store them, it does not call committed. Calls must not overlap: the next one follows committed.
func (n *Node) Seal(puts []engine.Put) (records []*engine.Record, committed func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	for _, p := range puts {
		if p.Version == nil {
			continue
		}
		if err := draft.Check(p.Version, n.engine.PoolTime(now), n.engine.Record(p.Key), n.engine.Origin()); err != nil {
			return nil, nil, err
		}
	}
	records, _, err = n.engine.Prepare(now, puts)
	if err != nil {
		return nil, nil, fmt.Errorf("gossip: %w", err)
	}
	return records, func() { n.step(engine.Committed{Records: records}) }, nil
}

// Drafts returns what a program outside this node needs to make the next versions of keys; see
// [draft.Draft].
func (n *Node) Drafts(keys []engine.Key) (out []draft.Draft, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now, era := n.engine.PoolTime(n.now()), n.engine.Era()
	for _, k := range keys {
		d, e := draft.Next(now, era, n.engine.Record(k))
		out, err = append(out, d), cmp.Or(err, e)
	}
	return out, err
}

// Put applies changes, all or none, and returns the new versions. When it returns, they are on
// disk, and the node has started to send them to its peers. Storage must store records.
func (n *Node) Put(puts ...engine.Put) ([]*engine.Record, error) {
	n.writes.Lock()
	defer n.writes.Unlock()
	n.mu.Lock()
	records, ops, err := n.engine.Prepare(n.now(), puts)
	n.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	if err := n.disk.durable(ops); err != nil {
		return nil, fmt.Errorf("gossip: save: %w", err)
	}
	n.step(engine.Committed{Records: records})
	return records, nil
}

// Delete deletes records, all or none.
func (n *Node) Delete(keys ...engine.Key) ([]*engine.Record, error) {
	var puts []engine.Put
	for _, k := range keys {
		puts = append(puts, engine.Put{Key: k, Delete: true})
	}
	return n.Put(puts...)
}

// SetOwn replaces the set of items that this node owns. Until the first call after a start, peers
// keep the items that this node published before it restarted.
func (n *Node) SetOwn(items []engine.OwnItem) error {
	if err := engine.CheckOwn(items); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	n.step(engine.Own{Items: items})
	return nil
}

// Leave announces that this node leaves permanently: peers drop its items at once, except those in
// remaining. Then the caller cancels the context of Run.
func (n *Node) Leave(ctx context.Context, remaining []engine.OwnItem) error {
	if err := engine.CheckOwn(remaining); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	n.step(engine.Own{Items: remaining, Leaving: true})
	n.joining.Lock()
	defer n.joining.Unlock()
	n.mu.Lock()
	list, closing := n.list, n.closing
	n.mu.Unlock()
	if list == nil || closing {
		return errors.New("gossip: the node is not running")
	}
	wait := 5 * time.Second
	if t, ok := ctx.Deadline(); ok {
		wait = time.Until(t)
	}
	if err := list.Leave(wait); err != nil {
		return fmt.Errorf("gossip: leave: %w", err)
	}
	return nil
}

// Forget drops the items of a node that has left permanently, and ends the pin of its name. A node
// that is alive publishes its items again.
func (n *Node) Forget(id engine.NodeID) {
	n.step(engine.Forget{Node: id})
	var out changes
	n.mu.Lock()
	if n.roster[id].State != StateAlive {
		n.dropNode(id, &out)
	}
	n.mu.Unlock()
	n.disk.later(out.ops)
}

// Vouch records that the items of a dead node were reachable, so the node is not forgotten after a
// day.
func (n *Node) Vouch(id engine.NodeID) { n.step(engine.Vouch{Node: id}) }

// Record returns the current version of a key, or nil. It returns the tombstone of a deleted record
// until the tombstone expires.
func (n *Node) Record(k engine.Key) *engine.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Record(k)
}

// Records returns all current records without tombstones, sorted by key.
func (n *Node) Records() []*engine.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Records()
}

// Versions returns all current records, including tombstones, in no particular order.
func (n *Node) Versions() []*engine.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Versions()
}

// Owned holds the items of a node and whether they are served.
type Owned struct {
	Node    engine.NodeID
	Name    string
	Epoch   uint64
	Serving engine.Serving
	Items   []engine.OwnItem
	Signer  sign.ID // key of the node, if it has signed them, else zero
}

// Owned returns the items of all nodes, sorted by node.
func (n *Node) Owned() []Owned {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Owned
	for _, m := range n.engine.Nodes() {
		if !m.Forgotten {
			o := n.owner(m)
			o.Items = n.engine.Items(m)
			out = append(out, o)
		}
	}
	return out
}

// Owners returns all nodes like Owned, but without their items.
func (n *Node) Owners() []Owned {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Owned
	for _, m := range n.engine.Nodes() {
		if !m.Forgotten {
			out = append(out, n.owner(m))
		}
	}
	return out
}

// OwnedBy returns the items of one node; ok is false for an unknown or forgotten node.
func (n *Node) OwnedBy(id engine.NodeID) (o Owned, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.engine.Manifest(id)
	if m == nil || m.Forgotten {
		return o, false
	}
	o = n.owner(m)
	o.Items = n.engine.Items(m)
	return o, true
}

// owner returns a node without its items. The caller holds mu.
func (n *Node) owner(m *engine.Manifest) Owned {
	return Owned{Node: m.Node, Name: m.Name, Epoch: m.Epoch(), Serving: n.engine.Serving(m.Node),
		Signer: m.Signer()}
}

// Hold reports whether so many nodes died at once that a network partition is suspected. No node's
// items are removed during a hold.
func (n *Node) Hold() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Hold()
}

// Conflicts returns versions that lost to a concurrent write.
func (n *Node) Conflicts() []*engine.Conflict {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Conflicts()
}

// Limbo returns records that may have been deleted long ago. A Put of the same key restores them.
func (n *Node) Limbo() []*engine.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Limbo()
}

// Refusals returns up to 100 versions of each reason that this node knows and does not apply, and
// the number of all of them by reason. They explain why the entries of two nodes differ.
func (n *Node) Refusals() (list []engine.Refusal, total map[string]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Refusals()
}

// Stats holds counters and gauges of a node.
type Stats struct {
	engine.Stats
	Unsaved   int    // operations that wait for the disk
	SaveError string // error of the last write; "" on success
	Dropped   uint64 // received messages dropped because the queue was full
	Unsent    uint64
	Exchanges uint64 // push/pulls because members differed
	// Refused counts members with invalid metadata, connections above the limits, and malformed
	// stream messages.
	Refused uint64
	// Forged counts messages that are not of the member that they name.
	Forged uint64
	// RosterFull counts nodes that were ignored because the roster is full of live nodes.
	RosterFull uint64
	// Cloned says which other process uses or used this node's ID, since when, and what this node did.
	// It is "" an hour after the last process with the same ID has ended.
	Cloned string
	// NameHolder is the key that the name of this node belongs to, if it is another one. Other nodes
	// may refuse this one.
	NameHolder    sign.ID
	Incompatible  int  // live members without a common protocol version
	PacketsLost   bool // no member acknowledges UDP packets, so all messages use streams
	PacketsLostTo int  // live members that get messages over a stream, because packets are lost

	// Packets and bytes over UDP and streams, without headers and without memberlist's TCP
	// exchanges.
	PacketsIn, PacketsOut, BytesIn, BytesOut uint64
	StreamsIn, StreamsOut                    uint64 // connections
}

// Stats returns current counters and gauges.
func (n *Node) Stats() Stats {
	n.mu.Lock()
	s := Stats{Stats: n.engine.Stats(), Cloned: n.cloned()}
	if self := n.self.Load(); self.signer != nil {
		if p, ok := n.engine.NameHolder(self.meta.name); ok && p.Key != sign.ID(self.meta.node) {
			s.NameHolder = p.Key
		}
	}
	for _, k := range n.roster {
		if k.State == StateAlive && k.Incompatible {
			s.Incompatible++
		}
	}
	n.mu.Unlock()
	var err error
	if s.Unsaved, err = n.disk.state(); err != nil {
		s.SaveError = err.Error()
	}
	s.PacketsLost, s.PacketsLostTo = n.packets.state(time.Now())
	s.Dropped, s.Unsent, s.Exchanges = n.counters.inboxFull.Load(), n.counters.unsent.Load(), n.counters.exchanges.Load()
	s.Refused = n.counters.badMember.Load()
	s.Forged = n.counters.forged.Load()
	s.RosterFull = n.counters.rosterFull.Load()
	c := &n.traffic
	s.Refused += c.refused.Load() + c.malformed.Load()
	s.Unsent += c.lost.Load() + c.dropped.Load()
	s.PacketsIn, s.PacketsOut, s.BytesIn, s.BytesOut = c.packetsIn.Load(), c.packetsOut.Load(), c.bytesIn.Load(),
		c.bytesOut.Load()
	s.StreamsIn, s.StreamsOut = c.streamsIn.Load(), c.streamsOut.Load()
	return s
}

// UseKeys replaces the keys of the pool: the first encrypts, all decrypt. To rotate a key, first
// add the new key on all nodes, then make it the first key on all nodes, then remove the old key.
func (n *Node) UseKeys(keys [][]byte) error {
	o := n.opt
	o.Keys = keys
	if err := o.Validate(); err != nil {
		return err
	}
	if n.ring == nil {
		return errors.New("gossip: the node was started without keys; restart it with keys to encrypt")
	}
	for _, k := range keys {
		if err := n.ring.AddKey(k); err != nil {
			return fmt.Errorf("gossip: %w", err)
		}
	}
	if err := n.ring.UseKey(keys[0]); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	for _, k := range n.ring.GetKeys() {
		if !slices.ContainsFunc(keys, func(x []byte) bool { return slices.Equal(x, k) }) {
			if err := n.ring.RemoveKey(k); err != nil {
				return fmt.Errorf("gossip: %w", err)
			}
		}
	}
	return nil
}

// Held returns deletions that wait until no entries belong to their records, sorted by key.
func (n *Node) Held() []*engine.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Held()
}

// Heal begins an era: the versions that a statement voids are dropped, and refused for ever.
func (n *Node) Heal(s heal.Statement) { n.step(engine.Heal{Statement: s}) }

// Heals returns the statements in force, by era.
func (n *Node) Heals() []heal.Statement {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Heals()
}

// Voided returns the entries in force that a statement would drop. A node or directory is
// represented by its first manifest.
func (n *Node) Voided(s heal.Statement) ([]*engine.Record, []*engine.Manifest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Voided(s)
}
