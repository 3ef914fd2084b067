package metadata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/clip"
	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/store"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// MetadataDataplane is the field of the xDS node metadata that holds the proxy's own Dataplane as text, JSON or YAML.
const MetadataDataplane = "dataplane.resource"

// EnvoyOptions is what an [EnvoySource] needs. Registry and Store are required.
type Options struct {
	Registry *resource.Registry
	Store    *store.Store
	Log      *slog.Logger  // nil: nothing is logged
	Grace    time.Duration // that a Dataplane stays after the last stream of its node; default 30 s
	Bytes    int           // of a Dataplane in the metadata; default 64 KiB
	Nodes    int           // nodes with a Dataplane or annotations in their metadata at once; default 4096
	Changed  func()        // called when what proxies say that they reach has changed; must not block. Nil: nothing
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

// EnvoySource keeps the Dataplanes that Envoys bring in their node metadata in the store, as long as a stream of the
// node is open and for a grace time after it. Where a file or the API has a Dataplane of that name, that one holds
// until it is deleted. As long it keeps what the annotations in the metadata say that the proxy reaches, whoever has
// the Dataplane. It is an [xds.StreamHandler].
type Source struct {
	o    Options
	wake chan struct{} // one slot: a deadline was set

	putting sync.Mutex // taken before mu; held while a Dataplane is stored, so that the newest one is stored last

	mu    sync.Mutex
	nodes map[string]*envoyNode // by node id; those with a stream and those in their grace time

	sidecars atomic.Pointer[map[string]map[string]*resource.Reach] // by mesh and dataplane; immutable
}

type envoyNode struct {
	streams  int
	want     *resource.Resource // what its metadata says; nil when it says nothing, or before it came back
	conflict string             // why want is not in the store
	deadline time.Time          // end of the grace time; zero while a stream is open
	said     sidecarReach       // by its annotations
}

// NewEnvoySource returns a source in which the Dataplanes that an earlier run left in the store begin their grace time.
func New(o Options) *Source {
	s := &Source{o: o.withDefaults(), wake: make(chan struct{}, 1), nodes: map[string]*envoyNode{}}
	deadline := time.Now().Add(s.o.Grace)
	for _, r := range s.o.Store.Snapshot().BySource(store.SourceEnvoy) {
		s.nodes[r.Source.Detail] = &envoyNode{deadline: deadline}
	}
	return s
}

// Opened takes the Dataplane out of the node metadata, if there is one. Metadata that cannot be used refuses the
// stream with the reason; a Dataplane that another source owns does not.
func (s *Source) Opened(st xds.Stream) error {
	id := st.Key.ID
	want, err := s.decode(id, st.Node)
	if err != nil {
		s.o.Log.Warn("xds stream is refused", "node", id, "peer", st.Peer.String(), "error", err)
		return status.Error(codes.InvalidArgument, clip.Text(err.Error(), maxStatusBytes))
	}
	said := reachOf(st.Node)
	for _, f := range said.faults {
		s.o.Log.Warn("an annotation of a node cannot be used", "node", id, "reason", f.String())
	}
	if err := s.join(id, want, said); err != nil {
		return err
	}
	if want == nil {
		return nil
	}
	if err := s.put(id); err != nil {
		s.leave(id)
		s.o.Log.Error("the Dataplane of a node cannot be stored", "node", id, "error", err)
		return status.Errorf(codes.Unavailable, "node %q: its Dataplane cannot be stored: %v", id, err)
	}
	return nil
}

// Closed begins the grace time when it was the last stream of its node.
func (s *Source) Closed(st xds.Stream) { s.leave(st.Key.ID) }

// maxStatusBytes bounds a refusal, since gRPC sends it in a header.
const maxStatusBytes = 2048

// decode returns the Dataplane in the metadata, nil when there is none.
func (s *Source) decode(id string, n *core.Node) (*resource.Resource, error) {
	v := n.GetMetadata().GetFields()[MetadataDataplane]
	if v == nil {
		return nil, nil
	}
	t, ok := v.GetKind().(*structpb.Value_StringValue)
	if !ok {
		return nil, fmt.Errorf("node %q: metadata field %q is not a text; put the Dataplane there as one text of JSON or YAML", id, MetadataDataplane)
	}
	if len(t.StringValue) > s.o.Bytes {
		return nil, fmt.Errorf("node %q: metadata field %q has %d bytes; at most %d are allowed", id, MetadataDataplane, len(t.StringValue), s.o.Bytes)
	}
	rs, faults := s.o.Registry.Decode("metadata "+MetadataDataplane, []byte(t.StringValue))
	if err := faults.Err(); err != nil {
		return nil, fmt.Errorf("node %q: %w", id, err)
	}
	if len(rs) != 1 {
		return nil, fmt.Errorf("node %q: metadata field %q holds %d resources; want one Dataplane", id, MetadataDataplane, len(rs))
	}
	r := rs[0]
	if r.Kind != "Dataplane" {
		return nil, fmt.Errorf("node %q: metadata field %q holds a %s; want a Dataplane", id, MetadataDataplane, r.Kind)
	}
	if own := r.Mesh + "." + r.Name; own != id {
		return nil, fmt.Errorf("node %q: metadata field %q holds the Dataplane %q of mesh %q, whose node id is %q; let the two agree", id, MetadataDataplane, r.Name, r.Mesh, own)
	}
	return r, nil
}

// join counts a stream in.
func (s *Source) join(id string, want *resource.Resource, said sidecarReach) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil {
		if len(s.nodes) >= s.o.Nodes && (want != nil || said.reach != nil || said.faults != nil) {
			return status.Errorf(codes.ResourceExhausted, "node %q: %d nodes are known already, which is the most; try again later", id, len(s.nodes))
		}
		n = &envoyNode{}
		s.nodes[id] = n
	}
	n.streams++
	n.deadline = time.Time{}
	if want != nil {
		n.want = want
	}
	n.said = said.over(n.said)
	s.publishReach()
	return nil
}

