package ads_test

import (
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// sample returns the value of a counter or gauge with these label values.
func sample(t *testing.T, reg *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			var have []string
			for _, l := range m.Label {
				have = append(have, l.GetValue())
			}
			if slices.Equal(have, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no %s %q", name, labels)
	return 0
}

// TestHeldByCheck: a resource that the check withholds keeps its last accepted form at the client,
// all other changes are delivered, and the next good bytes are sent. A resource that the client
// never had is not sent before it is good.
func TestHeldByCheck(t *testing.T) {
	for _, kind := range []string{"delta", "sotw"} {
		t.Run(kind, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			a := servingWith(t, config("CDS:c=1", "LDS:a=1", "LDS:l=1"), options{Registry: reg})
			var want func(delta, sotw string)
			if kind == "delta" {
				c := a.delta("default.web")
				c.subscribe(cds)
				c.subscribe(lds)
				want = func(line, _ string) { t.Helper(); c.wantAck(line) }
			} else {
				c := a.sotw(nodeOf("default.web"))
				c.ask(cds)
				c.ask(lds)
				want = func(_, line string) { t.Helper(); c.wantAck(line) }
			}
			want("CDS c=1", "CDS 1")
			want("LDS a=1 l=1", "LDS 1 1")
			a.reached("default.web", 0)

			a.push(config("CDS:c=1", "CDS:new=1", "LDS:a=2", "LDS:l=2", "LDS:new=1"), "CDS:new", "LDS:l", "LDS:new")
			want("LDS a=2", "LDS 2 1")
			p := a.reached("default.web", 1)
			if len(p.Rejected) != 3 || !a.HasRejections() {
				t.Fatalf("rejected: %+v; there are some: %t", p.Rejected, a.HasRejections())
			}
			if l := p.Rejected[1]; l.ID.Name != "l" || l.By != api.HeldByCheck || l.Rule != 20 || l.Reason != "l is unfit" ||
				bodyOf(lds, l.Resource.Body()) != "2" || l.Accepted == nil || bodyOf(lds, l.Accepted.Body()) != "1" ||
				l.MadeAt != 1 {
				t.Errorf("of the check: %+v", l)
			}
			if n := p.Rejected[2]; n.ID.Name != "new" || n.Accepted != nil {
				t.Errorf("never accepted: %+v", n)
			}
			s := a.status("default.web")
			held := typeStatus(t, s, lds).Held
			if s.InSync || len(held) != 2 || held[0].By != api.HeldByCheck || held[0].Rule != 20 ||
				held[0].AcceptedVersion == "" || held[1].AcceptedVersion != "" {
				t.Errorf("in sync %t, held: %+v", s.InSync, held)
			}
			e := slices.DeleteFunc(s.Events, func(e api.Event) bool { return e.Kind != "held" })
			if len(e) != 2 || e[0].Count != 1 || e[1].Count != 2 || e[1].Resources[1] != "new" || e[1].Reason != "l is unfit" {
				t.Errorf("events: %+v", e)
			}
			for _, c := range []struct {
				name   string
				labels []string
				want   float64
			}{
				{"nearside_xds_refused_total", []string{"listener"}, 2}, {"nearside_xds_refused_total", []string{"cluster"}, 1},
				{"nearside_xds_refused_total", []string{"route"}, 0}, {"nearside_xds_held_resources",
					[]string{"check", "listener"}, 2}, {"nearside_xds_held_resources", []string{"proxy", "listener"}, 0},
			} {
				if got := sample(t, reg, c.name, c.labels...); got != c.want {
					t.Errorf("%s %q: %v, want %v", c.name, c.labels, got, c.want)
				}
			}

			a.push(config("CDS:c=1", "CDS:new=1", "LDS:a=3", "LDS:l=2", "LDS:new=1"), "CDS:new", "LDS:l", "LDS:new")
			want("LDS a=3", "LDS 3 1")
			if n := sample(t, reg, "nearside_xds_refused_total", "listener"); n != 2 {
				t.Errorf("refused once more: %v", n)
			}
			a.push(config("CDS:c=1", "CDS:new=2", "LDS:a=3", "LDS:l=3", "LDS:new=2"))
			want("CDS new=2", "CDS 1 2")
			want("LDS l=3 new=2", "LDS 3 3 2")
			if p := a.reached("default.web", 3); len(p.Rejected) != 0 || a.HasRejections() {
				t.Errorf("rejected in the end: %+v; there are some: %t", p.Rejected, a.HasRejections())
			}
			if n := sample(t, reg, "nearside_xds_held_resources", "check", "listener"); n != 0 {
				t.Errorf("%v are held in the end", n)
			}
		})
	}
}

// TestRefusedClusterKeepsOld: the routes and listeners of a config are delivered if the client has
// an earlier form of the cluster, and a withheld listener retains the cluster that it needs.
func TestRefusedClusterKeepsOld(t *testing.T) {
	a := serving(t, config("CDS:c=1", "CDS:old=1", "LDS:l=l.old", "RDS:r=r.c"))
	c := a.delta("default.web")
	c.subscribe(cds)
	c.wantAck("CDS c=1 old=1")
	c.subscribe(lds)
	c.wantAck("LDS l=l.old")
	c.subscribe(rds, "r")
	c.wantAck("RDS r=r.c")
	a.push(config("CDS:c=2", "LDS:l=l.new", "RDS:r=r.c+"), "CDS:c", "LDS:l")
	c.wantAck("RDS r=r.c+")
	// A restarted Envoy gets the resources of the previous one.
	d := a.delta("default.web")
	d.subscribe(cds)
	d.wantAck("CDS c=1 old=1")
	d.subscribe(lds)
	d.wantAck("LDS l=l.old")
	// The listener is withheld without having changed: it and its dependencies are retained.
	a.push(config("CDS:c=2", "LDS:l=l.old", "RDS:r=r.c+"), "CDS:c", "LDS:l")
	a.push(config("CDS:c=3", "LDS:l=l.old", "RDS:r=r.c+"), "LDS:l")
	c.wantAck("CDS c=3")
	d.wantAck("CDS c=3")
	a.push(config("CDS:c=3", "LDS:l=l.c", "RDS:r=r.c+"))
	c.wantAck("LDS l=l.c")
	c.wantAck("CDS -old")
}

// TestRefusedInFlight: a resource that was sent and not yet answered stays at the client and is not
// removed.
func TestRefusedInFlight(t *testing.T) {
	a := serving(t, config("LDS:a=1"))
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS a=1")
	a.push(config("LDS:a=1", "LDS:l=1", "LDS:m=1"))
	resp := c.want("LDS l=1 m=1")
	a.push(config("LDS:a=1", "LDS:l=2", "LDS:m=2"), "LDS:l", "LDS:m")
	c.nack(resp, "m: no") // so l is active and m is not
	a.push(config("LDS:a=2", "LDS:l=2", "LDS:m=2"), "LDS:l", "LDS:m")
	c.wantAck("LDS a=2 l=1 m=1") // the next change sends all of a rejected response again
	a.push(config("LDS:a=2", "LDS:l=3", "LDS:m=3"))
	c.wantAck("LDS l=3 m=3")
	if nobody := (node.Key{ID: "default.nobody"}); a.Listeners(nobody) != nil {
		t.Error("of nobody something is known")
	}
}

// TestRefusedThenUnknown: a node that has become unknown has no config to recompute.
func TestRefusedThenUnknown(t *testing.T) {
	var changed atomic.Int32
	a := servingWith(t, config("LDS:l=1"), options{Changed: func() { changed.Add(1) }})
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS l=1")
	a.wait(func() bool { return len(a.Listeners(web)) == 1 })
	a.push(config("LDS:l=2"), "LDS:l")
	before := changed.Load()
	for range 3 {
		a.Publish(map[node.Key]rollout.Config{web: {Revision: 9}})
	}
	if n := changed.Load(); n != before {
		t.Errorf("it is asked for %d times", n-before)
	}
}

// TestRefusedUntilAnotherHasMoved: an address is free once the client has accepted the new form of
// the listener that used it. The server then requests a new check, for which Listeners returns the
// listeners that the client has.
func TestRefusedUntilAnotherHasMoved(t *testing.T) {
	var changed atomic.Int32
	a := servingWith(t, config("LDS:l=1", "LDS:m=2"), options{Changed: func() { changed.Add(1) }})
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS l=1 m=2")
	a.wait(func() bool { return len(a.Listeners(web)) == 2 })
	bodies := func() string {
		var b strings.Builder
		for _, l := range a.Listeners(web) {
			b.WriteString(l.Name + "=" + bodyOf(lds, l.Body()) + " ")
		}
		return b.String()
	}
	next := config("LDS:l=2", "LDS:m=3")
	a.push(next, "LDS:l")
	resp := c.want("LDS m=3")
	if got := bodies(); got != "l=1 m=2 " {
		t.Errorf("before the answer it has %s", got)
	}
	before := changed.Load()
	c.ack(resp)
	a.wait(func() bool { return changed.Load() > before })
	a.wait(func() bool { return bodies() == "l=1 m=3 " })
	a.push(next)
	c.wantAck("LDS l=2")
	a.wait(func() bool { return bodies() == "l=2 m=3 " })
	if n := changed.Load(); n != before+1 {
		t.Errorf("a new check is requested %d times although nothing is withheld", n-before-1)
	}
}

// TestRefusedAfterRestart: an agent that has just started does not know the resources of an Envoy.
// If a delta client lists a withheld name, the client keeps that resource and its possible
// dependencies until there is a good form.
func TestRefusedAfterRestart(t *testing.T) {
	had := config("CDS:c=1", "CDS:old=1", "LDS:a=1", "LDS:l=l.old")
	cfg := config("CDS:c=1", "LDS:a=1", "LDS:l=l.bad")
	start := func(t *testing.T) (*agent, *deltaClient) {
		a := serving(t, nil)
		a.push(cfg, "LDS:l")
		c := a.delta("default.web")
		c.resume(cds, versionsOf(had, cds))
		c.resume(lds, versionsOf(had, lds))
		return a, c
	}
	probe := func(c *deltaClient) { // no other response precedes it
		c.t.Helper()
		c.subscribe(rds, "probe")
		c.wantAck("RDS -probe")
	}
	t.Run("mended", func(t *testing.T) {
		a, c := start(t)
		probe(c)
		a.push(config("CDS:c=2", "LDS:a=2", "LDS:l=l.bad"), "LDS:l")
		c.wantAck("CDS c=2")
		c.wantAck("LDS a=2")
		if p := a.reached("default.web", 2); len(p.Rejected) != 1 || p.Rejected[0].Older == "" ||
			p.Rejected[0].Accepted != nil {
			t.Errorf("it is not said that the client has the version that it came with: %+v", p.Rejected)
		}
		a.push(config("CDS:c=2", "LDS:a=2", "LDS:l=l.c"))
		c.wantAck("LDS l=l.c")
		c.wantAck("CDS -old")
	})
	t.Run("as it was", func(t *testing.T) {
		a, c := start(t)
		probe(c)
		a.push(config("CDS:c=1", "CDS:old=1", "LDS:a=1", "LDS:l=l.old"))
		probe(c)
		a.push(cfg, "LDS:l") // now the agent knows it
		probe(c)
		if r := a.progress("default.web").Rejected; len(r) != 1 || r[0].Accepted == nil {
			t.Errorf("rejected: %+v", r)
		}
		a.push(config("CDS:c=1", "LDS:a=1", "LDS:l=l.c"))
		c.wantAck("LDS l=l.c")
		c.wantAck("CDS -old")
	})
	t.Run("gone", func(t *testing.T) {
		a, c := start(t)
		probe(c)
		a.push(config("CDS:c=1", "LDS:a=1"))
		c.wantAck("LDS -l")
		c.wantAck("CDS -old")
	})
	t.Run("has it", func(t *testing.T) {
		a := serving(t, nil)
		a.push(cfg, "LDS:l")
		c := a.delta("default.web")
		c.resume(lds, versionsOf(cfg, lds))
		probe(c)
		a.push(config("CDS:c=1", "LDS:a=1", "LDS:l=l.worse"), "LDS:l")
		probe(c)
		if r := a.progress("default.web").Rejected; len(r) != 1 || r[0].Accepted == nil ||
			bodyOf(lds, r[0].Accepted.Body()) != "l.bad" {
			t.Errorf("rejected: %+v", r)
		}
	})
	t.Run("not there", func(t *testing.T) {
		a := serving(t, nil)
		a.push(cfg, "LDS:l")
		c := a.delta("default.web")
		c.subscribe(cds)
		c.wantAck("CDS c=1")
		c.subscribe(lds, "l", "a")
		c.wantAck("LDS a=1 -l")
		if r := a.progress("default.web").Rejected; len(r) != 1 || r[0].Older != "" {
			t.Errorf("rejected: %+v", r)
		}
	})
}

// TestRefusedAfterRestartStateOfTheWorld: a client whose config differs from the agent's would lose
// a resource that is missing from the list. So it receives the listener unchanged, rejects it, and
// keeps its own form. A client without a config does not receive the listener.
func TestRefusedAfterRestartStateOfTheWorld(t *testing.T) {
	a := serving(t, nil)
	push := func(words ...string) { a.push(config(words...), "LDS:l") }
	push("LDS:a=1", "LDS:l=bad")
	c := a.sotw(nodeOf("default.web"))
	c.version[lds] = "of another agent"
	c.ask(lds)
	c.nack(c.want("LDS 1 bad"), "l: bad")
	push("LDS:a=2", "LDS:l=bad")
	c.wantAck("LDS 2 bad")
	// Now the agent knows that the client has these bytes, since they were not rejected.
	push("LDS:a=2", "LDS:l=bad2")
	push("LDS:a=3", "LDS:l=bad2")
	c.wantAck("LDS 3 bad")

	b := serving(t, nil)
	b.push(config("LDS:a=1", "LDS:l=bad"), "LDS:l")
	d := b.sotw(nodeOf("default.web"))
	d.ask(lds)
	d.wantAck("LDS 1")
}

// TestRefusedOfAnotherPeer: another peer that uses the node id receives the last form that passed
// the check, regardless of what the previous peer had.
func TestRefusedOfAnotherPeer(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := servingWith(t, config("LDS:l=1"), options{}, tcp)
	c := deltaFrom(t, "127.0.0.1", tcp.Addr(), "default.web")
	c.wantAck("LDS l=1")
	a.push(config("LDS:l=2"), "LDS:l")
	if err := c.str.CloseSend(); err != nil {
		t.Fatal(err)
	}
	a.wait(func() bool { return len(a.Connected()) == 0 })
	d := deltaFrom(t, "127.0.0.9", tcp.Addr(), "default.web")
	a.wait(func() bool { return len(a.Connected()) == 1 })
	if had := a.Listeners(web); had != nil {
		t.Errorf("accepted by another peer: %+v", had)
	}
	d.wantAck("LDS l=1")
	a.push(config("LDS:l=2", "LDS:m=1"), "LDS:l")
	d.wantAck("LDS m=1")
}

// TestRefusedNames withholds names that the config does not contain, and types that are not served.
func TestRefusedNames(t *testing.T) {
	a := serving(t, config("LDS:l=1"))
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS l=1")
	a.push(config("LDS:l=2"), "LDS:none", "CDS:none", "NONE:l", "")
	c.wantAck("LDS l=2")
	if p := a.reached("default.web", 1); len(p.Rejected) != 0 {
		t.Errorf("rejected: %+v", p.Rejected)
	}
}

// TestWithheldInTheLightOfOlderListeners: the client accepts other listeners after the check read
// its listeners and before the result is published. The server requests another check, since the
// listeners wait for it.
func TestWithheldInTheLightOfOlderListeners(t *testing.T) {
	a := serving(t, config("LDS:l=1"))
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS l=1")
	a.wait(func() bool { return len(a.Listeners(web)) == 1 })
	a.mu.Lock()
	a.latest, a.withheld = without(config("LDS:l=2", "CDS:c=1"), a.latest, []string{"CDS:c"})
	a.Publish(map[node.Key]rollout.Config{web: {Sealed: a.latest, Revision: 1, LastStream: everyStream,
		Withheld: a.withheld}})
	a.mu.Unlock()
	c.wantAck("LDS l=2")
}
