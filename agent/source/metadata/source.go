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

// MetadataDataplane is the field of the xDS node metadata that contains the proxy's Dataplane as a
// JSON or YAML string.
const MetadataDataplane = "dataplane.resource"

// Options configures a [Source]. Registry and Store are required.
type Options struct {
	Registry *resource.Registry
	Store    *store.Store
	Log      *slog.Logger  // nil: no logs
	Grace    time.Duration // time a Dataplane stays after the last stream of its node; default 30 s
	Bytes    int           // limit of a Dataplane in the metadata; default 64 KiB
	Nodes    int           // maximum number of nodes with a Dataplane or annotations in their metadata; default 4096
	// Announce returns a change to apply together with the one that first stores a Dataplane. Nil:
	// there is none.
	Announce func(dataplane *resource.Resource) (store.Op, bool)
	Changed  func() // called when the result of Sidecars or Awaited has changed; must not block. Nil: not called
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

// Source stores the Dataplanes in the node metadata of Envoys while a stream of the node is open,
// and for a grace time afterwards. A Dataplane with the same name from a file or the API takes
// precedence until it is deleted. For the same time, Source remembers the reachability annotations
// in the metadata, regardless of the source of the Dataplane. It is an [ads.StreamHandler].
//
// Streams only update the state of their nodes. [Source.Run] applies that state to the store, for
// all nodes in one batch. Only its goroutine waits for the store.
type Source struct {
	o    Options
	bell chan struct{} // one slot: the store may need an update

	mu    sync.Mutex
	nodes map[string]*envoyNode // by node ID; includes nodes in their grace time

	published atomic.Pointer[published]
}

type envoyNode struct {
	streams  int
	want     *resource.Resource // Dataplane in its metadata; nil if there is none, or before the node reconnects
	awaited  bool               // want is not in the store yet
	unused   string             // why want is not in the store, or ""
	refused  string             // value of unused if the store cannot accept want
	deadline time.Time          // end of the grace time; zero while a stream is open
	grace    time.Time          // end of the grace time of the last stream that was not refused
	sidecar  sidecarReach       // its annotations
}

// published is the state that passes read. It is immutable.
type published struct {
	sidecars map[string]map[string]*resource.Reach // by mesh and dataplane
	awaited  map[string]bool
	problems []api.Problem
}

// New returns a source. The grace time of Dataplanes that an earlier run stored starts now.
func New(o Options) *Source {
	s := &Source{o: o.withDefaults(), bell: make(chan struct{}, 1), nodes: map[string]*envoyNode{}}
	s.published.Store(&published{})
	deadline := time.Now().Add(s.o.Grace)
	for _, r := range s.o.Store.Snapshot().BySource(store.SourceEnvoy) {
		s.nodes[r.Source.Detail] = &envoyNode{deadline: deadline, grace: deadline}
	}
	return s
}

// Opened handles the Dataplane in the node metadata, if there is one. Invalid metadata refuses the
// stream with the reason; a Dataplane that another source owns does not.
func (s *Source) Opened(st access.Stream) error {
	id := st.Key.ID
	want, err := s.decode(id, st.Node)
	if err != nil {
		s.o.Log.Warn("xDS stream refused", "node", id, "peer", st.Peer.String(), "error", err)
		return status.Error(codes.InvalidArgument, clip.Text(err.Error(), maxStatusBytes))
	}
	if want, err = s.admit(st, want); err != nil {
		return err
	}
	sidecar := reachOf(st.Node)
	for _, f := range sidecar.faults {
		s.o.Log.Warn("an annotation of a node is invalid", "node", id, "reason", f.String())
	}
	return s.join(id, want, sidecar)
}

// Closed starts the grace time if this was the last stream of its node. A refused stream has no
// grace time, unless earlier streams of the node had one.
func (s *Source) Closed(st access.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[st.Key.ID]
	if n == nil {
		return
	}
	now := time.Now()
	if !st.Refused {
		n.grace = now.Add(s.o.Grace)
	}
	if n.streams--; n.streams == 0 {
		if n.deadline = n.grace; n.grace.Before(now) {
			n.deadline = now
		}
		s.ring()
	}
}

// join adds a stream. When it returns, the annotations are in effect, before the proxy gets a
// config.
func (s *Source) join(id string, want *resource.Resource, sidecar sidecarReach) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil {
		if len(s.nodes) >= s.o.Nodes && (want != nil || sidecar.reach != nil || sidecar.faults != nil || sidecar.unified) {
			return status.Errorf(codes.ResourceExhausted,
				"node %q: the limit of %d nodes is reached; try again later", id, len(s.nodes))
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
	before := n.sidecar
	if n.sidecar = sidecar.merge(before); n.awaited != wasAwaited || n.sidecar.reach != before.reach ||
		n.sidecar.unified != before.unified || len(n.sidecar.faults)+len(before.faults) > 0 {
		s.publish()
	}
	s.ring()
	return nil
}

// ring wakes Run.
func (s *Source) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// keyOf returns the key of the Dataplane that a node with this ID may provide.
func keyOf(id string) (resource.Key, bool) {
	mesh, name, err := node.ParseID(id)
	return resource.Key{Kind: kindDataplane, Mesh: mesh, Name: name}, err == nil
}

const kindDataplane = "Dataplane"

func envoyOf(id string) store.Source { return store.Source{Kind: store.SourceEnvoy, Detail: id} }

// Run updates the store until ctx ends: it stores Dataplanes, deletes them at the end of their
// grace time, and stores those that another source has released.
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

// update applies the state of the nodes to the store. It returns the next end of a grace time, or
// zero.
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
			continue // another source was faster; plan again
		}
		if errors.Is(err, store.ErrClosed) {
			return time.Time{}
		}
		for _, op := range ops {
			if err != nil { // one failing change must not block the others
				_, err := s.o.Store.Apply(batch([]store.Op{op}))
				s.applied(op, err)
			} else {
				s.applied(op, nil)
			}
		}
		return next
	}
	s.ring() // other sources keep changing the same Dataplanes
	return next
}