// leave counts a stream out.
func (s *Source) leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil {
		return
	}
	if n.streams--; n.streams > 0 {
		return
	}
	if _, ok := s.owned(id); !ok && n.said.reach == nil {
		delete(s.nodes, id)
		return
	}
	n.deadline = time.Now().Add(s.o.Grace)
	s.signal()
}

// owned returns the key of the Dataplane that the store has from this node.
func (s *Source) owned(id string) (resource.Key, bool) {
	mesh, name, err := node.ParseID(id)
	if err != nil {
		return resource.Key{}, false
	}
	k := resource.Key{Kind: "Dataplane", Mesh: mesh, Name: name}
	rec, ok := s.o.Store.Snapshot().Get(k)
	return k, ok && rec.Source == envoyOf(id)
}

func envoyOf(id string) store.Source { return store.Source{Kind: store.SourceEnvoy, Detail: id} }

// put stores what the newest stream of a node wants, or notes who owns it.
func (s *Source) put(id string) error {
	s.putting.Lock()
	defer s.putting.Unlock()
	s.mu.Lock()
	n := s.nodes[id]
	if n == nil || n.want == nil || n.streams == 0 {
		s.mu.Unlock()
		return nil
	}
	want := n.want
	s.mu.Unlock()

	_, err := s.o.Store.Apply(store.Batch{Source: envoyOf(id), Author: id, Ops: []store.Op{{Put: want}}})
	var conflict *store.ConflictError
	if err != nil && !errors.As(err, &conflict) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n = s.nodes[id]; n == nil {
		// The last stream has ended meanwhile, and found nothing to wait for.
		s.nodes[id] = &envoyNode{deadline: time.Now().Add(s.o.Grace)}
		s.signal()
		return nil
	}
	why := ""
	if conflict != nil {
		why = conflict.Error()
	}
	if why != "" && why != n.conflict {
		s.o.Log.Warn("the Dataplane in the metadata of a node is not used: another source has it", "node", id, "reason", why)
	}
	n.conflict = why
	return nil
}

// signal lets Run look at the deadlines.
func (s *Source) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Problems lists the Dataplanes that are not used because another source has them, sorted, and the annotations that
// cannot be.
func (s *Source) Problems() []inspect.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []inspect.Problem
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		if n := s.nodes[id]; n.conflict != "" {
			out = append(out, inspect.Problem{Resource: n.want.Key.String(), Severity: inspect.SeverityWarning,
				Reason: "the Dataplane in the node metadata of its Envoy is not used: " + n.conflict})
		}
	}
	return s.reachProblems(out)
}

// Run deletes Dataplanes at the end of their grace time and brings in those that another source has given up, until
// ctx ends.
func (s *Source) Run(ctx context.Context) {
	changed, stop := s.o.Store.Watch()
	defer stop()
	s.retry()
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			s.retry()
			continue
		case <-s.wake:
		case <-t.C:
		}
		if next := s.expire(time.Now()); !next.IsZero() {
			t.Reset(time.Until(next))
		}
	}
}

// expire deletes what has outlived its grace time and returns the next deadline, zero when there is none. The lock is
// held meanwhile, so that a stream that opens now is counted either before or after.
func (s *Source) expire(now time.Time) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[id]
		switch {
		case n.deadline.IsZero():
			continue
		case n.deadline.After(now):
			if next.IsZero() || n.deadline.Before(next) {
				next = n.deadline
			}
			continue
		}
		if k, ok := s.owned(id); ok {
			if _, err := s.o.Store.Apply(store.Batch{Source: envoyOf(id), Author: id, Ops: []store.Op{{Delete: k}}}); err != nil {
				s.o.Log.Error("the Dataplane of a node that is gone cannot be deleted", "node", id, "error", err)
			} else {
				s.o.Log.Info("the Dataplane of a node that is gone is deleted", "node", id, "grace", s.o.Grace)
			}
		}
		delete(s.nodes, id)
	}
	s.publishReach()
	return next
}

// retry stores the Dataplanes that could not be stored before.
func (s *Source) retry() {
	var again []string
	s.mu.Lock()
	for id, n := range s.nodes {
		if n.conflict == "" || n.streams == 0 {
			continue
		}
		if _, taken := s.o.Store.Snapshot().Get(n.want.Key); !taken {
			again = append(again, id)
		}
	}
	s.mu.Unlock()
	for _, id := range again {
		if err := s.put(id); err != nil {
			s.o.Log.Error("the Dataplane of a node cannot be stored", "node", id, "error", err)
		}
	}
}
