package engine

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// Conflict is a version that lost to a concurrent write.
type Conflict struct {
	Record   *Record
	Relation Relation  // Concurrent or Undecided
	Seen     time.Time // when this node detected the conflict

	dropped bool // deleted from bySlot, but still in order
}

type conflicts struct {
	bySlot map[Slot][]*Conflict
	order  []*Conflict // in order of arrival, including dropped ones
	n      int
}

func (c *Conflict) key() string {
	h := c.Record.Head()
	return string(h.Slot[:]) + string(h.Digest[:])
}

func (c *Conflict) encode() []byte {
	b := append([]byte{byte(c.Relation)}, putTime(c.Seen)...)
	return append(b, c.Record.Encoded()...)
}

func (e *Engine) decodeConflict(b []byte) (*Conflict, error) {
	if len(b) < 9 || Relation(b[0]) != Concurrent && Relation(b[0]) != Undecided {
		return nil, errors.New("conflict is truncated")
	}
	r, err := e.loadRecord(b[9:])
	return &Conflict{Record: r, Relation: Relation(b[0]), Seen: time.UnixMilli(int64(binary.BigEndian.Uint64(b[1:9])))},
		err
}

func (s *conflicts) put(c *Conflict) {
	slot := c.Record.Key.Slot()
	s.bySlot[slot] = append(s.bySlot[slot], c)
	s.n++
	if len(s.order) > 2*s.n+64 {
		s.order = slices.DeleteFunc(s.order, func(c *Conflict) bool { return c.dropped })
	}
	s.order = append(s.order, c)
}

// oldest returns the first conflict. There must be one.
func (s *conflicts) oldest() *Conflict {
	for s.order[0].dropped {
		s.order = s.order[1:]
	}
	return s.order[0]
}

func (s *conflicts) drop(c *Conflict) {
	slot := c.Record.Key.Slot()
	c.dropped = true
	before := len(s.bySlot[slot])
	s.bySlot[slot] = slices.DeleteFunc(s.bySlot[slot], func(x *Conflict) bool { return x == c })
	s.n -= before - len(s.bySlot[slot])
	if len(s.bySlot[slot]) == 0 {
		delete(s.bySlot, slot)
	}
}

func (s *conflicts) all() []*Conflict {
	var out []*Conflict
	for _, l := range s.bySlot {
		out = append(out, l...)
	}
	slices.SortFunc(out, func(a, b *Conflict) int {
		return cmp.Or(cmp.Compare(a.Record.Key.String(), b.Record.Key.String()), b.Seen.Compare(a.Seen),
			cmp.Compare(a.key(), b.key()))
	})
	return out
}

func (s *conflicts) older(t time.Time) []*Conflict {
	return slices.DeleteFunc(s.all(), func(c *Conflict) bool { return !c.Seen.Before(t) })
}

func (e *Engine) dropConflict(c *Conflict) {
	e.conflicts.drop(c)
	e.write(bucketConflicts, c.key(), nil)
}

// addConflict stores a version that lost to a concurrent write.
func (e *Engine) addConflict(winner, loser *Record, rel Relation) {
	slot := loser.Key.Slot()
	list := e.conflicts.bySlot[slot]
	for _, c := range list {
		if c.Record.Version() == loser.Version() || c.Record.Knows(loser) || record.SameContent(c.Record, loser) {
			return
		}
	}
	c := &Conflict{Record: loser, Relation: rel, Seen: e.wall}
	for _, o := range slices.Clone(list) {
		if loser.Knows(o.Record) {
			e.dropConflict(o)
		}
	}
	e.conflicts.put(c)
	e.write(bucketConflicts, c.key(), c.encode())
	if list = e.conflicts.bySlot[slot]; len(list) > conflictsEach {
		e.dropConflict(slices.MinFunc(list, func(a, b *Conflict) int { return cmp.Compare(a.Record.HLC, b.Record.HLC) }))
		e.count("conflict dropped: too many of a key")
	}
	if e.conflicts.n > e.cfg.Limits.Conflicts {
		e.dropConflict(e.conflicts.oldest())
		e.count("conflict dropped: too many")
	}
	e.count("conflicts")
	e.note("conflict", fmt.Sprintf("%s was changed concurrently on two nodes; the change of %s by %x is in force, "+
		"that of %s by %x is listed as a conflict", loser.Key, winner.HLC.Time().UTC().Format(time.RFC3339), winner.Writer,
		loser.HLC.Time().UTC().Format(time.RFC3339), loser.Writer))
}

// resolve drops the conflicts that a new version supersedes.
func (e *Engine) resolve(r *Record) {
	for _, c := range slices.Clone(e.conflicts.bySlot[r.Key.Slot()]) {
		if r.Knows(c.Record) || record.SameContent(r, c.Record) {
			e.dropConflict(c)
		}
	}
}
