package peers

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/draft"
)

// change is a version that a node sealed.
type change struct {
	record *engine.Record
	parent *change
	node   int
	at     time.Time
	// fragile: its only durable copy may be lost with a restored disk, or it was not acknowledged
	fragile bool
}

// truth holds all versions of a run.
type truth struct {
	all     []*change // in order
	byID    map[string]*change
	dropped bool // some conflicts were dropped because there were too many
}

func idOf(r *engine.Record) string { return r.Key.String() + " " + r.ID() }

// recorder is the pool of a store. It records what the node seals.
type recorder struct {
	w *world
	n *member
}

func (r *recorder) Drafts(keys []engine.Key) ([]draft.Draft, error) {
	return r.n.source.node.Drafts(keys)
}

func (r *recorder) Seal(puts []engine.Put) ([]*engine.Record, func(), error) {
	parents := map[engine.Key]*change{}
	for _, p := range puts {
		if old := r.n.source.node.Record(p.Key); old != nil {
			parents[p.Key] = r.w.truth.byID[idOf(old)]
		}
	}
	records, committed, err := r.n.source.node.Seal(puts)
	r.n.sealed, r.n.durable = nil, false
	for _, rec := range records {
		c := &change{record: rec, parent: parents[rec.Key], node: r.n.i, at: r.w.now, fragile: true}
		parents[rec.Key] = c
		r.w.truth.all = append(r.w.truth.all, c)
		r.w.truth.byID[idOf(rec)] = c
		r.n.sealed = append(r.n.sealed, c)
		r.w.logf("version %s of %s on %d, deleted %v, after %d", rec.ID(), rec.Key, r.n.i, rec.Deleted, len(rec.Lineage))
	}
	return records, func() {
		if !r.n.durable {
			r.w.t.Errorf("node %d sends versions that are not on its disk", r.n.i)
		}
		committed()
	}, err
}

var (
	errKilled = errors.New("the agent is killed")
	errDisk   = errors.New("the disk fails")
)

// operate runs one random operation or fault.
func (w *world) operate() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	o := w.nodes[w.rng.IntN(len(w.nodes))]
	switch k := w.rng.IntN(100); {
	case k < 40:
		w.write(n)
	case k < 48:
		w.edit(n, n.files, w.keys[w.rng.IntN(len(w.keys))])
	case k < 55:
		name := []string{fmt.Sprint(n.i, "-", w.rng.IntN(3)), "shared"}[w.rng.IntN(2)]
		w.edit(n, n.dataplanes, resource.Key{Kind: "Dataplane", Mesh: "m", Name: name})
	case k < 61: // partition into two sides
		side := w.rng.IntN(1 << len(w.nodes))
		w.logf("cut %b", side)
		for _, a := range w.nodes {
			for _, b := range w.nodes {
				w.cut[[2]int{a.i, b.i}] = side>>a.i&1 != side>>b.i&1
			}
		}
	case k < 65:
		w.logf("cut %d to %d", n.i, o.i)
		w.cut[[2]int{n.i, o.i}] = true
	case k < 74:
		w.logf("heal")
		clear(w.cut)
	case k < 76:
		w.noPackets = !w.noPackets
		w.logf("no packets: %v", w.noPackets)
	case k < 82:
		if n.up {
			w.logf("kill %d", n.i)
			w.kill(n, w.load(n))
		}
	case k < 83:
		if n.up {
			w.logf("stop %d", n.i)
			w.stop(n)
		}
	case k < 85:
		if n.up {
			w.logf("save %d", n.i)
			n.images = append(n.images, image{w.now, w.load(n)})
		}
	case k < 87:
		if len(n.images) > 0 {
			w.restore(n, n.images[w.rng.IntN(len(n.images))])
		}
	case k < 88:
		if w.rng.IntN(4) > 0 {
			w.restore(n, image{})
			return
		}
		w.logf("restore all")
		for _, n := range w.nodes {
			if len(n.images) > 0 {
				w.restore(n, n.images[len(n.images)-1])
			}
		}
	case k < 92:
		n.clock = []time.Duration{0, 0, time.Hour, -time.Hour}[w.rng.IntN(4)]
		w.logf("clock of %d: %v", n.i, n.clock)
	default:
		if !n.up {
			w.logf("start %d", n.i)
			w.start(n)
		}
	}
}

