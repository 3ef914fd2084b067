package gossip

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/pins"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// simSigned starts a node with key i in virtual time. Its seeds are those of simNode.
func simSigned(t *testing.T, s *simnet, i int, addr string, o Options) running {
	t.Helper()
	o.Self, o.Signer = keyID(i), signerOf(i)
	o.transport = func() memberlist.NodeAwareTransport { return s.host(addr) }
	o.Seeds = func() []string { return []string{simAddr(0), simAddr(1), simAddr(2)} }
	return run(t, o)
}

// stateOf returns the state of a node as seen by n, or "".
func stateOf(n running, id engine.NodeID) string {
	m, _ := lookUp(n, id)
	return m.State
}

// TestRestartWithKey restarts a node with the same key at another address.
func TestRestartWithKey(t *testing.T) {
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s, store := newSimnet(), newMemory()
		a := simSigned(t, s, 0, simAddr(0), Options{Name: "a"})
		b := simSigned(t, s, 1, simAddr(1), Options{Name: "b", Storage: store})
		until(t, time.Minute, "two members", members(a, 2), pass)
		pass(2 * time.Second)
		b.stop()
		b = simSigned(t, s, 1, "10.0.9.9:7946", Options{Name: "b", Storage: store})
		in := until(t, time.Minute, "the new address", func() bool { return address(a, keyID(1)) == "10.0.9.9:7946" }, pass)
		if m, _ := lookUp(a, keyID(1)); in > 5*time.Second || !m.Signed || m.Name != "b" {
			t.Errorf("after %v: %+v", in, m)
		}
		stopAll([]running{a, b})
		pass(time.Minute)
	})
}

// agePin moves the last sign of life of a name's key into the past.
func (m *memory) agePin(name string, by time.Duration) {
	op := m.values["pins/"+name]
	at := len(op.Value) - 8
	alive := binary.BigEndian.Uint64(op.Value[at:]) - uint64(by.Milliseconds())
	op.Value = binary.BigEndian.AppendUint64(slices.Clone(op.Value[:at]), alive)
	m.values["pins/"+name] = op
}

// TestLostKey replaces the key of a node that died. Its name is free after 24 h, or at once after
// the former node is forgotten, the name is assigned, or the former key names the present one.
func TestLostKey(t *testing.T) {
	for what, c := range map[string]struct {
		former []Former
		dead   time.Duration // for how long the former key has been dead longer
		action func(a running, pass func(time.Duration))
		within time.Duration
	}{
		"a day passes": {nil, pins.EndsAfter - 10*time.Minute,
			func(_ running, pass func(time.Duration)) { pass(5 * time.Minute) }, 6 * time.Minute},
		"forget": {nil, 0, func(a running, _ func(time.Duration)) { a.Forget(keyID(1)) }, time.Minute},
		"assignment": {nil, 0, func(a running, _ func(time.Duration)) { a.AssignName("b", sign.ID(keyID(7))) },
			time.Minute},
		"statement": {[]Former{{Node: keyID(1), Signer: signerOf(1)}}, 0, nil, time.Minute},
	} {
		t.Run(what, func(t *testing.T) {
			oneProcessor(t)
			synctest.Test(t, func(t *testing.T) {
				pass := func(d time.Duration) { time.Sleep(d) }
				s, store := newSimnet(), newMemory()
				a := simSigned(t, s, 0, simAddr(0), Options{Name: "a", Storage: store})
				b := simSigned(t, s, 1, simAddr(1), Options{Name: "b"})
				until(t, time.Minute, "two members", members(a, 2), pass)
				if err := b.SetOwn(item("before")); err != nil {
					t.Fatal(err)
				}
				until(t, time.Minute, "the item", owns([]running{a}, "before", keyID(1)), pass)
				b.stop()
				until(t, time.Minute, "its death", members(a, 1), pass)
				b = simSigned(t, s, 7, simAddr(1), Options{Name: "b", Former: c.former})
				if err := b.SetOwn(item("after")); err != nil {
					t.Fatal(err)
				}
				if c.former == nil {
					pass(time.Minute)
					if st := stateOf(a, keyID(7)); st != StateRefused || owns([]running{a}, "after", keyID(7))() {
						t.Errorf("a node with another key is %s", st)
					}
					a.stop() // the pin survives a restart
					store.agePin("b", c.dead)
					a = simSigned(t, s, 0, simAddr(0), Options{Name: "a", Storage: store})
					pass(time.Minute)
					if st := stateOf(a, keyID(7)); st != StateRefused {
						t.Errorf("after a restart, the node with another key is %s", st)
					}
					c.action(a, pass)
					if c.dead > 0 && stateOf(a, keyID(7)) != StateRefused {
						t.Error("the name is free before a day has passed")
					}
				}
				until(t, c.within, "the node with the present key", func() bool {
					return stateOf(a, keyID(7)) == StateAlive && owns([]running{a}, "after", keyID(7))()
				}, func(time.Duration) { pass(time.Second) })
				for _, p := range a.Names() {
					if p.Name == "b" && p.Key != sign.ID(keyID(7)) {
						t.Errorf("the name belongs to %s", p.Key)
					}
				}
				stopAll([]running{a, b})
				pass(time.Minute)
			})
		})
	}
}

