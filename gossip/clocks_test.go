package gossip

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// testClock is a wall clock that can be set.
type testClock struct{ ahead atomic.Int64 }

func (c *testClock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

func (c *testClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// clockPool starts nodes whose clocks are ahead by some time. They have known each other for days.
func clockPool(t *testing.T, ahead ...time.Duration) (nodes []running, clocks []*testClock) {
	t.Helper()
	s := newSimnet()
	for i, d := range ahead {
		c := &testClock{}
		c.set(d)
		o := simOptions(s, i, newMemory(), simAddr(i))
		o.Now, o.known = c.now, func(string) time.Time { return time.Now().Add(-48 * time.Hour) }
		nodes = append(nodes, run(t, o))
		clocks = append(clocks, c)
	}
	for _, n := range nodes {
		await(t, "all members", members(n, len(nodes)))
	}
	return nodes, clocks
}

// await passes virtual time until holds returns true. [waitFor] would look again at once if holds
// itself changes the node.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	until(t, patience, what, holds, time.Sleep)
}

func put(n running, name, value string) error {
	_, err := n.Put(engine.Put{Key: engine.Key{Kind: "K", Mesh: "m", Name: name}, Body: []byte(value)})
	return err
}

// everywhere reports whether all nodes have a value in force.
func everywhere(nodes []running, name, value string) func() bool {
	return func() bool {
		for _, n := range nodes {
			if body(n, engine.Key{Kind: "K", Mesh: "m", Name: name}) != value {
				return false
			}
		}
		return true
	}
}

// TestWrongClocks runs pools in which the clocks of a minority are an hour off. That one refuses
// changes within a few rounds of probes, and accepts changes after its clocks were corrected. It
// has changes of the others in force at once if its clock is ahead, or when its clock is right.
func TestWrongClocks(t *testing.T) {
	const h = time.Hour
	for _, ahead := range [][]time.Duration{{0, 0, h}, {0, 0, -h}, {0, h, 0, 0, 0}, {0, h, 0, -h, 0}, {-h, 0, 0, -h, 0}} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			oneProcessor(t)
			synctest.Test(t, func(t *testing.T) {
				wrongClocks(t, ahead)
				time.Sleep(time.Minute) // let memberlist's last timers expire
			})
		})
	}
}

func wrongClocks(t *testing.T, ahead []time.Duration) {
	nodes, clocks := clockPool(t, ahead...)
	began := time.Now()
	for i, n := range nodes {
		if ahead[i] != 0 {
			await(t, "the refusal", func() bool { return errors.Is(put(n, "refused", fmt.Sprint(i)), engine.ErrClock) })
		}
	}
	rounds := time.Since(began).Seconds() / float64(len(nodes)-1)
	t.Logf("%d nodes: all wrong clocks refuse after %.1f rounds of probes", len(nodes), rounds)
	if rounds > 6 {
		t.Error("that is too late")
	}
	for _, n := range nodes { // a node that knows only the clocks of the minority refuses changes too
		await(t, "all clocks", func() bool {
			return !slices.ContainsFunc(n.Members(), func(m Member) bool { return !m.Self && m.Heard.IsZero() })
		})
	}
	var onTime []running // the clocks of the others are behind, so they hold the changes
	for i, n := range nodes {
		if ahead[i] >= 0 {
			onTime = append(onTime, n)
		}
	}
	for i, n := range nodes {
		value := fmt.Sprint(i)
		switch err := put(n, "x", value); {
		case ahead[i] != 0 && !errors.Is(err, engine.ErrClock):
			t.Errorf("node %d, whose clock is wrong: %v", i, err)
		case ahead[i] == 0 && err != nil:
			t.Errorf("node %d: %v", i, err)
		case ahead[i] == 0:
			await(t, "the change on all nodes", everywhere(onTime, "x", value))
		}
		if skew := n.Stats().Skew; (skew + ahead[i]).Abs() > 2*time.Second {
			t.Errorf("node %d measures a difference of %s, want %s", i, skew, -ahead[i])
		}
	}
	for _, c := range clocks {
		c.set(0)
	}
	for i, n := range nodes {
		await(t, "a change is accepted", func() bool { return put(n, fmt.Sprint("own", i), "1") == nil })
		await(t, "the change on all nodes", everywhere(nodes, fmt.Sprint("own", i), "1"))
	}
	held := body(onTime[0], engine.Key{Kind: "K", Mesh: "m", Name: "x"})
	await(t, "the change that was held, on all nodes", everywhere(nodes, "x", held))
	for _, c := range clocks { // when changes before the refusal are no longer in the future
		c.set(time.Hour + time.Minute)
	}
	await(t, "equal stores", func() bool { return agree(nodes) })
	stopAll(nodes)
}

// TestTwoClocksDiffer runs a pool of two whose clocks are an hour apart. It is unknown which one is
// right, so both report the difference and accept changes. When the clock was corrected and the
// time of all changes has come, both have the same changes in force.
func TestTwoClocksDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			oneProcessor(t)
			synctest.Test(t, func(t *testing.T) {
				twoClocksDiffer(t, ahead)
				time.Sleep(time.Minute) // let memberlist's last timers expire
			})
		})
	}
}

func twoClocksDiffer(t *testing.T, ahead time.Duration) {
	nodes, clocks := clockPool(t, 0, ahead)
	differs := func(want time.Duration) func() bool {
		return func() bool {
			a, b := nodes[0].Stats().ClockDiffers, nodes[1].Stats().ClockDiffers
			return (a-want).Abs() < 2*time.Second && (b+want).Abs() < 2*time.Second
		}
	}
	await(t, "both report the difference", differs(ahead))
	for i, n := range nodes {
		if err := put(n, fmt.Sprint("own", i), "1"); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
		if err := put(n, "both", fmt.Sprint(i)); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
	clocks[1].set(0)
	await(t, "no difference", differs(0))
	for _, c := range clocks {
		c.set(ahead.Abs() + time.Minute) // an hour later
	}
	later := map[bool]string{true: "1", false: "0"}[ahead > 0] // the value of the faster clock
	await(t, "equal stores", func() bool {
		return agree(nodes) && everywhere(nodes, "own0", "1")() && everywhere(nodes, "own1", "1")() &&
			everywhere(nodes, "both", later)()
	})
	for i, n := range nodes {
		if err := put(n, "both", fmt.Sprint("after", i)); err != nil {
			t.Error(err)
		}
		await(t, "a later change", everywhere(nodes, "both", fmt.Sprint("after", i)))
	}
	stopAll(nodes)
}
