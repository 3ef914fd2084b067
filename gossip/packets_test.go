package gossip

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// TestLostPackets drops all packets while streams work. All members stay alive, notice the loss,
// spread changes and new members over streams, and return to packets when they pass again.
func TestLostPackets(t *testing.T) {
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s := newSimnet()
		nodes, full := simCluster(t, s, 4)
		until(t, time.Minute, "all know all", full, pass)
		pass(10 * time.Second)
		lost := func(want bool) func() bool {
			return func() bool {
				for _, n := range nodes {
					if n.Stats().PacketsLost != want {
						return false
					}
				}
				return true
			}
		}
		if !lost(false)() {
			t.Fatal("packets pass, and a node reports that they are lost")
		}
		s.filter(func(string, string) bool { return false })
		until(t, 9*time.Second, "all notice the loss", lost(true), pass)
		spread := func(what string) {
			t.Helper()
			for i, n := range nodes {
				value := fmt.Sprint(what, i)
				if _, err := n.Put(engine.Put{Key: keyA, Body: []byte(value)}); err != nil {
					t.Fatal(err)
				}
				until(t, time.Second, what, func() bool {
					for _, o := range nodes {
						if body(o, keyA) != value {
							return false
						}
					}
					return true
				}, pass)
			}
		}
		spread("a change without packets")
		nodes = append(nodes, simNode(t, s, 4, newMemory(), simAddr(4)))
		all := func() bool {
			for _, n := range nodes {
				if alive(n) != len(nodes) {
					return false
				}
			}
			return true
		}
		until(t, 15*time.Second, "all know the new member", all, pass)
		pass(2 * time.Minute)
		if !lost(true)() || !all() {
			t.Errorf("after two minutes, node 0 has %d members", alive(nodes[0]))
		}
		s.filter(nil)
		until(t, 8*time.Second, "all notice that packets pass", lost(false), pass)
		spread("a change with packets")
		stopAll(nodes)
		pass(time.Minute)
	})
}

// TestPacketsLostOneWay drops the packets from one member to another. Both use streams to each
// other, and packets to the third member.
func TestPacketsLostOneWay(t *testing.T) {
	for _, size := range []int{2, 3} {
		oneProcessor(t)
		synctest.Test(t, func(t *testing.T) {
			pass := func(d time.Duration) { time.Sleep(d) }
			s := newSimnet()
			nodes, full := simCluster(t, s, size)
			until(t, time.Minute, "all know all", full, pass)
			s.filter(func(from, to string) bool { return from != simAddr(0) || to != simAddr(1) })
			toPeer := func(i, j int) bool {
				m, _ := lookUp(nodes[i], simID(j))
				return m.PacketsLost
			}
			until(t, 20*time.Second, "both notice the loss", func() bool { return toPeer(0, 1) && toPeer(1, 0) }, pass)
			if size == 3 && (toPeer(0, 2) || toPeer(2, 1) || nodes[2].Stats().PacketsLostTo != 0 ||
				nodes[0].Stats().PacketsLostTo != 1 || nodes[0].Stats().PacketsLost) {
				t.Errorf("packets to the third member count as lost: %+v", nodes[0].Members())
			}
			for i := range 2 {
				value := fmt.Sprint(i)
				if _, err := nodes[i].Put(engine.Put{Key: keyA, Body: []byte(value)}); err != nil {
					t.Fatal(err)
				}
				until(t, time.Second, "the change", func() bool { return body(nodes[1-i], keyA) == value }, pass)
			}
			s.filter(nil)
			until(t, 30*time.Second, "both notice that packets pass", func() bool {
				return !toPeer(0, 1) && !toPeer(1, 0)
			}, pass)
			stopAll(nodes)
			pass(time.Minute)
		})
	}
}

// TestMembersOfOtherProtocols checks that a member without a common protocol version stays a member
// whose items are served, and that no messages reach it.
func TestMembersOfOtherProtocols(t *testing.T) {
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s := newSimnet()
		var log logBuffer
		start := func(i int, p Protocol, old bool) running {
			o := simOptions(s, i, newMemory(), simAddr(i))
			o.protocol, o.noFeatures, o.Log = p, old, log.logger()
			o.Answer = func(context.Context, []byte) []byte { return []byte("answer") }
			return run(t, o)
		}
		a := start(0, Protocol{1, 2}, false)
		b := start(1, Protocol{2, 3}, true)
		until(t, time.Minute, "two members", members(a, 2), pass)
		if err := b.SetOwn(item("b")); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, "the item", owns([]running{a}, "b", simID(1)), pass)
		c := start(2, Protocol{3, 4}, false)
		until(t, time.Minute, "three members", members(a, 3), pass)
		if _, err := a.Put(engine.Put{Key: keyA, Body: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		far, _ := lookUp(a, simID(2))
		near, _ := lookUp(a, simID(1))
		if !far.Incompatible || far.State != StateAlive || far.Protocol != (Protocol{3, 4}) || far.Features != ownFeatures ||
			a.Stats().Incompatible != 1 {
			t.Errorf("the member with other versions: %+v", far)
		}
		if near.Incompatible || near.Protocol != (Protocol{2, 3}) || near.Features != 0 || !near.Agrees {
			t.Errorf("the member with a common version: %+v", near)
		}
		if _, err := a.Ask(t.Context(), simID(2), []byte("x")); !errors.Is(err, ErrIncompatible) {
			t.Errorf("a question: %v", err)
		}
		if got, err := a.Ask(t.Context(), simID(1), []byte("x")); string(got) != "answer" {
			t.Errorf("a question to the other one: %q, %v", got, err)
		}
		if !strings.Contains(log.String(), "speaks protocol 3-4, and this node 1-2") {
			t.Errorf("the log: %s", log.String())
		}
		// c and b have version 3 in common, so the change reaches c only through b.
		until(t, time.Minute, "the change", func() bool { return body(c, keyA) == "1" }, pass)
		// Items of an incompatible member are served while it is alive.
		if err := c.SetOwn(item("c")); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, "the item", owns([]running{a}, "c", simID(2)), pass)
		pass(2 * time.Minute)
		if !owns([]running{a}, "c", simID(2))() {
			t.Errorf("the items of a live incompatible member are not served: %+v", a.Owned())
		}
		c.stop()
		until(t, 2*time.Minute, "its items are removed", func() bool {
			_, served := owner(a, "c")
			return !served
		}, pass)
		stopAll([]running{a, b})
		pass(time.Minute)
	})
}

// TestProbeNeedsFeature checks that only members with the feature get probes over streams: to
// others, a probe without packets fails.
func TestProbeNeedsFeature(t *testing.T) {
	for _, old := range []bool{false, true} {
		oneProcessor(t)
		synctest.Test(t, func(t *testing.T) {
			pass := func(d time.Duration) { time.Sleep(d) }
			s := newSimnet()
			a := simNode(t, s, 0, newMemory(), simAddr(0))
			o := simOptions(s, 1, newMemory(), simAddr(1))
			o.noFeatures = old
			b := run(t, o)
			until(t, time.Minute, "two members", members(a, 2), pass)
			s.filter(func(string, string) bool { return false })
			a.mu.Lock()
			m := a.up[b.self.Load().member]
			a.mu.Unlock()
			if got := a.probe(t.Context(), m); got == old {
				t.Errorf("without the feature %v: the probe returns %v", old, got)
			}
			stopAll([]running{a, b})
			pass(time.Minute)
		})
	}
}
