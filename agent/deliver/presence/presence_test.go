package presence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/presence"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func open(t testing.TB, s *store.Store) *presence.Presence {
	t.Helper()
	return openUntil(t.Context(), s)
}

func openUntil(ctx context.Context, s *store.Store) *presence.Presence {
	p := presence.New(presence.Options{Registry: kinds.Registry().WithInternal(), Store: s})
	go p.Run(ctx)
	return p
}

func named(name string) resource.Key {
	return resource.Key{Kind: "Dataplane", Mesh: "default", Name: name}
}

// put stores Dataplanes of a file with the inbounds 80 and 81.
func put(t testing.TB, s *store.Store, source string, names ...string) {
	t.Helper()
	b := store.Batch{Source: store.Source{Kind: source}}
	for _, name := range names {
		b.Ops = append(b.Ops, store.Op{Put: agenttest.Decoded(t, fmt.Sprintf("{type: Dataplane, mesh: default, name: %s, "+
			"networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: s}}, "+
			"{port: 81, tags: {kuma.io/service: s}}]}}", name))[0]})
	}
	if _, err := s.Apply(b); err != nil {
		t.Fatal(err)
	}
}

// states lists the states in a store.
func states(s *store.Store) string {
	synctest.Wait()
	var out []string
	for _, r := range s.Snapshot().Set().Kind(resource.KindEndpointState) {
		if state, ok := r.Spec.(*resource.EndpointState); ok {
			out = append(out, fmt.Sprint(r.Name, " ", state.State, " ", state.Inbounds))
		}
	}
	return strings.Join(out, ", ")
}

// envoy is an Envoy of a Dataplane.
type envoy struct {
	p      *presence.Presence
	of     resource.Key
	stream access.Stream
}

// start connects an Envoy; without a process ID, its process is not known.
func start(t testing.TB, p *presence.Presence, of resource.Key, process string) *envoy {
	t.Helper()
	e := &envoy{p, of, access.Stream{Key: node.Key{ID: of.Mesh + "." + of.Name, Flavor: node.FlavorEnvoy}}}
	if process != "" {
		e.stream.Peer.Process = &access.Process{ID: process}
	}
	agenttest.Do(t, p.Opened(e.stream))
	return e
}

// acks acknowledges the inbounds of some ports.
func (e *envoy) acks(ports ...int) {
	id := ""
	if e.stream.Peer.Process != nil {
		id = e.stream.Peer.Process.ID
	}
	var names []string
	for _, port := range ports {
		names = append(names, fmt.Sprint("inbound:10.0.0.1:", port))
	}
	e.p.Acked(e.of, id, names)
}

// ends ends the process after its stream.
func (e *envoy) ends() {
	e.p.Closed(e.stream)
	if e.stream.Peer.Process != nil {
		e.p.Ended(e.of, e.stream.Peer.Process.ID)
	}
}

type step struct {
	name string
	do   func()
	want string
}

