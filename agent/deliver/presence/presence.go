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
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Options configures a [Presence]. Registry and Store are required.
type Options struct {
	Registry *resource.Registry // with the internal kinds
	Store    *store.Store
	Log      *slog.Logger     // nil: no logs
	Now      func() time.Time // nil: time.Now
	// Watch calls ended once the process of a pidfd has ended. Nil: the ends of Envoys are not
	// noticed.
	Watch func(pidfd *os.File, ended func()) error
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
		x := &observed{}
		x.restore(state)
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
func (p *Presence) Announce(dataplane *resource.Resource) (store.Op, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.of(dataplane.Key)
	p.dirty[dataplane.Key] = true
	x.pending = !x.reported()
	dp, _ := dataplane.Spec.(*resource.Dataplane)
	return p.put(dataplane.Key, x, dp)
}

// Opened records a stream of a proxy. The process of its peer is watched from now on.
func (p *Presence) Opened(st access.Stream) error {
	dataplane, ok := dataplaneOfStream(st)
	if !ok {
		return nil
	}
	watch := false
	id := processOf(st)
	p.change(dataplane, func(x *observed) bool {
		drained := x.drains
		watch = x.begin(id)
		if st.Key.Flavor != node.FlavorEnvoy {
			x.every, x.pending, x.ended = true, false, false
			return true
		}
		return drained != x.drains
	})
	if watch && p.o.Watch != nil {
		if err := p.o.Watch(st.Peer.Process.Pidfd, func() { p.Ended(dataplane, id) }); err != nil {
			p.o.Log.Warn("the end of an Envoy will not be noticed", "dataplane", dataplane.String(), "process", id, "error", err)
		}
	}
	return nil
}

// Closed records the end of a stream for which [Presence.Opened] was called. Its Envoy may still
// run.
func (p *Presence) Closed(st access.Stream) {
	dataplane, ok := dataplaneOfStream(st)
	if !ok || processOf(st) != "" {
		return
	}
	p.change(dataplane, func(x *observed) bool { x.leave(); return false })
}

func processOf(st access.Stream) string {
	if st.Peer.Process == nil {
		return ""
	}
	return st.Peer.Process.ID
}

// dataplaneOfStream returns the Dataplane of a stream, and false for zone proxies.
func dataplaneOfStream(st access.Stream) (resource.Key, bool) {
	ref, err := node.ParseRef(st.Key.ID)
	return ref.Key(), err == nil && ref.Type == node.ProxyDataplane
}

// Ended records that a process that has opened a stream of a Dataplane has ended.
func (p *Presence) Ended(dataplane resource.Key, process string) {
	p.change(dataplane, func(x *observed) bool {
		if !x.end(process) {
			return false
		}
		p.o.Log.Info("the Envoy of a Dataplane has ended", "dataplane", dataplane.String(), "process", process)
		return true
	})
}

// Acked records the inbound listeners that an Envoy of a Dataplane has acknowledged, with
// everything to which they refer. The process is "" if it is not known.
func (p *Presence) Acked(dataplane resource.Key, process string, listeners []string) {
	p.change(dataplane, func(x *observed) bool { x.accept(process, listeners); return true })
}

// Drain takes the endpoints of a Dataplane out of use on all nodes, until [Presence.Undrain], or,
// without untilUndo, until a new Envoy of it connects. It returns when the state is in the store.
func (p *Presence) Drain(dataplane resource.Key, untilUndo bool) error {
	return p.setDrains(dataplane, true, untilUndo)
}

// Undrain ends [Presence.Drain]. It returns when the state is in the store.
func (p *Presence) Undrain(dataplane resource.Key) error { return p.setDrains(dataplane, false, false) }

func (p *Presence) setDrains(dataplane resource.Key, drains, untilUndo bool) error {
	if _, local := owned(p.o.Store.Snapshot(), dataplane); !local {
		return fmt.Errorf("%s: %w", dataplane, ErrNotLocal)
	}
	p.change(dataplane, func(x *observed) bool {
		x.drains, x.keeps = drains, drains && (x.keeps || untilUndo)
		return true
	})
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

// put returns the change that stores the state of a Dataplane. mu must be held.
func (p *Presence) put(dataplane resource.Key, x *observed, dp *resource.Dataplane) (store.Op, bool) {
	state := x.state(dp)
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
		var retry <-chan time.Time
		if err := p.update(); err != nil {
			p.o.Log.Error("cannot store the states of Dataplanes; repeating it", "after", retryAfter, "error", err)
			retry = time.After(retryAfter)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-p.bell:
		case <-retry:
		}
	}
}

// retryAfter is the delay before a failed update of the store is repeated.
const retryAfter = time.Second

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
		if err == nil || errors.Is(err, store.ErrClosed) {
			return nil
		}
		p.mu.Lock() // the next plan has these changes again
		for i := range ops {
			key := ops[i].Delete
			if ops[i].Put != nil {
				key = ops[i].Put.Key
			}
			p.dirty[dataplaneOf(key)] = true
		}
		p.mu.Unlock()
		if !errors.As(err, &conflict) && !errors.As(err, &gone) { // otherwise another source was faster
			return fmt.Errorf("apply: %w", err)
		}
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
			if x := p.all[key]; p.seen != nil && x != nil && len(x.envoys) > 0 && isNew(snap, p.seen, key) {
				x.pending = !x.reported()
			}
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

// isNew reports whether a snapshot has a resource that an earlier one does not have.
func isNew(snap, earlier *store.Snapshot, key resource.Key) bool {
	_, had := earlier.Get(key)
	_, has := snap.Get(key)
	return has && !had
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
		p.forget(key)
		return remove, stored && have.Source.Kind == store.SourceNode
	case x == nil:
		return remove, stored
	}
	rec, _ := snap.Get(key)
	dp, _ := rec.Spec.(*resource.Dataplane)
	want := x.state(dp)
	if want == nil {
		return remove, stored
	}
	if stored && have.Source.Kind == store.SourceNode && sameState(have.Spec, want) {
		return op, false
	}
	return p.put(key, x, dp)
}

// forget drops the observations of a Dataplane that this node no longer has, but not its Envoys.
func (p *Presence) forget(dataplane resource.Key) {
	x := p.all[dataplane]
	if x == nil {
		return
	}
	if len(x.envoys) == 0 || x.anonymous == 0 && len(x.envoys) == 1 && x.envoys[""] != nil {
		delete(p.all, dataplane)
		return
	}
	p.all[dataplane] = &observed{envoys: x.envoys, anonymous: x.anonymous, closed: x.closed, process: x.process,
		every: x.every}
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
