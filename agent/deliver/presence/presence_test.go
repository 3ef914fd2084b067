package presence_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/presence"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func open(t testing.TB, s *store.Store) *presence.Presence {
	t.Helper()
	p := presence.New(presence.Options{Registry: kinds.Registry().WithInternal(), Store: s})
	go p.Run(t.Context())
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

// TestStates checks how observations become states.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := agenttest.Memory(t)
		put(t, s, store.SourceFile, "a")
		p, a := open(t, s), named("a")
		for _, step := range []struct {
			name string
			do   func()
			want string
		}{
			{"unknown", func() {}, ""},
			{"a probe fails", func() { p.Probe(a, 80, false) }, "a unready [80]"},
			{"the Envoy lacks an inbound", func() { p.Acked(a, []uint32{81}) }, "a unready [80 81]"},
			{"both have recovered", func() { p.Probe(a, 80, true); p.Acked(a, nil) }, ""},
			{"drained", func() { agenttest.Do(t, p.Drain(a)) }, "a draining []"},
			{"drained twice", func() { agenttest.Do(t, p.Drain(a)) }, "a draining []"},
			{"its Envoy ends", func() { p.Ended(a, 7) }, "a ended []"},
			{"another Envoy has its inbounds", func() { p.Acked(a, nil) }, "a draining []"},
			{"no longer drained", func() { agenttest.Do(t, p.Undrain(a)) }, ""},
			{"drained, and deleted", func() {
				agenttest.Do(t, p.Drain(a))
				_, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceFile}, Ops: []store.Op{{Delete: a}}})
				agenttest.Do(t, err)
			}, ""},
			{"stored again", func() { put(t, s, store.SourceFile, "a") }, ""},
		} {
			step.do()
			if got := states(s); got != step.want {
				t.Fatalf("%s: %q, want %q", step.name, got, step.want)
			}
		}
		if err := p.Drain(named("b")); !errors.Is(err, presence.ErrNotLocal) {
			t.Errorf("an unknown Dataplane: %v", err)
		}
		put(t, s, store.SourcePeer, "c")
		if err := p.Drain(named("c")); !errors.Is(err, presence.ErrNotLocal) {
			t.Errorf("the Dataplane of another node: %v", err)
		}
	})
}

// TestAnnounce checks that a new Dataplane is not ready before its Envoy has acknowledged its
// inbounds, however long it takes to store it.
func TestAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := agenttest.Memory(t)
		p, a := open(t, s), named("a")
		op, ok := p.Announce(a)
		if !ok || op.Put == nil || op.Put.Key != resource.EndpointStateOf(a) {
			t.Fatalf("%+v %v", op, ok)
		}
		put(t, s, store.SourceFile, "other")
		if got := states(s); got != "" {
			t.Fatal(got)
		}
		put(t, s, store.SourceFile, "a")
		if got := states(s); got != "a unready []" {
			t.Fatal(got)
		}
		p.Acked(a, nil)
		if got := states(s); got != "" {
			t.Fatal(got)
		}
	})
}

// TestRestart checks that a restart of the agent changes no state, and that later observations do.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := agenttest.Memory(t)
		put(t, s, store.SourceFile, "a", "b", "c", "d", "e")
		p := open(t, s)
		agenttest.Do(t, p.Drain(named("a")))
		p.Ended(named("b"), 7)
		p.Acked(named("c"), []uint32{81})
		p.Probe(named("d"), 80, false)
		const want = "a draining [], b ended [], c unready [81], d unready [80]"
		if got := states(s); got != want {
			t.Fatal(got)
		}
		before := s.Snapshot().Revision()
		p = open(t, s)
		if got := states(s); got != want || s.Snapshot().Revision() != before {
			t.Fatal(got, before, s.Snapshot().Revision())
		}
		agenttest.Do(t, p.Undrain(named("a")))
		p.Acked(named("b"), nil)
		p.Acked(named("c"), nil)
		p.Probe(named("d"), 80, true)
		if got := states(s); got != "" {
			t.Fatal(got)
		}
	})
}
