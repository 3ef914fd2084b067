// Package presence owns the observed states of this node's Dataplanes: whether their Envoys run and
// have acknowledged their inbounds, whether they drain, and whether probes of their workloads
// succeed. It merges them into one [resource.EndpointState] for each Dataplane that is not ready,
// and keeps it in the store, from which all nodes of the pool learn it.
package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Options configures a [Presence]. Registry and Store are required.
type Options struct {
	Registry *resource.Registry // with the internal kinds
	Store    *store.Store
	Log      *slog.Logger     // nil: no logs
	Now      func() time.Time // nil: time.Now
}

// Presence is safe for concurrent use. Its inputs only update its state; [Presence.Run] writes the
// changes to the store, all that are pending in one batch.
type Presence struct {
	o    Options
	bell chan struct{} // one slot: the store may need an update

	writes sync.Mutex // one update at a time; locked before mu
	seen   *store.Snapshot

	mu    sync.Mutex
	all   map[resource.Key]*observed // mu; by Dataplane
	dirty map[resource.Key]bool      // mu; Dataplanes whose record may have to change
}

// observed holds the observations of one Dataplane.
type observed struct {
	process string          // of its Envoy, or ""
	ended   bool            // the process has ended, and no other one has acknowledged the inbounds
	drains  bool            // between Drain and Undrain
	pending bool            // no Envoy has acknowledged its inbounds yet
	missing []uint32        // ports of inbounds that its Envoy has not acknowledged
	failing map[uint32]bool // ports whose probe fails
}

// Reasons in records.
const (
	reasonEnded    = "its Envoy has ended"
	reasonDraining = "it drains, until nearside drain --undo or until a new Envoy of it connects"
	reasonPending  = "its Envoy has not acknowledged the inbound yet"
	reasonProbe    = "the probe of the workload fails"
)

// New returns a Presence with the states in the store.
func New(o Options) *Presence {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Presence{o: o, bell: make(chan struct{}, 1), all: map[resource.Key]*observed{}, dirty: map[resource.Key]bool{}}
	for _, rec := range o.Store.Snapshot().BySource(store.SourceNode) {
		state, ok := rec.Spec.(*resource.EndpointState)
		if !ok {
			continue
		}
		x := &observed{process: state.Process}
		switch {
		case state.State == resource.EndpointEnded:
			x.ended = true
		case state.State == resource.EndpointDraining:
			x.drains = true
		case state.Reason == reasonPending:
			x.pending, x.missing = len(state.Inbounds) == 0, state.Inbounds
		default:
			for _, port := range state.Inbounds {
				x.fail(port)
			}
		}
		p.all[dataplaneOf(rec.Key)] = x
	}
	return p
}

func dataplaneOf(state resource.Key) resource.Key {
	return resource.Key{Kind: kindDataplane, Mesh: state.Mesh, Name: state.Name}
}

const kindDataplane = "Dataplane"

// Announce returns the change that has to be in the batch that first stores a Dataplane from the
// node metadata of its Envoy, so that it does not receive traffic before that Envoy has its
// inbounds.
func (p *Presence) Announce(dataplane resource.Key) (store.Op, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.of(dataplane)
	x.pending, x.missing, x.ended = true, nil, false
	p.dirty[dataplane] = true
	return p.put(dataplane, x)
}

// Ended records that the Envoy of a Dataplane has ended. Its process ID is 0 if it is unknown.
func (p *Presence) Ended(dataplane resource.Key, pid int) {
	p.change(dataplane, func(x *observed) bool {
		before := x.ended
		x.ended = true
		if !before {
			p.o.Log.Info("the Envoy of a Dataplane has ended; its endpoints receive no traffic", "dataplane",
				dataplane.String(), "pid", pid)
		}
		return !before
	})
}

// Acked records that the Envoy of a Dataplane has acknowledged its inbounds, except those of the
// given ports.
func (p *Presence) Acked(dataplane resource.Key, missing []uint32) {
	p.change(dataplane, func(x *observed) bool {
		if !x.pending && !x.ended && slices.Equal(x.missing, missing) {
			return false
		}
		x.pending, x.ended, x.missing = false, false, missing
		return true
	})
}

// Drain takes the endpoints of a Dataplane out of use on all nodes, until [Presence.Undrain], or
// until a new Envoy of it connects. It returns when the state is in the store.
func (p *Presence) Drain(dataplane resource.Key) error { return p.setDrains(dataplane, true) }

// Undrain ends [Presence.Drain]. It returns when the state is in the store.
func (p *Presence) Undrain(dataplane resource.Key) error { return p.setDrains(dataplane, false) }

func (p *Presence) setDrains(dataplane resource.Key, drains bool) error {
	if _, local := owned(p.o.Store.Snapshot(), dataplane); !local {
		return fmt.Errorf("%s: %w", dataplane, ErrNotLocal)
	}
	p.change(dataplane, func(x *observed) bool { x.drains = drains; return true })
	return p.update()
}

// ErrNotLocal means that this node has no such Dataplane.
var ErrNotLocal = errors.New("this node has no such Dataplane; run the command on the node of its Envoy")

// Probe records the result of a probe of the workload at an inbound. A removed probe counts as
// successful.
func (p *Presence) Probe(dataplane resource.Key, port uint32, ok bool) {
	p.change(dataplane, func(x *observed) bool {
		if x.failing[port] != ok {
			return false
		}
		if ok {
			delete(x.failing, port)
		} else {
			x.fail(port)
		}
		return true
	})
}

func (x *observed) fail(port uint32) {
	if x.failing == nil {
		x.failing = map[uint32]bool{}
	}
	x.failing[port] = true
}