func run(t *testing.T, s *store.Store, steps []step) {
	t.Helper()
	for _, step := range steps {
		step.do()
		if got := states(s); got != step.want {
			t.Fatalf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// TestStates checks how observations become states.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := agenttest.Memory(t)
		put(t, s, store.SourceFile, "a")
		p, a := open(t, s), named("a")
		var first, second *envoy
		run(t, s, []step{
			{"never had an Envoy", func() {}, ""},
			{"a probe fails", func() { p.Probe(a, 80, false) }, "a unready [80]"},
			{"an Envoy connects", func() { first = start(t, p, a, "7/1") }, "a unready [80]"},
			{"it lacks an inbound", func() { first.acks(80) }, "a unready [80 81]"},
			{"it has both", func() { first.acks(80, 81) }, "a unready [80]"},
			{"the probe succeeds", func() { p.Probe(a, 80, true) }, ""},
			{"its stream ends", func() { p.Closed(first.stream) }, ""},
			{"and returns", func() { first = start(t, p, a, "7/1") }, ""},
			{"drained", func() { agenttest.Do(t, p.Drain(a, false)) }, "a draining []"},
			{"drained twice", func() { agenttest.Do(t, p.Drain(a, false)) }, "a draining []"},
			{"reconnected", func() { first = start(t, p, a, "7/1"); first.acks(80, 81) }, "a draining []"},
			{"no longer drained", func() { agenttest.Do(t, p.Undrain(a)) }, ""},
			{"a hot restart", func() { second = start(t, p, a, "8/2") }, ""},
			{"the new Envoy has the inbounds", func() { second.acks(80, 81) }, ""},
			{"the old Envoy ends", func() { first.ends() }, ""},
			{"drained before its Envoy ends", func() { agenttest.Do(t, p.Drain(a, false)) }, "a draining []"},
			{"its Envoy ends", func() { second.ends() }, "a ended []"},
			{"another Envoy connects", func() { first = start(t, p, a, "9/3") }, "a ended []"},
			{"and has one inbound", func() { first.acks(81) }, "a unready [80]"},
			{"and has all", func() { first.acks(80, 81) }, ""},
			{"drained, and deleted", func() {
				agenttest.Do(t, p.Drain(a, false))
				_, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceFile}, Ops: []store.Op{{Delete: a}}})
				agenttest.Do(t, err)
			}, ""},
			{"stored again", func() { put(t, s, store.SourceFile, "a") }, ""},
			{"its Envoy ends once more", func() { first.ends() }, "a ended []"},
		})
		if err := p.Drain(named("b"), false); !errors.Is(err, presence.ErrNotLocal) {
			t.Errorf("an unknown Dataplane: %v", err)
		}
		put(t, s, store.SourcePeer, "c")
		if err := p.Drain(named("c"), false); !errors.Is(err, presence.ErrNotLocal) {
			t.Errorf("the Dataplane of another node: %v", err)
		}
	})
}

// TestAnonymousEnvoys checks Envoys whose processes are not known: the end of a stream proves
// nothing about their inbounds, and another stream ends a drain.
func TestAnonymousEnvoys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := agenttest.Memory(t)
		put(t, s, store.SourceFile, "a")
		p, a := open(t, s), named("a")
		var e *envoy
		run(t, s, []step{
			{"one connects", func() { e = start(t, p, a, "") }, ""},
			{"and has one inbound", func() { e.acks(80) }, "a unready [81]"},
			{"and has both", func() { e.acks(80, 81) }, ""},
			{"and leaves", func() { e.ends() }, ""},
			{"and returns", func() { e = start(t, p, a, "") }, ""},
			{"drained", func() { agenttest.Do(t, p.Drain(a, false)) }, "a draining []"},
			{"leaves while it is drained", func() { e.ends() }, "a draining []"},
			{"another one", func() { e = start(t, p, a, "") }, ""},
		})
	})
}

// TestAnnounce checks that a new Dataplane is not ready before its Envoy has acknowledged its
// inbounds, however long it takes to store it.
func TestAnnounce(t *testing.T) {
	dataplane := agenttest.Decoded(t, "{type: Dataplane, mesh: default, name: a, networking: {address: 10.0.0.1, "+
		"inbound: [{port: 80, tags: {kuma.io/service: s}}, {port: 81, tags: {kuma.io/service: s}}]}}")[0]
	for _, reports := range []bool{false, true} { // one inbound, before it is stored
		synctest.Test(t, func(t *testing.T) {
			s := agenttest.Memory(t)
			p, a := open(t, s), named("a")
			e := start(t, p, a, "7/1")
			if reports {
				e.acks(80)
			}
			op, ok := p.Announce(dataplane)
			if !ok || op.Put == nil || op.Put.Key != resource.EndpointStateOf(a) {
				t.Fatalf("%+v %v", op, ok)
			}
			put(t, s, store.SourceFile, "other")
			if got := states(s); got != "" {
				t.Fatal(got)
			}
			if _, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceEnvoy},
				Ops: []store.Op{{Put: dataplane}, op}}); err != nil {
				t.Fatal(err)
			}
			run(t, s, []step{
				{"stored", func() {}, map[bool]string{false: "a unready []", true: "a unready [81]"}[reports]},
				{"acknowledged", func() { e.acks(80, 81) }, ""},
			})
			if p.Closed(e.stream); agenttest.Flapped(s, a) {
				t.Error("the Dataplane was deleted")
			}
		})
	}
}

