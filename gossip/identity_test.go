package gossip

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// logBuffer collects the log of a node.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// clone returns a copy of the saved state.
func (m *memory) clone() *memory {
	out := newMemory()
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, op := range m.values {
		out.values[k] = op
	}
	return out
}

// item is the item that a node publishes under a name.
func item(name string) []engine.OwnItem {
	return []engine.OwnItem{{Key: engine.Key{Kind: "D", Mesh: "m", Name: name}, Body: []byte(name)}}
}

// owner returns the ID of the only node that publishes an item, as seen by n, and whether it is
// served.
func owner(n running, name string) (id engine.NodeID, served bool) {
	found := 0
	for _, o := range n.Owned() {
		for _, x := range o.Items {
			if x.Key.Name == name {
				found++
				id, served = o.Node, o.Serving == engine.Serve
			}
		}
	}
	return id, served && found == 1
}

// address returns the address of a live node as seen by n, or "".
func address(n running, id engine.NodeID) string {
	for _, m := range n.Members() {
		if m.Node == id && m.State == StateAlive {
			return m.Addr.String()
		}
	}
	return ""
}

func newID(i int) func() (engine.NodeID, sign.Signer, error) {
	return func() (engine.NodeID, sign.Signer, error) { return simID(i), nil, nil }
}

// owns reports whether all nodes serve an item of a node.
func owns(nodes []running, name string, id engine.NodeID) func() bool {
	return func() bool {
		for _, n := range nodes {
			if got, ok := owner(n, name); !ok || got != id {
				return false
			}
		}
		return true
	}
}

// TestCopyTakesNewID starts a node from the copied state of a live one. Whichever of them other
// nodes meet first, the one that started first keeps its ID, address, and items, the other one gets
// a new ID, and both report it.
func TestCopyTakesNewID(t *testing.T) {
	for name, seedsOfCopy := range map[string]int{"the copy joins the original": 2, "the copy joins another node": 0} {
		t.Run(name, func(t *testing.T) {
			store := newMemory()
			var logs [2]logBuffer
			a := socketNode(t, 1, Options{})
			b := socketNode(t, 2, Options{}, a)
			original := socketNode(t, 3, Options{Storage: store, Log: logs[0].logger(), NewID: newID(8)}, a)
			if err := original.SetOwn(item("original")); err != nil {
				t.Fatal(err)
			}
			all := []running{a, b, original}
			waitFor(t, a, "the original", owns(all, "original", simID(3)))
			at := original.Addr().String()

			copied := socketNode(t, 3, Options{Storage: store.clone(), Log: logs[1].logger(), NewID: newID(9)}, all[seedsOfCopy])
			if err := copied.SetOwn(item("copy")); err != nil {
				t.Fatal(err)
			}
			all = append(all, copied)
			waitFor(t, copied, "the copy has a new ID", func() bool { return copied.Self() == simID(9) })
			for _, n := range all {
				waitFor(t, n, "four members", members(n, 4))
			}
			waitFor(t, a, "items of both", func() bool {
				return owns(all, "original", simID(3))() && owns(all, "copy", simID(9))()
			})
			for _, n := range []running{a, b, copied} {
				if got := address(n, simID(3)); got != at {
					t.Errorf("%s: the original is at %s, want %s", n.opt.Name, got, at)
				}
			}
			waitFor(t, original, "its report", func() bool { return original.Stats().Cloned != "" })
			for i, n := range []running{original, copied} {
				other := []running{copied, original}[i].Addr().String()
				if text := n.Stats().Cloned; !strings.Contains(text, other) || !strings.Contains(logs[i].String(), "ID") {
					t.Errorf("node %d reports %q, which does not name %s; log: %s", i, text, other, logs[i].String())
				}
			}
			if original.Self() != simID(3) || strings.Contains(logs[0].String(), "took a new ID") {
				t.Errorf("the original has the ID %s", original.Self())
			}
			// Records of both spread.
			for i, n := range []running{original, copied} {
				key := engine.Key{Kind: "K", Mesh: "m", Name: string(rune('x' + i))}
				if _, err := n.Put(engine.Put{Key: key, Body: []byte("1")}); err != nil {
					t.Fatal(err)
				}
				waitFor(t, b, "a record of both", func() bool { return body(b, key) == "1" })
			}
			stopAll(all)
		})
	}
}

// TestCopyStartedFirst starts a copy while the original does not run. The copy was there first, so
// the original takes a new ID when it starts.
func TestCopyStartedFirst(t *testing.T) {
	store := newMemory()
	a := socketNode(t, 1, Options{})
	original := socketNode(t, 3, Options{Storage: store}, a)
	waitFor(t, a, "two members", members(a, 2))
	original.stop()
	copied := socketNode(t, 3, Options{Storage: store.clone(), NewID: newID(9)}, a)
	if err := copied.SetOwn(item("copy")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, a, "the copy", owns([]running{a}, "copy", simID(3)))
	later := func() time.Time { return time.Now().Add(5 * time.Second) } // epochs count seconds
	original = socketNode(t, 3, Options{Storage: store, NewID: newID(8), Now: later}, a)
	if err := original.SetOwn(item("original")); err != nil {
		t.Fatal(err)
	}
	all := []running{a, original, copied}
	waitFor(t, original, "a new ID", func() bool { return original.Self() == simID(8) })
	waitFor(t, a, "items of both", func() bool {
		return owns(all, "original", simID(8))() && owns(all, "copy", simID(3))()
	})
	if copied.Self() != simID(3) {
		t.Errorf("the first process has the ID %s", copied.Self())
	}
	waitFor(t, copied, "its report", func() bool { return copied.Stats().Cloned != "" })
	stopAll(all)
}

