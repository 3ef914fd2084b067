package metadata_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/metadata"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// stalling is a store whose writes can be blocked.
type stalling struct {
	*store.Store
	gate chan chan struct{} // one slot: the next write waits for the channel
	in   chan struct{}      // a write is waiting
}

func newStalling(t *testing.T) *stalling {
	t.Helper()
	s := &stalling{gate: make(chan chan struct{}, 1), in: make(chan struct{}, 1)}
	var err error
	s.Store, err = store.Open(store.Options{Now: func() time.Time {
		select {
		case open := <-s.gate:
			s.in <- struct{}{}
			<-open
		default:
		}
		return time.Now()
	}})
	agenttest.Do(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// stall blocks the next write until release is called or the test ends.
func (s *stalling) stall(t *testing.T) (release func()) {
	t.Helper()
	open := make(chan struct{})
	s.gate <- open
	release = sync.OnceFunc(func() { close(open) })
	t.Cleanup(release)
	return release
}

func run(t *testing.T, e *metadata.Source) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(t.Context()) }()
	t.Cleanup(func() { <-ended })
}

// soon fails the test if fn does not return.
func soon(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(agenttest.Patience):
		t.Fatalf("%s waits for the store", what)
	}
}

// TestStreamEndsWhileStoreStalls closes the last stream of a node and opens one without metadata,
// while the store blocks on an API write that conflicts with the Dataplane of the first stream.
func TestStreamEndsWhileStoreStalls(t *testing.T) {
	s := newStalling(t)
	e := newEnvoys(s.Store, nil)
	text := agenttest.DataplaneText("default", "web", "10.9.9.9")
	web := stream(t, "default.web", agenttest.DataplaneText("default", "web", "10.0.0.1"))
	agenttest.ByAPI(t, s.Store, text)
	agenttest.Do(t, e.Opened(web))
	_, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
		Ops: []store.Op{{Delete: agenttest.WebKey}}})
	agenttest.Do(t, err)

	release := s.stall(t)
	put := store.Op{Put: agenttest.Decoded(t, text)[0]}
	output := make(chan error, 1)
	go func() {
		_, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true, Ops: []store.Op{put}})
		output <- err
	}()
	<-s.in
	run(t, e)
	<-time.After(50 * time.Millisecond) // the source now tries to write
	e.Closed(web)
	agenttest.Do(t, e.Opened(stream(t, "default.web", nil)))
	release()
	agenttest.Do(t, <-output)
	agenttest.Eventually(t, "one problem", func() bool { return len(e.Problems()) == 1 })
	if got := agenttest.Has(s.Store); got != "api 10.9.9.9" {
		t.Errorf("the store has %q", got)
	}
}

// TestNobodyWaitsForStore blocks the store while the Dataplane of a disconnected node is being
// deleted. Streams still open and close, and passes read the state.
func TestNobodyWaitsForStore(t *testing.T) {
	s := newStalling(t)
	e := newEnvoys(s.Store, func(o *metadata.Options) { o.Grace = time.Millisecond })
	run(t, e)
	web := stream(t, "default.web", agenttest.DataplaneText("default", "web", "10.0.0.1"))
	other := stream(t, "default.other", agenttest.DataplaneText("default", "other", "10.0.0.2"))
	changed, stop := s.Watch()
	defer stop()
	agenttest.Do(t, e.Opened(web))
	agenttest.Await(t, "the Dataplane is stored", changed, func() bool { return agenttest.Has(s.Store) != "" })
	release := s.stall(t)
	e.Closed(web)
	<-s.in // the deletion waits
	soon(t, "Problems", func() { e.Problems() })
	soon(t, "Sidecars", func() { e.Sidecars("default") })
	soon(t, "a stream that opens", func() { agenttest.Do(t, e.Opened(other)) })
	soon(t, "a stream that ends", func() { e.Closed(other) })
	release()
	agenttest.Await(t, "the Dataplanes are gone", changed, func() bool { return s.Snapshot().Len() == 0 })
}

// TestManyNodesAreOneBatch checks that many nodes that connect or disconnect at once are one change
// of the store.
func TestManyNodesAreOneBatch(t *testing.T) {
	s := newStalling(t)
	e := newEnvoys(s.Store, func(o *metadata.Options) { o.Grace = time.Millisecond })
	const n = 50
	var streams []access.Stream
	changed, stop := s.Watch()
	defer stop()
	for i := range n {
		name := fmt.Sprintf("n%02d", i)
		st := stream(t, "default."+name, agenttest.DataplaneText("default", name, "10.0.0.1"))
		agenttest.Do(t, e.Opened(st))
		streams = append(streams, st)
	}
	run(t, e)
	agenttest.Await(t, "the Dataplanes are stored", changed, func() bool { return s.Snapshot().Len() > 0 })
	if got := s.Snapshot(); got.Len() != n || got.Records()[0].Author != "default.n00" {
		t.Errorf("%d Dataplanes after one step, the first by %q", got.Len(), got.Records()[0].Author)
	}
	release := s.stall(t)
	other := store.Op{Put: agenttest.Decoded(t, agenttest.Meshes("other"))[0]}
	output := make(chan error, 1)
	go func() {
		_, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true, Ops: []store.Op{other}})
		output <- err
	}()
	<-s.in // nothing is deleted before all have disconnected
	for _, st := range streams {
		e.Closed(st)
	}
	<-time.After(time.Second) // all grace times are over
	release()
	agenttest.Do(t, <-output)
	agenttest.Await(t, "the Dataplanes are deleted", changed, func() bool { return s.Snapshot().Len() < n+1 })
	if got := s.Snapshot(); got.Len() != 1 {
		t.Errorf("%d resources after one step", got.Len())
	}
}

// TestAwaited checks that a Dataplane is awaited from the start of its stream until it is stored or
// a conflict is known.
func TestAwaited(t *testing.T) {
	s := newStalling(t)
	changes := make(chan struct{}, 1)
	e := newEnvoys(s.Store, func(o *metadata.Options) {
		o.Changed = func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	})
	open := func(address string) {
		t.Helper()
		agenttest.Do(t, e.Opened(stream(t, "default.web", agenttest.DataplaneText("default", "web", address))))
	}
	open("10.0.0.1")
	if !e.Awaited()["default.web"] {
		t.Error("it is not awaited before it is stored")
	}
	run(t, e)
	agenttest.Await(t, "it is stored", changes, func() bool { return !e.Awaited()["default.web"] })
	if agenttest.Has(s.Store) == "" {
		t.Error("it is not in the store")
	}
	open("10.0.0.1")
	if e.Awaited()["default.web"] {
		t.Error("the same is awaited")
	}
	release := s.stall(t)
	open("10.0.0.2")
	<-s.in
	if !e.Awaited()["default.web"] {
		t.Error("another one is not awaited")
	}
	release()
	agenttest.Await(t, "it is stored", changes, func() bool { return !e.Awaited()["default.web"] })
	agenttest.ByAPI(t, s.Store, agenttest.DataplaneText("default", "other", "10.9.9.9"))
	agenttest.Do(t, e.Opened(stream(t, "default.other", agenttest.DataplaneText("default", "other", "10.0.0.1"))))
	if e.Awaited()["default.other"] {
		t.Error("one that is in conflict is awaited")
	}
}