// TestLateFile checks the Dataplane of a file that is stored after its Envoy has connected.
func TestLateFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := agenttest.Memory(t)
		put(t, s, store.SourceFile, "other")
		p := open(t, s)
		if got := states(s); got != "" {
			t.Fatal(got)
		}
		e := start(t, p, named("a"), "7/1")
		run(t, s, []step{
			{"stored", func() { put(t, s, store.SourceFile, "a") }, "a unready []"},
			{"acknowledged", func() { e.acks(80, 81) }, ""},
		})
	})
}

// TestRestart checks that a restart of the agent changes no state, and that later observations do.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := agenttest.Memory(t)
		put(t, s, store.SourceFile, "a", "b", "c", "d", "e")
		ctx, stop := context.WithCancel(t.Context())
		p := openUntil(ctx, s)
		for _, name := range []string{"a", "b", "c", "e"} {
			e := start(t, p, named(name), name)
			if e.acks(80, 81); name == "c" {
				e.acks(80)
			} else if name == "b" {
				e.ends()
			}
		}
		agenttest.Do(t, p.Drain(named("a"), false))
		p.Probe(named("d"), 80, false)
		const want = "a draining [], b ended [], c unready [81], d unready [80]"
		if got := states(s); got != want {
			t.Fatal(got)
		}
		before := s.Snapshot().Revision()
		stop()
		synctest.Wait()
		p = open(t, s)
		a, e := start(t, p, named("a"), "a"), start(t, p, named("e"), "e") // the Envoys reconnect
		b, c := start(t, p, named("b"), "b2"), start(t, p, named("c"), "c")
		a.acks(80, 81)
		e.acks(80, 81)
		if got := states(s); got != want || s.Snapshot().Revision() != before {
			t.Fatal(got, before, s.Snapshot().Revision())
		}
		b.acks(80, 81)
		c.acks(80, 81)
		p.Probe(named("d"), 80, true)
		if got := states(s); got != "a draining []" {
			t.Fatal(got)
		}
		if start(t, p, named("a"), "a2").acks(80, 81); states(s) != "" {
			t.Fatal(states(s))
		}
	})
}

// TestDrainUntilUndo checks that a drain until undo outlives Envoys and restarts of the agent, and
// that an undo ends it.
func TestDrainUntilUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := agenttest.Memory(t)
		put(t, s, store.SourceFile, "a")
		ctx, stop := context.WithCancel(t.Context())
		p, a := openUntil(ctx, s), named("a")
		restart := func() {
			stop()
			synctest.Wait()
			ctx, stop = context.WithCancel(t.Context())
			p = openUntil(ctx, s)
		}
		e := start(t, p, a, "7/1")
		run(t, s, []step{
			{"serves", func() { e.acks(80, 81) }, ""},
			{"drained until undo", func() { agenttest.Do(t, p.Drain(a, true)) }, "a draining []"},
			{"drained again, without", func() { agenttest.Do(t, p.Drain(a, false)) }, "a draining []"},
			{"its Envoy ends", func() { e.ends() }, "a ended []"},
			{"the agent is started again", restart, "a ended []"},
			{"a new Envoy connects", func() { e = start(t, p, a, "8/2") }, "a ended []"},
			{"and has all inbounds", func() { e.acks(80, 81) }, "a draining []"},
			{"the agent is started once more", restart, "a draining []"},
			{"another Envoy connects", func() { e = start(t, p, a, "9/3"); e.acks(80, 81) }, "a draining []"},
			{"undone", func() { agenttest.Do(t, p.Undrain(a)) }, ""},
			{"drained, but not until undo", func() { agenttest.Do(t, p.Drain(a, false)) }, "a draining []"},
			{"a new Envoy ends that", func() { e = start(t, p, a, "10/4"); e.acks(80, 81) }, ""},
		})
		stop()
	})
}
