package gossip

import (
	"flag"
	"fmt"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// These tests run real memberlist in virtual time. memberlist's randomness is not seeded, so they
// check limits, not traces.

// until advances virtual time until holds returns true, and returns the elapsed time.
func until(t *testing.T, limit time.Duration, what string, holds func() bool, pass func(time.Duration)) time.Duration {
	t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
		pass(20 * time.Millisecond)
	}
	return time.Since(began)
}

// clusterSize is 200 for the measurements in docs/performance.md.
var clusterSize = flag.Int("members", 50, "nodes of TestMassStartCutAndHeal")

func TestMassStartCutAndHeal(t *testing.T) {
	size := *clusterSize
	if testing.Short() {
		size = min(size, 20)
	}
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s := newSimnet()
		began := time.Now()
		nodes, full := simCluster(t, s, size)
		until(t, time.Minute, "all know all", full, pass)
		t.Logf("mass start of %d: all know all after %v (goal 5s at 50, 8s at 200)", size, time.Since(began))
		if time.Since(began) > 5*time.Second {
			t.Error("goal 7 is not met")
		}
		pass(30 * time.Second)
		s.bytes.Store(0)
		pass(30 * time.Second)
		idle := s.bytes.Load() / 30 / int64(size)
		t.Logf("idle: each node sends %d bytes a second (goal 300 at 500)", idle)
		if idle > 300 {
			t.Error("goal 10 is not met")
		}

		var puts []engine.Put
		for i := range 1000 {
			puts = append(puts,
				engine.Put{Key: engine.Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)},
					Body: []byte(strings.Repeat("x", 900) + fmt.Sprint(i))})
		}
		s.bytes.Store(0)
		if _, err := nodes[7].Put(puts...); err != nil {
			t.Fatal(err)
		}
		elapsed := until(t, 30*time.Second, "all have the burst", func() bool {
			for _, n := range nodes {
				if len(n.Records()) != 1000 {
					return false
				}
			}
			return true
		}, pass)
		pass(time.Second)
		copies := float64(s.bytes.Load()) / (float64(size) * 1000 * 1000)
		t.Logf("burst of 1,000 records to %d: %v (goal 2s), %.2fx bytes (goal 3.5x), with a second of everything else",
			size, elapsed, copies)
		if elapsed > 2*time.Second || copies > 3.5 {
			t.Error("goal 4 is not met")
		}

		// A partition of 120 s, with changes on both sides.
		s.mu.Lock()
		for i := range size / 2 {
			s.side[simAddr(i)] = 1
		}
		s.mu.Unlock()
		pass(110 * time.Second)
		if n := alive(nodes[0]); n != size/2 {
			t.Errorf("in the cut node 0 sees %d alive", n)
		}
		if !nodes[0].Hold() {
			t.Error("half of the nodes are gone at once, and no cut is suspected")
		}
		both := engine.Key{Kind: "K", Mesh: "m", Name: "1"}
		for i, n := range []running{nodes[3], nodes[size-3]} {
			if _, err := n.Put(engine.Put{Key: both, Body: []byte(fmt.Sprint("side ", i))},
				engine.Put{Key: engine.Key{Kind: "K", Mesh: "m", Name: fmt.Sprint("side ", i)}, Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			if _, err := n.Delete(engine.Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(500 + i)}); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		pass(8 * time.Second)
		s.mu.Lock()
		clear(s.side)
		s.mu.Unlock()
		elapsed = until(t, time.Minute, "all know all again", full, pass)
		more := until(t, time.Minute, "all agree", func() bool { return agree(nodes) }, pass)
		t.Logf("heal after 120 s: members %v (goal 8s), state %v later (goal 2s)", elapsed, more)
		if elapsed > 8*time.Second || more > 2*time.Second {
			t.Error("goal 6 is not met")
		}
		conflicts := 0
		for _, n := range nodes {
			if r := n.Record(both); string(r.Body) != "side 1" {
				t.Errorf("in force is %q", r.Body)
			}
			conflicts += len(n.Conflicts())
			if len(n.Records()) != 1000+2-2 {
				t.Errorf("%d records", len(n.Records()))
			}
		}
		if conflicts == 0 {
			t.Error("the change that has lost is listed nowhere")
		}
		t.Logf("packets that were dropped since a host's queue was full: %d; messages that the engines dropped: %d",
			s.full.Load(), nodes[0].Stats().Dropped)
		stopAll(nodes)
		pass(time.Minute) // let memberlist's last timers expire
	})
}

