package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/limits"
	"github.com/nearside-mesh/nearside/gossip/engine/liveness"
	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// Errors of local changes.
var (
	// ErrClock means that this node's clock differs too much from those of its peers.
	ErrClock = errors.New("the clock of this node is wrong")
	// ErrFull means that a limit is reached.
	ErrFull = limits.ErrFull
	// ErrTrust means that the policy does not permit the change.
	ErrTrust = errors.New("this node may not write the record")
)

// Origin returns this node as the author of records.
func (e *Engine) Origin() Origin {
	return Origin{Node: e.cfg.Self, Name: e.cfg.Name, Cluster: e.cfg.Cluster, Signer: e.cfg.Signer, Era: e.Era()}
}

// Prepare returns the next versions of some keys, and the operations to write to disk before the
// versions are passed to Step as Committed. Calls must not overlap.
func (e *Engine) Prepare(now Now, puts []Put) ([]*Record, []Op, error) {
	skew := e.skew(now.Wall, now.instant())
	if skew.Abs() > maxSkew && e.clock.established {
		return nil, nil, fmt.Errorf("%w: it differs by %s from the clocks of most peers, at most %s are allowed; set it "+
			"or wait for NTP", ErrClock, skew.Round(time.Second), maxSkew)
	}
	poolTime, of := e.PoolTime(now), e.Origin()
	var out []*Record
	var ops []Op
	var all limits.Batch
	earlier := map[Key]*Record{} // changes of this call
	for _, p := range puts {
		parent := earlier[p.Key]
		if en := e.entries[p.Key.Slot()]; parent == nil && en != nil {
			parent = en.record
		}
		if parent != nil && parent.HLC.Era() >= e.Era() && parent.HLC.Date() > record.Wall(poolTime.Add(maxSkew)) {
			return nil, nil, fmt.Errorf("%w: %s is dated %s, in the future; a change would not take effect before that: "+
				"run nearside pool heal",
				ErrClock, p.Key, parent.HLC.Time().UTC().Format(time.RFC3339))
		}
		r, err := Successor(poolTime, parent, p, of)
		if err != nil {
			return nil, nil, err
		}
		if why := e.heals.Void(voidable(r)); why != "" {
			return nil, nil, fmt.Errorf("%w: %s: %s", ErrTrust, p.Key, why)
		}
		if why := e.objection(r); why != "" {
			return nil, nil, fmt.Errorf("%w: %s: %s", ErrTrust, p.Key, why)
		}
		all.Add(e.extentOf(parent), e.extentOf(r))
		earlier[p.Key] = r
		out = append(out, r)
		ops = append(ops, recordOp(r))
	}
	if err := cmp.Or(e.cfg.Limits.Check(all, e.totals(e.self())), e.checkHolds(out)); err != nil {
		return nil, nil, err
	}
	return out, ops, nil
}

// committed merges local changes that are on disk.
func (e *Engine) committed(records []*Record) {
	for _, r := range records {
		slot := r.Key.Slot()
		en := e.entries[slot]
		if en == nil {
			e.setRecord(nil, r)
		} else {
			winner, loser, rel := Merge(en.record, r)
			if rel != Superseded {
				e.addConflict(winner, loser, rel)
			}
			if winner != r {
				e.out.Write = append(e.out.Write, recordOp(winner)) // replaces the version written by Prepare
				continue
			}
			e.setRecord(en, r)
			e.resolve(r)
		}
		e.news = append(e.news, news{slot: slot})
		if l := e.limbo[slot]; l != nil {
			delete(e.limbo, slot)
			e.write(bucketLimbo, string(slot[:]), nil)
		}
	}
}

// Record returns the current version of a key, or nil. It may be a tombstone.
func (e *Engine) Record(k Key) *Record {
	if en := e.entries[k.Slot()]; en != nil {
		return en.record
	}
	return nil
}

// Versions returns all current records, including tombstones, in no particular order.
func (e *Engine) Versions() []*Record {
	var out []*Record
	for _, en := range e.entries {
		if en.record != nil {
			out = append(out, en.record)
		}
	}
	return out
}

// Records returns all current records without tombstones, sorted by key.
func (e *Engine) Records() []*Record {
	var out []*Record
	for _, en := range e.entries {
		if en.record != nil && !en.record.Deleted {
			out = append(out, en.record)
		}
	}
	slices.SortFunc(out, func(a, b *Record) int { return a.Key.Compare(b.Key) })
	return out
}

// Manifest returns the first manifest of a node, or nil.
func (e *Engine) Manifest(n NodeID) *Manifest {
	if s := e.sets[owner{ID: n}]; s != nil {
		return s.first()
	}
	return nil
}

// Nodes returns the first manifests of all nodes, sorted by node.
func (e *Engine) Nodes() []*Manifest { return e.owners(false) }

// Directories returns the first manifests of all published directories, sorted by ID.
func (e *Engine) Directories() []*Manifest {
	return slices.DeleteFunc(e.owners(true), func(m *Manifest) bool { return m.Forgotten || m.Leaving })
}

