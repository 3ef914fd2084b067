package gossip

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Put makes changes, all or none, and returns the new versions. They are on disk when it returns,
// and on their way to other nodes.
func (n *Node) Put(puts ...Put) ([]*Record, error) {
	n.writes.Lock()
	defer n.writes.Unlock()
	n.mu.Lock()
	records, ops, err := n.engine.Prepare(time.Now(), puts)
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
func (n *Node) Delete(keys ...Key) ([]*Record, error) {
	var puts []Put
	for _, k := range keys {
		puts = append(puts, Put{Key: k, Delete: true})
	}
	return n.Put(puts...)
}

// SetOwn says all that this node owns. Before the first call, others keep what the last boot of
// this node has said.
func (n *Node) SetOwn(items []Item) error {
	if err := engine.CheckOwn(items); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	n.step(engine.Own{Items: items})
	return nil
}

// Leave says that this node goes for good: others drop what it owns at once, but for what it keeps.
// The caller then ends the context of Run.
func (n *Node) Leave(ctx context.Context, keep []Item) error {
	if err := engine.CheckOwn(keep); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	n.step(engine.Own{Items: keep, Leaving: true})
	n.mu.Lock()
	list := n.list
	n.mu.Unlock()
	if list == nil {
		return errors.New("gossip: the node does not run")
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

// Forget drops what a node owns that is gone for good. A node that is alive comes back.
func (n *Node) Forget(id NodeID) { n.step(engine.Forget{Node: id}) }

// Vouch says that what a dead node owns was reached, so that the node is not forgotten after a day.
func (n *Node) Vouch(id NodeID) { n.step(engine.Vouch{Node: id}) }

// Record returns the version of a key that is in force, or nil. A deleted one is returned as such
// for as long as it is remembered.
func (n *Node) Record(k Key) *Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Record(k)
}

// Records returns all records that are in force and not deleted, by key.
func (n *Node) Records() []*Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Records()
}

// Owned is what a node owns, and what becomes of it.
type Owned struct {
	Node    NodeID
	Name    string
	Epoch   uint64
	Serving Serving
	Items   []Item
}

// Owned returns what all nodes own, by node.
func (n *Node) Owned() []Owned {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Owned
	for _, m := range n.engine.Nodes() {
		if m.Forgotten {
			continue
		}
		o := Owned{Node: m.Node, Name: m.Name, Epoch: m.Epoch(), Serving: n.engine.Serving(m.Node, time.Now())}
		for _, x := range m.Entries {
			o.Items = append(o.Items, Item{Key: x.Key, Body: n.engine.Body(x.Hash)})
		}
		out = append(out, o)
	}
	return out
}

// Hold reports whether so many nodes died at once that a cut is suspected: nothing is removed
// meanwhile.
func (n *Node) Hold() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Hold()
}

// Conflicts returns versions that have lost against one whose writer did not know them.
func (n *Node) Conflicts() []*Conflict {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Conflicts()
}

// Limbo returns records that may have been deleted long ago. A Put of the same key brings them
// back.
func (n *Node) Limbo() []*Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Limbo()
}

// Stats are figures of a node.
type Stats struct {
	engine.Stats
	Unsaved   int    // operations that wait for the disk
	SaveError string // of the last write, "" if it went well
	Dropped   uint64 // messages, since too many waited for the engine
	Unsent    uint64
	Exchanges uint64 // push/pulls because members differed
	// members whose metadata is wrong, connections above the bounds, and messages on streams that
	// break the rules
	Refused uint64

	// of UDP and streams; without headers, and without what memberlist exchanges over TCP
	PacketsIn, PacketsOut, BytesIn, BytesOut uint64
	StreamsIn, StreamsOut                    uint64 // connections
}

// Stats returns the figures.
func (n *Node) Stats() Stats {
	n.mu.Lock()
	s := Stats{Stats: n.engine.Stats()}
	n.mu.Unlock()
	var err error
	if s.Unsaved, err = n.disk.state(); err != nil {
		s.SaveError = err.Error()
	}
	s.Dropped, s.Unsent, s.Exchanges = n.counters.inboxFull.Load(), n.counters.unsent.Load(), n.counters.exchanges.Load()
	s.Refused = n.counters.badMember.Load()
	if n.socket != nil {
		s.Refused += n.socket.counters.refused.Load() + n.socket.counters.malformed.Load()
		s.Unsent += n.socket.counters.lost.Load() + n.socket.counters.dropped.Load()
		c := &n.socket.counters
		s.PacketsIn, s.PacketsOut, s.BytesIn, s.BytesOut = c.packetsIn.Load(), c.packetsOut.Load(), c.bytesIn.Load(),
			c.bytesOut.Load()
		s.StreamsIn, s.StreamsOut = c.streamsIn.Load(), c.streamsOut.Load()
	}
	return s
}

// UseKeys replaces the keys of the pool: the first encrypts, all decrypt. To change a key, add the
// new one everywhere, put it first everywhere, and then remove the old one.
func (n *Node) UseKeys(keys [][]byte) error {
	o := n.opt
	o.Keys = keys
	if err := o.Validate(); err != nil {
		return err
	}
	if n.ring == nil {
		return errors.New("gossip: the node was started without keys: restart it to encrypt")
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
