package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Put is a local change.
type Put struct {
	Key       Key
	Delete    bool
	MediaType string
	Body      []byte
}

// Errors of local changes.
var (
	// ErrClock says that the clock of this node is too far from those of its peers.
	ErrClock = errors.New("the clock of this node is wrong")
	// ErrFull says that a bound is reached.
	ErrFull = errors.New("too much is stored")
)

// Prepare makes the next versions of some keys, and what has to be on disk before they are handed
// over as Committed. Nobody else may prepare in between.
func (e *Engine) Prepare(now time.Time, puts []Put) ([]*Record, []Op, error) {
	skew := e.skew
	if d := now.Sub(e.now); d < -time.Second || d > maxSkew {
		skew = 0 // the clock was set; it will be measured anew
	}
	if skew > maxSkew || skew < -maxSkew {
		return nil, nil, fmt.Errorf("%w: it differs by %s from those of most peers, at most %s are allowed; set it, "+
			"or wait for NTP", ErrClock, skew.Round(time.Second), maxSkew)
	}
	judged := now.Add(skew)
	var out []*Record
	var ops []Op
	for _, p := range puts {
		var parent *Record
		en := e.entries[p.Key.slot()]
		if en != nil {
			parent = en.record
		}
		for _, r := range slices.Backward(out) { // of the same call
			if r.Key == p.Key {
				parent = r
				break
			}
		}
		if parent != nil && parent.HLC > wall(judged.Add(maxSkew)) {
			return nil, nil, fmt.Errorf("%w: %s is dated %s, in the future; a change now would not take effect anywhere "+
				"before that", ErrClock, p.Key, parent.HLC.Time().UTC().Format(time.RFC3339))
		}
		var hlc HLC
		if parent != nil {
			hlc = parent.HLC
		}
		r, err := successor(p.Key, parent, next(judged, hlc), e.writer(), p.Delete, p.MediaType, p.Body)
		if err != nil {
			return nil, nil, err
		}
		if why := e.reasonOfBounds(en, r); why != "" {
			return nil, nil, fmt.Errorf("%w: %s cannot be stored (%s); delete what is not needed", ErrFull, p.Key, why)
		}
		if p.Delete && e.tombs >= e.cfg.Limits.Tombstones {
			return nil, nil, fmt.Errorf("%w: %d deletions are remembered, no more are allowed; the oldest are dropped after %s",
				ErrFull, e.tombs, e.cfg.Limits.Horizon)
		}
		out = append(out, r)
		ops = append(ops, recordOp(r))
	}
	return out, ops, nil
}

func (e *Engine) writer() Writer { return Writer(e.cfg.Self[:8]) }

// committed takes local changes that are on disk.
func (e *Engine) committed(records []*Record) {
	for _, r := range records {
		slot := r.Key.slot()
		en := e.entries[slot]
		if en == nil {
			e.setRecord(nil, r)
		} else {
			winner, loser, rel := Merge(en.record, r)
			if rel != Superseded {
				e.lost(winner, loser, rel)
			}
			if winner != r {
				e.out.Write = append(e.out.Write, recordOp(winner)) // over what Prepare has put on disk
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

// Record returns the version of a key that is in force, a tombstone included, or nil.
func (e *Engine) Record(k Key) *Record {
	if en := e.entries[k.slot()]; en != nil {
		return en.record
	}
	return nil
}

// Records returns all records that are in force, without tombstones, by key.
func (e *Engine) Records() []*Record {
	var out []*Record
	for _, en := range e.entries {
		if en.record != nil && !en.record.Deleted {
			out = append(out, en.record)
		}
	}
	sortRecords(out)
	return out
}

func sortRecords(l []*Record) {
	slices.SortFunc(l, func(a, b *Record) int {
		return cmp.Or(cmp.Compare(a.Key.Kind, b.Key.Kind), cmp.Compare(a.Key.Mesh, b.Key.Mesh),
			cmp.Compare(a.Key.Name, b.Key.Name))
	})
}

// Manifest returns what a node says that it owns, or nil.
func (e *Engine) Manifest(n NodeID) *Manifest {
	if en := e.entries[n.slot()]; en != nil {
		return en.manifest
	}
	return nil
}

// Nodes returns the manifests of all nodes, by node.
func (e *Engine) Nodes() []*Manifest {
	var out []*Manifest
	for _, en := range e.entries {
		if en.manifest != nil {
			out = append(out, en.manifest)
		}
	}
	slices.SortFunc(out, func(a, b *Manifest) int { return cmp.Compare(string(a.Node[:]), string(b.Node[:])) })
	return out
}

// Body returns what an entry of a manifest names.
func (e *Engine) Body(h BodyHash) []byte {
	if b := e.bodies[h]; b != nil {
		return b.data
	}
	return nil
}

// Serving says what becomes of the things of a node.
func (e *Engine) Serving(n NodeID, now time.Time) Serving {
	if n == e.cfg.Self {
		return Serve
	}
	return e.live.serving(n, now)
}

// Hold reports whether so many nodes died at once that a cut is suspected: then nothing is removed.
func (e *Engine) Hold() bool { return e.live.hold() }

// Conflicts returns the versions that have lost unseen, by key, newest first.
func (e *Engine) Conflicts() []*Conflict { return e.conflicts.all() }

// Limbo returns records that may have been deleted long ago. A Put of the same key takes them out.
func (e *Engine) Limbo() []*Record {
	out := slices.Collect(maps.Values(e.limbo))
	sortRecords(out)
	return out
}

// PeerState is what the last answer of a member to a probe has said.
type PeerState struct {
	Heard  time.Time // zero: it was not probed yet
	RTT    time.Duration
	Ahead  time.Duration // its clock, of the own one
	Agrees bool          // it had then the entries that are here now
	Root   Digest        // of the entries that it had then
}

// Peer returns what is known of a member.
func (e *Engine) Peer(member string) PeerState {
	p := e.peers[member]
	if p == nil || p.heard.IsZero() {
		return PeerState{}
	}
	return PeerState{Heard: p.heard, RTT: p.rtt, Ahead: p.clock, Agrees: p.root == e.tree.sum, Root: p.root}
}

// Stats are figures of an engine.
type Stats struct {
	Entries, Tombstones, Bytes         int
	Conflicts, Parked, Limbo, Refused  int
	Peers, Wants, Pulls, Pending, News int
	Root                               Digest
	Skew                               time.Duration
	Agreed                             time.Time
	Cloned                             bool
	Epoch                              uint64
	Counters                           map[string]uint64
}

// Stats returns the figures.
func (e *Engine) Stats() Stats {
	return Stats{Entries: len(e.entries), Tombstones: e.tombs, Bytes: e.bytes, Conflicts: e.conflicts.n,
		Parked: len(e.parked),
		Limbo:  len(e.limbo), Refused: len(e.refused), Peers: len(e.alive), Wants: len(e.wants.bySlot),
		Pulls: len(e.wants.requests), Pending: len(e.pending), News: len(e.rumors.queue), Root: e.tree.sum, Skew: e.skew,
		Agreed: e.agreed, Cloned: e.own.cloned,
		Epoch: e.own.epoch, Counters: maps.Clone(e.counters)}
}