func batch(ops []store.Op) store.Batch {
	return store.Batch{Source: store.Source{Kind: store.SourceEnvoy}, Ops: ops}
}

// plan returns the changes that bring the store up to date, and removes nodes that are gone.
func (s *Source) plan(now time.Time) (ops []store.Op, next time.Time) {
	type report struct{ id, why string }
	var unused []report
	defer func() {
		for _, u := range unused {
			s.o.Log.Warn("the Dataplane in a node's metadata is not used: another source has it",
				"node", u.id, "reason", u.why)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.o.Store.Snapshot()
	before := len(s.nodes)
	republish := false
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
			if !own && (stored || n.want == nil) { // nothing of it can be deleted later
				if n.want = nil; n.sidecar.reach == nil {
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
			if s.o.Announce != nil && !stored {
				if op, ok := s.o.Announce(n.want); ok {
					ops = append(ops, op)
				}
			}
			awaited = true
		}
		republish = republish || why != n.unused || awaited != n.awaited
		n.unused, n.awaited = why, awaited
	}
	if republish || len(s.nodes) != before {
		s.publish()
	}
	return ops, next
}

// applied handles the result of a change.
func (s *Source) applied(op store.Op, err error) {
	id := op.Author
	switch {
	case id == "": // of Announce
	case op.Put == nil && err == nil:
		s.o.Log.Info("deleted the Dataplane of a disconnected node", "node", id, "grace", s.o.Grace)
	case op.Put == nil:
		s.o.Log.Error("cannot delete the Dataplane of a disconnected node", "node", id, "error", err)
	case err != nil:
		s.o.Log.Error("cannot store the Dataplane of a node", "node", id, "error", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.nodes[id]; n != nil && n.want == op.Put {
			n.refused = "it cannot be stored: " + err.Error()
			n.unused, n.awaited = n.refused, false
			s.publish()
		}
	}
}

// Awaited returns the IDs of nodes whose Dataplane is neither stored nor rejected yet. Callers must
// not modify the map.
func (s *Source) Awaited() map[string]bool { return s.published.Load().awaited }

// Problems returns Dataplanes that are not used because another source has them, proxies that
// expect unified resource naming, and invalid
// annotations, sorted. Callers must not modify the slice.
func (s *Source) Problems() []api.Problem { return s.published.Load().problems }

// Fields returns the paths of the node metadata fields that a [Source] reads, for
// [ads.ServerOptions].
func Fields() [][]string {
	return [][]string{
		{MetadataDataplane},
		{MetadataAnnotations, resource.AnnotationReachableBackends},
		{MetadataAnnotations, resource.AnnotationReachableServices},
		{MetadataAnnotations, resource.AnnotationHTTPProbes},
	}
}