// TestFormerID upgrades the nodes of a pool one by one from a release without keys. Each publishes
// its items under the ID of its key, keeps its name, and retires its former ID, also on nodes of
// the earlier release.
func TestFormerID(t *testing.T) {
	const size = 3
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s := newSimnet()
		var nodes []running
		var stores []*memory
		for i := range size {
			stores = append(stores, newMemory())
			o := simOptions(s, i, stores[i], simAddr(i))
			o.noFeatures = true
			nodes = append(nodes, run(t, o))
			if err := nodes[i].SetOwn(item(fmt.Sprint("item-", i))); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range nodes {
			until(t, time.Minute, "all know all", members(n, size), pass)
		}
		if _, err := nodes[0].Put(engine.Put{Key: keyA, Body: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, "all agree", func() bool { return agree(nodes) && nodes[2].Record(keyA) != nil }, pass)
		retired := make([]atomic.Bool, size)
		for i := range size {
			nodes[i].stop()
			for kill := range 3 { // each time it ends before the retirement, or in the middle of it
				nodes[i] = simSigned(t, s, 100+i, simAddr(i), Options{Name: fmt.Sprint("node-", i), Storage: stores[i],
					Former: []Former{{Node: simID(i), Retired: func() { retired[i].Store(true) }}}})
				if kill == 2 {
					break
				}
				if kill == 1 {
					if err := nodes[i].SetOwn(item(fmt.Sprint("item-", i))); err != nil {
						t.Fatal(err)
					}
					pass(50 * time.Millisecond)
				}
				nodes[i].stop()
			}
			if err := nodes[i].SetOwn(item(fmt.Sprint("item-", i))); err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes {
				until(t, time.Minute, "its items under the new ID", owns([]running{n}, fmt.Sprint("item-", i), keyID(100+i)), pass)
				until(t, 2*time.Minute, "the former ID has left", func() bool {
					for _, o := range n.Owned() {
						if o.Node == simID(i) && len(o.Items) > 0 {
							return false
						}
					}
					return stateOf(n, simID(i)) != StateAlive && alive(n) == size
				}, pass)
				if m, _ := lookUp(n, keyID(100+i)); m.Name != fmt.Sprint("node-", i) || body(n, keyA) != "1" {
					t.Errorf("the upgraded node: %+v", m)
				}
			}
			until(t, time.Minute, "the end of the retirement", retired[i].Load, pass)
		}
		until(t, time.Minute, "all agree", func() bool { return agree(nodes) }, pass)
		for _, n := range nodes {
			if st := n.Stats(); len(st.Refusals) > 0 || st.Forged > 0 {
				t.Errorf("refusals %v, forged %d", st.Refusals, st.Forged)
			}
		}
		stopAll(nodes)
		pass(time.Minute)
	})
}

// TestFormerIDInUse checks that a node does not retire an ID that another process uses: its state
// was copied before the upgrade.
func TestFormerIDInUse(t *testing.T) {
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s := newSimnet()
		a := simNode(t, s, 0, newMemory(), simAddr(0))
		original := simNode(t, s, 1, newMemory(), simAddr(1))
		if err := original.SetOwn(item("original")); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, "the original", owns([]running{a}, "original", simID(1)), pass)
		copied := simSigned(t, s, 9, simAddr(2), Options{Name: "copy", Former: []Former{{Node: simID(1)}}})
		if err := copied.SetOwn(item("copy")); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Minute)
		if !owns([]running{a, copied}, "original", simID(1))() || !owns([]running{a, original}, "copy", keyID(9))() {
			t.Errorf("members %+v", a.Members())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := original.Leave(ctx, nil); err != nil {
			t.Error(err)
		}
		stopAll([]running{a, original, copied})
		pass(time.Minute)
	})
}

// TestSignedCluster starts many nodes with keys at once, and measures their idle traffic.
func TestSignedCluster(t *testing.T) {
	const size = 50
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s := newSimnet()
		var nodes []running
		for i := range size {
			nodes = append(nodes, simSigned(t, s, i, simAddr(i), Options{Name: fmt.Sprint("node-", i)}))
		}
		in := until(t, time.Minute, "all know all", func() bool {
			return !slices.ContainsFunc(nodes, func(n running) bool { return alive(n) != size })
		}, pass)
		pass(time.Minute)
		s.bytes.Store(0)
		pass(30 * time.Second)
		idle := s.bytes.Load() / 30 / size
		t.Logf("all know all after %v; idle, each node sends %d bytes a second", in, idle)
		if in > 5*time.Second || idle > 400 {
			t.Error("5 s and 400 bytes are allowed")
		}
		for _, n := range nodes {
			if st := n.Stats(); st.Refused+st.Forged > 0 {
				t.Errorf("%s refused %d members, and %d messages", n.opt.Name, st.Refused, st.Forged)
			}
		}
		stopAll(nodes)
		pass(time.Minute)
	})
}