func (e *Engine) owners(directory bool) (out []*Manifest) {
	for o, s := range e.sets {
		if o.Directory == directory {
			out = append(out, s.first())
		}
	}
	slices.SortFunc(out, func(a, b *Manifest) int { return cmp.Compare(string(a.Node[:]), string(b.Node[:])) })
	return out
}

// Items returns all items of the owner of a manifest, sorted by key. Callers must not modify the
// bodies.
func (e *Engine) Items(m *Manifest) (out []OwnItem) {
	s := e.sets[m.Owner()]
	if s == nil {
		return nil
	}
	for _, en := range s.shards {
		for _, x := range en.manifest.Entries {
			out = append(out, OwnItem{x.Key, e.bodies[x.Hash].data})
		}
	}
	if len(s.shards) > 1 {
		slices.SortFunc(out, func(a, b OwnItem) int { return a.Key.Compare(b.Key) })
	}
	return out
}

// Body returns the body of a manifest entry, or nil.
func (e *Engine) Body(h BodyHash) []byte {
	if b := e.bodies[h]; b != nil {
		return b.data
	}
	return nil
}

// Serving tells how to use the items of a node.
type Serving = liveness.Serving

// See package liveness.
const (
	Serve     = liveness.Serve
	Unhealthy = liveness.Unhealthy
	Removed   = liveness.Removed
)

// Serving tells how to use the items of a node.
func (e *Engine) Serving(n NodeID) Serving {
	if n == e.cfg.Self {
		return Serve
	}
	return e.live.Serving(n, e.now)
}

// Hold reports whether so many nodes died at once that a network partition is suspected.
func (e *Engine) Hold() bool { return e.live.Hold(e.now) }

// Conflicts returns the versions that lost to a concurrent write, by key, newest first.
func (e *Engine) Conflicts() []*Conflict { return e.conflicts.all() }

// Limbo returns records that may have been deleted long ago. A Put of the same key removes them.
func (e *Engine) Limbo() []*Record {
	out := slices.Collect(maps.Values(e.limbo))
	slices.SortFunc(out, func(a, b *Record) int { return a.Key.Compare(b.Key) })
	return out
}

// PeerState is the state that a member reported in its last probe response or check.
type PeerState struct {
	Heard  time.Time // zero: no report yet
	RTT    time.Duration
	Ahead  time.Duration // offset of its clock from the local clock
	Agrees bool          // its entries then equal the local entries now
	Root   Digest        // of its entries at that time
	// Differs is the time since which its entries differ from the local ones, apart from changes that
	// are on their way. Zero: they do not.
	Differs     time.Time
	Differences []Difference // up to 20 entries of which comparisons found different versions
}

// Peer returns the state of a member, or zero.
func (e *Engine) Peer(member string) PeerState {
	p := e.peers[member]
	if p == nil || p.checks.rootAt.IsZero() {
		return PeerState{}
	}
	out := PeerState{Heard: e.wallAt(p.checks.rootAt), RTT: p.rtt, Agrees: p.root == e.tree.Sum, Root: p.root}
	if !p.heard.IsZero() {
		out.Ahead = p.clock - e.wall.Sub(e.now)
	}
	since, list := e.differences(p)
	if out.Differences = list; !since.IsZero() {
		out.Differs = e.wallAt(since)
	}
	return out
}

// wallAt returns the wall time of a monotonic time.
func (e *Engine) wallAt(t time.Time) time.Time { return e.wall.Add(t.Sub(e.now)) }

// Stats holds counters and gauges of an engine.
type Stats struct {
	Entries, Tombstones, Bytes         int
	Conflicts, Parked, Limbo, Refused  int
	Peers, Wants, Pulls, Pending, News int
	Root                               Digest
	Skew                               time.Duration // of most peers' clocks from the local one
	// ClockDiffers is the offset of a peer's clock from the local one if no majority of nodes shows
	// which one is right. 0: none above 2 s.
	ClockDiffers time.Duration
	Agreed       time.Time
	Cloned       bool
	Epoch        uint64
	Counters     map[string]uint64

	Limits      Limits
	Own         Usage          // of the limits WriterRecords and WriterBytes by this node
	FullWriters []Usage        // up to 100 writers that have reached these limits
	Refusals    map[string]int // number of versions that are not applied, by reason; see Engine.Refusals
}

// Stats returns current counters and gauges.
func (e *Engine) Stats() Stats {
	refusals := map[string]int{}
	for _, r := range e.allRefusals() {
		refusals[r.Reason]++
	}
	return Stats{Entries: len(e.entries), Tombstones: e.tombs, Bytes: e.bytes, Conflicts: e.conflicts.n,
		Parked: len(e.parked),
		Limbo:  len(e.limbo), Refused: len(e.refused), Peers: len(e.alive), Wants: len(e.wants.bySlot),
		Pulls: len(e.wants.requests), Pending: len(e.pending), News: len(e.rumors.queue), Root: e.tree.Sum,
		Skew: e.skew(e.wall, e.now), ClockDiffers: e.vote().Differs, Agreed: e.agreed, Cloned: e.own.cloned,
		Epoch: e.own.epoch, Counters: maps.Clone(e.counters), Limits: e.cfg.Limits, Own: e.accounts.Of(e.self()),
		FullWriters: e.accounts.Full(e.cfg.Limits), Refusals: refusals}
}
