package gossip

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// rows returns the stored rows of the roster by node.
func (m *memory) rows() map[engine.NodeID]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[engine.NodeID]string{}
	for _, op := range m.values {
		if op.Bucket == bucketRoster {
			out[engine.NodeID([]byte(op.Key))] = string(op.Value)
		}
	}
	return out
}

func (m *memory) setRow(id engine.NodeID, row string) {
	_ = m.Write([]engine.Op{{Bucket: bucketRoster, Key: string(id[:]), Value: []byte(row)}})
}

// lookUp returns a member as seen by a node; ok is false if it is not listed.
func lookUp(n running, id engine.NodeID) (m Member, ok bool) {
	for _, m := range n.Members() {
		if m.Node == id {
			return m, true
		}
	}
	return m, false
}

// fakeMember reports a member that does not exist to a node.
func fakeMember(n running, m meta, up bool) {
	m.protocol = Protocol{engine.ProtocolMin, engine.ProtocolMax}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, m.node[0], m.node[1]}), 7946)
	n.noteMember(&memberlist.Node{Name: m.member(), Addr: net.IP(addr.Addr().AsSlice()), Port: addr.Port(),
		Meta: m.encode()}, up)
}

// TestDeathIsRemembered checks that a dead member keeps its name and the time of its death over a
// restart of the observer, and that the log names a member that dies, returns, and leaves.
func TestDeathIsRemembered(t *testing.T) {
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s, store := newSimnet(), newMemory()
		var log logBuffer
		start := func() running {
			return run(t, Options{Self: simID(0), Name: "node-0", Storage: store, Log: log.logger(),
				transport: func() memberlist.NodeAwareTransport { return s.host(simAddr(0)) }})
		}
		a, other := start(), simNode(t, s, 1, newMemory(), simAddr(1))
		until(t, time.Minute, "two members", members(a, 2), pass)
		joined := a.wall()
		pass(40 * time.Minute)
		if m, _ := lookUp(a, simID(1)); m.Since.Sub(joined).Abs() > time.Second {
			t.Errorf("it is alive since %s, want %s", m.Since, joined)
		}
		other.stop()
		until(t, time.Minute, "one member", members(a, 1), pass)
		dead, _ := lookUp(a, simID(1))
		if dead.State != StateDead || time.Since(dead.Since) > time.Second {
			t.Errorf("the dead member: %+v", dead)
		}
		pass(time.Second)
		a.stop()
		pass(2 * time.Hour)
		a = start()
		pass(time.Minute)
		if m, _ := lookUp(a, simID(1)); m.Name != "node-1" || m.State != StateDead ||
			m.Since.Unix() != dead.Since.Unix() {
			t.Errorf("after a restart: %+v, want %+v", m, dead)
		}
		other = simNode(t, s, 1, newMemory(), simAddr(1))
		until(t, time.Minute, "two members", members(a, 2), pass)
		if err := other.SetOwn(item("x")); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if err := other.Leave(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		other.stop()
		until(t, time.Minute, "it left", func() bool { m, _ := lookUp(a, simID(1)); return m.State == StateLeft }, pass)
		pass(15 * time.Second)
		if row, ok := store.rows()[simID(1)]; ok {
			t.Errorf("the row of a node that left is still stored: %s", row)
		}
		for _, what := range []string{"is dead", "has returned", "has left"} {
			if line := `member node-1 (` + simAddr(1) + `) ` + what; strings.Count(log.String(), line) != 1 {
				t.Errorf("the log has not exactly one line %q:\n%s", line, log.String())
			}
		}
		a.stop()
		pass(time.Minute)
	})
}