// TestCopiesMeetLater lets an original and its copy run apart, each with an own pool, and then
// joins the pools.
func TestCopiesMeetLater(t *testing.T) {
	store := newMemory()
	a, b := socketNode(t, 1, Options{}), socketNode(t, 2, Options{})
	original := socketNode(t, 3, Options{Storage: store, NewID: newID(8)}, a)
	copied := socketNode(t, 3, Options{Storage: store.clone(), NewID: newID(9)}, b)
	if err := errors.Join(original.SetOwn(item("original")), copied.SetOwn(item("copy"))); err != nil {
		t.Fatal(err)
	}
	waitFor(t, a, "the original", owns([]running{a}, "original", simID(3)))
	waitFor(t, b, "the copy", owns([]running{b}, "copy", simID(3)))
	if a.Join(b.Addr().String()) == 0 {
		t.Fatal("the pools cannot be joined")
	}
	all := []running{a, b, original, copied}
	waitFor(t, copied, "a new ID", func() bool { return copied.Self() == simID(9) })
	waitFor(t, a, "items of both", func() bool {
		return owns(all, "original", simID(3))() && owns(all, "copy", simID(9))()
	})
	waitFor(t, original, "its report", func() bool { return original.Stats().Cloned != "" })
	if original.Self() != simID(3) || original.Stats().Stats.Cloned {
		t.Errorf("the original has the ID %s, engine %+v", original.Self(), original.Stats().Stats)
	}
	stopAll(all)
}

// TestCopiesOfOneSecond starts two processes from one state in the same second, so they have the
// same member name. One of them takes a new ID.
func TestCopiesOfOneSecond(t *testing.T) {
	fixed := time.Now()
	clock := func() time.Time { return fixed }
	x := socketNode(t, 3, Options{NewID: newID(8), Now: clock})
	y := socketNode(t, 3, Options{NewID: newID(9), Now: clock}, x)
	all := []running{x, y}
	if err := errors.Join(x.SetOwn(item("x")), y.SetOwn(item("y"))); err != nil {
		t.Fatal(err)
	}
	waitFor(t, x, "two members", func() bool { return members(x, 2)() && members(y, 2)() })
	if x.Self() == y.Self() || x.Self() != simID(3) && y.Self() != simID(3) {
		t.Errorf("the IDs are %s and %s", x.Self(), y.Self())
	}
	waitFor(t, x, "items of both", func() bool { return owns(all, "x", x.Self())() && owns(all, "y", y.Self())() })
	for _, n := range all {
		waitFor(t, n, "its report", func() bool { return n.Stats().Cloned != "" })
	}
	stopAll(all)
}

// TestNewAddressReplacesDeadOne restarts a node at another address. Peers use the new address at
// once, and nothing reports a copy.
func TestNewAddressReplacesDeadOne(t *testing.T) {
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		s, store := newSimnet(), newMemory()
		start := func(addr string) running {
			o := simOptions(s, 3, store, addr)
			o.NewID = newID(9)
			return run(t, o)
		}
		a, n := simNode(t, s, 0, newMemory(), simAddr(0)), start(simAddr(3))
		until(t, time.Minute, "two members", members(a, 2), time.Sleep)
		n.stop()
		const next = "10.0.9.9:7946"
		n = start(next)
		// memberlist needs longer to count the old address as dead
		until(t, 3*time.Second, "the new address", func() bool { return address(a, simID(3)) == next }, time.Sleep)
		if n.Addr().String() != next || n.Self() != simID(3) || n.Stats().Cloned != "" || a.Stats().Cloned != "" {
			t.Errorf("address %s, ID %s, reports %q", n.Addr(), n.Self(), n.Stats().Cloned)
		}
		stopAll([]running{a, n})
		time.Sleep(time.Minute) // let memberlist's last timers expire
	})
}

// TestCopyWithoutNewID checks that a copy that cannot take a new ID does not replace the original,
// and that both report it.
func TestCopyWithoutNewID(t *testing.T) {
	store := newMemory()
	a := socketNode(t, 1, Options{})
	original := socketNode(t, 3, Options{Storage: store}, a)
	waitFor(t, a, "two members", members(a, 2))
	failing := func() (engine.NodeID, sign.Signer, error) { return engine.NodeID{}, nil, errors.New("read-only disk") }
	copied := socketNode(t, 3, Options{Storage: store.clone(), NewID: failing}, a)
	waitFor(t, copied, "its report", func() bool { return strings.Contains(copied.Stats().Cloned, "read-only disk") })
	waitFor(t, original, "its report", func() bool {
		return strings.Contains(original.Stats().Cloned, copied.Addr().String())
	})
	if got := address(a, simID(3)); got != original.Addr().String() {
		t.Errorf("the address is %s", got)
	}
	// When the original ends, the copy represents the node.
	original.stop()
	waitFor(t, a, "the copy", func() bool { return address(a, simID(3)) == copied.Addr().String() })
	stopAll([]running{a, copied})
}

// TestCopiedStateAtStart checks that evidence of a copy gives a new ID before the node joins.
func TestCopiedStateAtStart(t *testing.T) {
	store := newMemory()
	first := socketNode(t, 3, Options{Storage: store})
	first.stop()
	o := Options{Storage: store, NewID: newID(9), Copied: "the state was saved on another machine"}
	n := socketNode(t, 3, o)
	if text := n.Stats().Cloned; n.Self() != simID(9) || !strings.Contains(text, "another machine") {
		t.Errorf("ID %s, report %q", n.Self(), text)
	}
	n.stop()
	o.NewID = func() (engine.NodeID, sign.Signer, error) { return engine.NodeID{}, nil, errors.New("read-only disk") }
	o.Self, o.Cluster, o.Insecure = simID(3), "test", true
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "read-only disk") {
		t.Errorf("without a new ID: %v", err)
	}
}
