package metadata

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// MetadataDataplane is the field of the xDS node metadata that holds the proxy's own Dataplane as
// text, JSON or YAML.
const MetadataDataplane = "dataplane.resource"

// Options is what a [Source] needs. Registry and Store are required.
type Options struct {
	Registry *resource.Registry
	Store    *store.Store
	Log      *slog.Logger  // nil: nothing is logged
	Grace    time.Duration // that a Dataplane stays after the last stream of its node; default 30 s
	Bytes    int           // of a Dataplane in the metadata; default 64 KiB
	Nodes    int           // nodes with a Dataplane or annotations in their metadata at once; default 4096
	Changed  func()        // called when what Sidecars or Awaited returns has changed; must not block. Nil: nothing
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Grace = cmp.Or(o.Grace, 30*time.Second)
	o.Bytes = cmp.Or(o.Bytes, 64<<10)
	o.Nodes = cmp.Or(o.Nodes, 4096)
	return o
}

// Source has the Dataplanes that Envoys bring in their node metadata stored as long as a stream of
// the node is open, and for a grace time after it. Where a file or the API has a Dataplane of that
// name, that one takes precedence until it is deleted. For the same time it remembers what the
// annotations in the metadata say that the proxy reaches, whoever has the Dataplane. It is an
// [ads.StreamHandler].
//
// Streams only change what is known of their nodes. One goroutine, [Source.Run], brings the store
// in line with that, all nodes in one batch. Nothing waits for the store but that goroutine.
type Source struct {
	o    Options
	bell chan struct{} // one slot: the store has to be looked at

	mu    sync.Mutex
	nodes map[string]*envoyNode // by node id; those with a stream and those in their grace time

	known atomic.Pointer[known]
}

type envoyNode struct {
	streams  int
	want     *resource.Resource // what its metadata says; nil when it says nothing, or before it came back
	awaited  bool               // want is on its way to the store
	unused   string             // why want is not in the store; "" without want
	refused  string             // unused, where the store cannot take want
	deadline time.Time          // end of the grace time; zero while a stream is open
	said     sidecarReach       // by its annotations
}

// known is what passes read. It is immutable.
type known struct {
	sidecars map[string]map[string]*resource.Reach // by mesh and dataplane
	awaited  map[string]bool
	problems []api.Problem
}

// New returns a source in which the Dataplanes that an earlier run left in the store begin their
// grace time.
func New(o Options) *Source {
	s := &Source{o: o.withDefaults(), bell: make(chan struct{}, 1), nodes: map[string]*envoyNode{}}
	s.known.Store(&known{})
	deadline := time.Now().Add(s.o.Grace)
	for _, r := range s.o.Store.Snapshot().BySource(store.SourceEnvoy) {
		s.nodes[r.Source.Detail] = &envoyNode{deadline: deadline}
	}
	return s
}

// Opened takes the Dataplane out of the node metadata, if there is one. Metadata that cannot be
// used refuses the stream with the reason; a Dataplane that another source owns does not.
func (s *Source) Opened(st access.Stream) error {
	id := st.Key.ID
	want, err := s.decode(id, st.Node)
	if err != nil {
		s.o.Log.Warn("xds stream is refused", "node", id, "peer", st.Peer.String(), "error", err)
		return status.Error(codes.InvalidArgument, clip.Text(err.Error(), maxStatusBytes))
	}
	if want, err = s.admit(st, want); err != nil {
		return err
	}
	said := reachOf(st.Node)
	for _, f := range said.faults {
		s.o.Log.Warn("an annotation of a node cannot be used", "node", id, "reason", f.String())
	}
	return s.join(id, want, said)
}

// Closed begins the grace time when it was the last stream of its node.
func (s *Source) Closed(st access.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[st.Key.ID]
	if n == nil {
		return
	}
	if n.streams--; n.streams == 0 {
		n.deadline = time.Now().Add(s.o.Grace)
		s.ring()
	}
}

// join counts a stream in. What it says of its reach is known when join returns, before the proxy
// gets a config.
func (s *Source) join(id string, want *resource.Resource, said sidecarReach) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil {
		if len(s.nodes) >= s.o.Nodes && (want != nil || said.reach != nil || said.faults != nil) {
			return status.Errorf(codes.ResourceExhausted,
				"node %q: %d nodes are known already, which is the most; try again later", id, len(s.nodes))
		}
		n = &envoyNode{}
		s.nodes[id] = n
	}
	n.streams++
	n.deadline = time.Time{}
	wasAwaited := n.awaited
	if want != nil {
		n.want, n.refused = want, ""
		key, _ := keyOf(id)
		rec, stored := s.o.Store.Snapshot().Get(key)
		n.awaited = wasAwaited || !stored || rec.Source == envoyOf(id) && rec.Digest != want.Digest
	}
	before := n.said
	if n.said = said.over(before); n.awaited != wasAwaited || n.said.reach != before.reach ||
		len(n.said.faults)+len(before.faults) > 0 {
		s.publish()
	}
	s.ring()
	return nil
}