// change calls do with the observations of a Dataplane, and wakes Run if do returns true.
func (p *Presence) change(dataplane resource.Key, do func(x *observed) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !do(p.of(dataplane)) {
		return
	}
	p.dirty[dataplane] = true
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

// of returns the observations of a Dataplane. mu must be held.
func (p *Presence) of(dataplane resource.Key) *observed {
	x := p.all[dataplane]
	if x == nil {
		x = &observed{}
		p.all[dataplane] = x
	}
	return x
}

// state returns the merged state without its time, or nil if the Dataplane is ready.
func (x *observed) state() *resource.EndpointState {
	switch {
	case x.ended:
		return &resource.EndpointState{State: resource.EndpointEnded, Reason: reasonEnded, Process: x.process}
	case x.drains:
		return &resource.EndpointState{State: resource.EndpointDraining, Reason: reasonDraining, Process: x.process}
	case x.pending:
		return &resource.EndpointState{State: resource.EndpointUnready, Reason: reasonPending}
	case len(x.missing)+len(x.failing) > 0:
		reason := reasonProbe
		if len(x.missing) > 0 {
			reason = reasonPending
		}
		ports := slices.AppendSeq(slices.Clone(x.missing), maps.Keys(x.failing))
		slices.Sort(ports)
		return &resource.EndpointState{State: resource.EndpointUnready, Reason: reason, Inbounds: slices.Compact(ports)}
	}
	return nil
}

// put returns the change that stores the state of a Dataplane. mu must be held.
func (p *Presence) put(dataplane resource.Key, x *observed) (store.Op, bool) {
	state := x.state()
	if state == nil {
		return store.Op{}, false
	}
	state.Since = p.o.Now().UTC().Truncate(time.Second).Format(time.RFC3339)
	r, faults := p.o.Registry.Seal(&resource.Resource{Key: resource.EndpointStateOf(dataplane), Spec: state})
	if err := faults.Err(); err != nil {
		p.o.Log.Error("cannot store the state of a Dataplane", "dataplane", dataplane.String(), "error", err)
		return store.Op{}, false
	}
	return store.Op{Put: r, Source: store.Source{Kind: store.SourceNode}}, true
}

// Run writes changed states to the store until ctx ends, and deletes those of Dataplanes that this
// node no longer has.
func (p *Presence) Run(ctx context.Context) {
	changed, stop := p.o.Store.Watch()
	defer stop()
	for {
		if err := p.update(); err != nil {
			p.o.Log.Error("cannot store the states of Dataplanes", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-p.bell:
		}
	}
}

// update brings the store up to date.
func (p *Presence) update() error {
	p.writes.Lock()
	defer p.writes.Unlock()
	for range 8 {
		ops := p.plan()
		if len(ops) == 0 {
			return nil
		}
		_, err := p.o.Store.Apply(store.Batch{Source: store.Source{Kind: store.SourceNode}, Ops: ops})
		var conflict *store.ConflictError
		var gone *store.NotFoundError
		switch {
		case err == nil, errors.Is(err, store.ErrClosed):
			return nil
		case !errors.As(err, &conflict) && !errors.As(err, &gone):
			return fmt.Errorf("apply: %w", err)
		}
		p.mu.Lock() // another source was faster: plan the same again
		for i := range ops {
			key := ops[i].Delete
			if ops[i].Put != nil {
				key = ops[i].Put.Key
			}
			p.dirty[dataplaneOf(key)] = true
		}
		p.mu.Unlock()
	}
	return errors.New("other sources keep changing the states of this node's Dataplanes")
}

// plan returns the changes that bring the store up to date. writes must be held.
func (p *Presence) plan() (ops []store.Op) {
	snap := p.o.Store.Snapshot()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range snap.Diff(p.seen) {
		switch key.Kind {
		case kindDataplane:
			p.dirty[key] = true
		case resource.KindEndpointState:
			p.dirty[dataplaneOf(key)] = true
		}
	}
	p.seen = snap
	for _, key := range slices.SortedFunc(maps.Keys(p.dirty), resource.Key.Compare) {
		if op, ok := p.planOne(snap, key); ok {
			ops = append(ops, op)
		}
	}
	clear(p.dirty)
	return ops
}

// planOne returns the change that brings the record of one Dataplane up to date.
func (p *Presence) planOne(snap *store.Snapshot, key resource.Key) (op store.Op, ok bool) {
	have, stored := snap.Get(resource.EndpointStateOf(key))
	remove := store.Op{Delete: resource.EndpointStateOf(key)}
	known, local := owned(snap, key)
	x := p.all[key]
	switch {
	case !known && x != nil && x.pending: // its Dataplane is about to be stored
		return op, false
	case !local:
		delete(p.all, key)
		return remove, stored && have.Source.Kind == store.SourceNode
	case x == nil:
		return remove, stored
	}
	want := x.state()
	if want == nil {
		return remove, stored
	}
	if stored && have.Source.Kind == store.SourceNode && sameState(have.Spec, want) {
		return op, false
	}
	return p.put(key, x)
}

// sameState reports whether a stored state equals another one, except for its time.
func sameState(stored resource.Spec, s *resource.EndpointState) bool {
	have, ok := stored.(*resource.EndpointState)
	return ok && have.State == s.State && have.Reason == s.Reason && have.Process == s.Process &&
		slices.Equal(have.Inbounds, s.Inbounds)
}

// owned reports whether the store has a Dataplane, and whether it is of this node.
func owned(snap *store.Snapshot, dataplane resource.Key) (known, local bool) {
	rec, ok := snap.Get(dataplane)
	return ok, ok && rec.Source.Kind != store.SourcePeer
}