// restore replaces the state file of a node by an earlier one, or removes it.
func (w *world) restore(n *member, i image) {
	if i.data == nil {
		w.logf("lose the file of %d", n.i)
	} else {
		w.logf("restore %d from %v", n.i, i.at.Sub(worldStart))
	}
	if n.up {
		w.kill(n, i.data)
	} else {
		w.replace(n, i.data)
	}
	for _, c := range w.truth.all {
		c.fragile = c.fragile || c.node == n.i && !c.at.Before(i.at)
	}
	w.run(time.Second) // of a start, the epoch is its time in seconds
	w.start(n)
}

// stop ends a node like an agent that is shut down.
func (w *world) stop(n *member) {
	w.noteDropped(n)
	w.must(n.source.node.Save())
	n.up = false
	w.check(n.store.Close())
}

// text returns a new text.
func (w *world) text() string {
	w.texts++
	return fmt.Sprint("text ", w.texts, strings.Repeat("x", w.rng.IntN(8)/7*3000))
}

// edit changes the files or the dataplanes of a node.
func (w *world) edit(n *member, of map[resource.Key]string, k resource.Key) {
	if _, ok := of[k]; ok && w.rng.IntN(2) == 0 {
		delete(of, k)
	} else {
		of[k] = w.text()
	}
	w.logf("%v on %d: %.10q", k, n.i, of[k])
	if n.up {
		w.applyLocal(n)
		w.react(n)
	}
}

// batch returns random changes over the API.
func (w *world) batch(n *member) (ops []store.Op) {
	snap := n.store.Snapshot()
	for range []int{1, 1, 1, 2, 3, min(5, len(w.keys))}[w.rng.IntN(6)] {
		k := w.keys[w.rng.IntN(len(w.keys))]
		text := w.text()
		if !n.old && w.rng.IntN(6) == 0 {
			text = newer + text
		}
		op := store.Op{Put: newNote(k, text)}
		if rec, ok := snap.Get(k); ok && rec.Source.Operators() && w.rng.IntN(3) == 0 {
			op = store.Op{Delete: k}
		}
		ops = append(ops, op)
		if op.Put == nil {
			break // a second deletion is an error
		}
	}
	return ops
}

// Points of a write at which something happens.
const (
	killBefore = iota // the commit
	killAfter
	failDisk
	others = 8 // below: other events take place during the commit
)

// write changes resources over the API of a node. The agent may be killed at any point.
func (w *world) write(n *member) {
	if !n.up {
		return
	}
	ops, point, fired := w.batch(n), w.rng.IntN(24), false
	var data []byte
	if point == killBefore {
		data = w.load(n)
	}
	n.committed = func() error {
		n.committed, fired = nil, true
		switch {
		case point == killAfter:
			data = w.load(n)
			return errKilled
		case point == killBefore:
			return errKilled
		case point == failDisk:
			return errDisk
		case point < others:
			n.writing = true
			w.run(w.millis(10))
			n.writing = false
		}
		return nil
	}
	n.sealed = nil
	_, err := n.store.Apply(store.Batch{Source: sourceAPI, Author: "operator", Durable: true, Ops: ops})
	n.committed = nil
	if len(n.held) > 0 {
		w.check((storage{n.store}).Write(n.held))
		n.held = nil
	}
	if fired && point <= killAfter {
		w.logf("kill %d in a write, committed %v", n.i, point == killAfter)
		w.counts["kill in a write"]++
		w.kill(n, data)
		return
	}
	if err != nil {
		w.logf("write on %d refused: %v", n.i, err)
		w.counts["refused write"]++
		w.explain(n, err)
	} else {
		w.counts["write"]++
		for _, c := range n.sealed {
			c.fragile, c.at = false, w.now
		}
	}
	w.react(n)
	w.tick(n)
}

// explain fails the test if a write was refused for an unexpected reason.
func (w *world) explain(n *member, err error) {
	var conflict *store.ConflictError
	var durability *store.DurabilityError
	var gone *store.NotFoundError // another node has deleted it during a repair of the disk
	switch {
	case errors.As(err, &gone):
	case errors.As(err, &conflict), errors.As(err, &durability) && errors.Is(err, errDisk):
	case errors.Is(err, engine.ErrClock), errors.Is(err, engine.ErrFull) && w.limited:
	default:
		w.t.Errorf("a write on node %d was refused: %v", n.i, err)
	}
}