// ring has Run look at the nodes.
func (s *Source) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// keyOf returns the key of the Dataplane that a node with that id may bring.
func keyOf(id string) (resource.Key, bool) {
	mesh, name, err := node.ParseID(id)
	return resource.Key{Kind: kindDataplane, Mesh: mesh, Name: name}, err == nil
}

const kindDataplane = "Dataplane"

func envoyOf(id string) store.Source { return store.Source{Kind: store.SourceEnvoy, Detail: id} }

// Run stores Dataplanes, deletes them at the end of their grace time, and stores those that another
// source has given up, until ctx ends.
func (s *Source) Run(ctx context.Context) {
	changed, stop := s.o.Store.Watch()
	defer stop()
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		if next := s.update(); !next.IsZero() {
			t.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-s.bell:
		case <-t.C:
		}
	}
}

// update brings the store in line with the nodes and returns the next end of a grace time, zero
// when there is none.
func (s *Source) update() (next time.Time) {
	for range 8 {
		var ops []store.Op
		ops, next = s.plan(time.Now())
		if len(ops) == 0 {
			return next
		}
		_, err := s.o.Store.Apply(batch(ops))
		var conflict *store.ConflictError
		if errors.As(err, &conflict) {
			continue // another source was faster: the plan is made anew
		}
		if errors.Is(err, store.ErrClosed) {
			return time.Time{}
		}
		for _, op := range ops {
			if err != nil { // one that cannot be stored does not hold up the others
				_, err := s.o.Store.Apply(batch([]store.Op{op}))
				s.applied(op, err)
			} else {
				s.applied(op, nil)
			}
		}
		return next
	}
	s.ring() // other sources change the same Dataplanes all the time
	return next
}

func batch(ops []store.Op) store.Batch {
	return store.Batch{Source: store.Source{Kind: store.SourceEnvoy}, Ops: ops}
}

// plan returns the changes that lead from the store to the nodes, and forgets nodes that are gone.
func (s *Source) plan(now time.Time) (ops []store.Op, next time.Time) {
	type report struct{ id, why string }
	var unused []report
	defer func() {
		for _, u := range unused {
			s.o.Log.Warn("the Dataplane in the metadata of a node is not used: another source has it",
				"node", u.id, "reason", u.why)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.o.Store.Snapshot()
	before := len(s.nodes)
	said := false // something that is published has changed
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[id]
		key, ok := keyOf(id)
		rec, stored := snap.Get(key)
		own := ok && stored && rec.Source == envoyOf(id)
		switch {
		case n.deadline.IsZero():
		case !n.deadline.After(now):
			delete(s.nodes, id)
			if own {
				ops = append(ops, store.Op{Delete: key, Source: rec.Source, Author: id})
			}
			continue
		default:
			if !own && (stored || n.want == nil) { // nothing of it is left that could be deleted later
				if n.want = nil; n.said.reach == nil {
					delete(s.nodes, id)
					continue
				}
			}
			if next.IsZero() || n.deadline.Before(next) {
				next = n.deadline
			}
		}
		why, awaited := "", false
		switch {
		case n.want == nil:
		case n.refused != "":
			why = n.refused
		case stored && !own:
			why = (&store.ConflictError{Conflicts: []store.Conflict{{Key: key, Owner: rec.Source, Wanted: envoyOf(id)}}}).Error()
			if why != n.unused {
				unused = append(unused, report{id, why})
			}
		case !stored || rec.Digest != n.want.Digest:
			ops = append(ops, store.Op{Put: n.want, Source: envoyOf(id), Author: id})
			awaited = true
		}
		said = said || why != n.unused || awaited != n.awaited
		n.unused, n.awaited = why, awaited
	}
	if said || len(s.nodes) != before {
		s.publish()
	}
	return ops, next
}

// applied takes note of what became of a change.
func (s *Source) applied(op store.Op, err error) {
	id := op.Author
	switch {
	case op.Put == nil && err == nil:
		s.o.Log.Info("the Dataplane of a node that is gone is deleted", "node", id, "grace", s.o.Grace)
	case op.Put == nil:
		s.o.Log.Error("the Dataplane of a node that is gone cannot be deleted", "node", id, "error", err)
	case err != nil:
		s.o.Log.Error("the Dataplane of a node cannot be stored", "node", id, "error", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.nodes[id]; n != nil && n.want == op.Put {
			n.refused = "it cannot be stored: " + err.Error()
			n.unused, n.awaited = n.refused, false
			s.publish()
		}
	}
}

// Awaited returns the ids of the nodes whose Dataplane is on its way to the store. It is in the
// store, or it is known what hinders it, once its node is not among them any more. The map must not
// be changed.
func (s *Source) Awaited() map[string]bool { return s.known.Load().awaited }

// Problems lists the Dataplanes that are not used because another source has them, sorted, and the
// annotations that cannot be used. The list must not be changed.
func (s *Source) Problems() []api.Problem { return s.known.Load().problems }

// Fields returns the paths of the fields of the node metadata that a [Source] reads, for
// [ads.ServerOptions].
func Fields() [][]string {
	return [][]string{
		{MetadataDataplane},
		{MetadataAnnotations, resource.AnnotationReachableBackends},
		{MetadataAnnotations, resource.AnnotationReachableServices},
	}
}