func TestRestartWithNewAddress(t *testing.T) {
	const size = 20
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s := newSimnet()
		var nodes []running
		stores := map[int]*memory{}
		for i := range size {
			stores[i] = newMemory()
			nodes = append(nodes, simNode(t, s, i, stores[i], simAddr(i)))
		}
		until(t, time.Minute, "all know all", func() bool {
			for _, n := range nodes {
				if alive(n) != size {
					return false
				}
			}
			return true
		}, pass)
		key := engine.Key{Kind: "K", Mesh: "m", Name: "a"}
		if _, err := nodes[3].Put(engine.Put{Key: key, Body: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		if err := nodes[9].SetOwn([]engine.OwnItem{{Key: engine.Key{Kind: "D", Name: "d"}, Body: []byte("before")}}); err !=
			nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		nodes[9].stop()
		nodes[9] = simNode(t, s, 9, stores[9], "10.0.9.9:7946")
		if r := nodes[9].Record(key); r == nil || string(r.Body) != "1" {
			t.Error("saved state is lost after a restart")
		}
		began := time.Now()
		if _, err := nodes[3].Put(engine.Put{Key: key, Body: []byte("2")}); err != nil {
			t.Fatal(err)
		}
		if err := nodes[9].SetOwn([]engine.OwnItem{{Key: engine.Key{Kind: "D", Name: "d"}, Body: []byte("after")}}); err !=
			nil {
			t.Fatal(err)
		}
		in := until(t, time.Minute, "the change arrives", func() bool {
			return string(nodes[9].Record(key).Body) == "2"
		}, pass)
		until(t, time.Minute, "its items arrive", func() bool {
			for _, n := range nodes {
				ok := false
				for _, o := range n.Owned() {
					ok = ok || o.Node == simID(9) && len(o.Items) == 1 && string(o.Items[0].Body) == "after" &&
						o.Serving.String() == "serve"
				}
				if !ok {
					return false
				}
			}
			return true
		}, pass)
		t.Logf("restart with a new address: a change of another node is there after %v, "+
			"its own everywhere after %v (goal 1s)", in, time.Since(began))
		if time.Since(began) > time.Second {
			t.Error("goal 8 is not met")
		}
		stopAll(nodes)
		pass(time.Minute) // let memberlist's last timers expire
	})
}

// TestLossAndOneWayCut checks that with 30 % packet loss, and one node that receives nothing from
// another, no node counts as dead for long, and a change reaches all nodes within 2 s.
func TestLossAndOneWayCut(t *testing.T) {
	const size = 20
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s := newSimnet()
		nodes, full := simCluster(t, s, size)
		until(t, time.Minute, "all know all", full, pass)
		s.mu.Lock()
		s.loss = 0.3
		s.deaf = [2]string{simAddr(4), simAddr(5)}
		s.mu.Unlock()
		worst, missing := time.Duration(0), 0
		for i := range 20 {
			pass(3 * time.Second)
			if _, err := nodes[i%size].Put(engine.Put{Key: keyA, Body: []byte(fmt.Sprint(i))}); err != nil {
				t.Fatal(err)
			}
			elapsed := until(t, 10*time.Second, "the change", func() bool {
				for _, n := range nodes {
					if r := n.Record(keyA); r == nil || string(r.Body) != fmt.Sprint(i) {
						return false
					}
				}
				return true
			}, pass)
			worst = max(worst, elapsed)
			if !full() {
				missing++
			}
			for _, n := range nodes {
				for _, o := range n.Owned() {
					if o.Serving.String() == "removed" {
						t.Errorf("the items of node %s are removed", o.Name)
					}
				}
			}
		}
		t.Logf("30 %% loss and a cut one way: a change is everywhere within %v (goal 2s); "+
			"in %d of 20 looks somebody was taken for dead", worst, missing)
		if worst > 2*time.Second {
			t.Error("goal 3 is not met")
		}
		s.mu.Lock()
		s.loss, s.deaf = 0, [2]string{}
		s.mu.Unlock()
		until(t, 30*time.Second, "all know all again", full, pass)
		stopAll(nodes)
		pass(time.Minute)
	})
}

// simCluster starts size nodes. full reports whether each knows all others.
func simCluster(t *testing.T, s *simnet, size int) (nodes []running, full func() bool) {
	for i := range size {
		nodes = append(nodes, simNode(t, s, i, newMemory(), simAddr(i)))
	}
	return nodes, func() bool {
		return !slices.ContainsFunc(nodes, func(n running) bool { return alive(n) != size })
	}
}