// TestRosterForgetsDeadNodes checks which rows survive: rows of earlier builds, of nodes that were
// alive when this node stopped, and of nodes dead for less than a day.
func TestRosterForgetsDeadNodes(t *testing.T) {
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s, store := newSimnet(), newMemory()
		ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }
		store.setRow(simID(11), "10.0.0.11:7946")
		store.setRow(simID(12), "10.0.0.12:7946 "+ago(25*time.Hour)+" "+ago(24*time.Hour-2*time.Minute)+" web 12")
		store.setRow(simID(13), "10.0.0.13:7946 "+ago(25*time.Hour)+" "+ago(20*time.Hour)+" web-13")
		store.setRow(simID(14), "10.0.0.14:7946 "+ago(72*time.Hour)+" - web-14")
		store.setRow(simID(15), "no address")
		a := simNode(t, s, 0, store, simAddr(0))
		listed := func() (out []string) {
			for _, m := range a.Members() {
				if !m.Self {
					out = append(out, fmt.Sprintf("%s %s %s", m.Addr, m.State, m.Name))
				}
			}
			return out
		}
		pass(time.Second)
		want := "[10.0.0.11:7946 dead  10.0.0.12:7946 dead web 12 10.0.0.13:7946 dead web-13 10.0.0.14:7946 dead web-14]"
		if got := fmt.Sprint(listed()); got != want {
			t.Errorf("at first: %s", got)
		}
		if m, _ := lookUp(a, simID(14)); time.Since(m.Since).Round(time.Hour) != 72*time.Hour {
			t.Errorf("a node last seen three days ago is dead since %s", m.Since)
		}
		pass(5 * time.Minute)
		if _, ok := lookUp(a, simID(12)); ok || store.rows()[simID(12)] != "" {
			t.Error("a node that has been dead for a day is still listed or stored")
		}
		pass(time.Hour)
		if got := fmt.Sprint(listed()); got != "[10.0.0.11:7946 dead  10.0.0.13:7946 dead web-13]" {
			t.Errorf("after an hour: %s", got)
		}
		a.Forget(simID(13))
		pass(time.Second)
		if _, ok := lookUp(a, simID(13)); ok || store.rows()[simID(13)] != "" {
			t.Error("a forgotten node is still listed or stored")
		}
		a.stop()
		pass(time.Minute)
	})
}

// TestFullRoster checks that a new node takes the place of the node that has been dead for the
// longest time, and that nodes are ignored only if all others are alive.
func TestFullRoster(t *testing.T) {
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s, store := newSimnet(), newMemory()
		a := run(t, Options{Self: simID(0), Storage: store, rosterLimit: 3,
			transport: func() memberlist.NodeAwareTransport { return s.host(simAddr(0)) }})
		for i := 1; i <= 3; i++ {
			fakeMember(a, meta{node: simID(i), epoch: 1}, true)
		}
		pass(time.Second)
		fakeMember(a, meta{node: simID(4), epoch: 1}, true)
		pass(time.Second)
		if _, ok := lookUp(a, simID(4)); ok || a.Stats().RosterFull != 1 {
			t.Errorf("a roster of live nodes grew: %v, ignored %d", a.Members(), a.Stats().RosterFull)
		}
		for _, i := range []int{2, 1} {
			fakeMember(a, meta{node: simID(i), epoch: 1}, false)
			pass(time.Second)
		}
		fakeMember(a, meta{node: simID(5), epoch: 1}, true)
		pass(time.Second)
		got := store.rows()
		for i, want := range map[int]bool{1: true, 2: false, 3: true, 5: true} {
			_, listed := lookUp(a, simID(i))
			if _, stored := got[simID(i)]; listed != want || stored != want {
				t.Errorf("node %d: listed %v, stored %v, want %v", i, listed, stored, want)
			}
		}
		a.stop()
		pass(time.Minute)
	})
}

// TestThousandNodesComeAndGo lets a thousand nodes join and leave. The rosters of the nodes that
// stay do not grow.
func TestThousandNodesComeAndGo(t *testing.T) {
	size := 1000
	if testing.Short() {
		size = 200
	}
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d) }
		s, store := newSimnet(), newMemory()
		a := simNode(t, s, 0, store, simAddr(0))
		const batch = 20
		for first := 1; first < size; first += batch {
			var nodes []running
			for i := first; i < first+batch; i++ {
				n := simNode(t, s, i, newMemory(), simAddr(i))
				if err := n.SetOwn(item(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
				nodes = append(nodes, n)
			}
			until(t, time.Minute, "all are there", func() bool { return alive(a) == 1+batch }, pass)
			for _, n := range nodes {
				if err := n.Leave(context.Background(), nil); err != nil {
					t.Log(err) // memberlist sometimes reports no end of its broadcast
				}
			}
			stopAll(nodes)
			until(t, time.Minute, "all left", func() bool { return alive(a) == 1 }, pass)
		}
		pass(leftFor + time.Minute)
		if got := a.Members(); len(got) != 1 || len(store.rows()) != 0 {
			t.Errorf("%d members are listed and %d stored", len(got), len(store.rows()))
		}
		a.stop()
		pass(time.Minute)
	})
}
