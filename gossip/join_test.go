package gossip

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAlone: a node whose seeds are only itself is alone. It is not, if a name of a seed cannot be
// resolved or another node may exist. A repeated fault of a name is logged once.
func TestAlone(t *testing.T) {
	var out bytes.Buffer
	n := socketNode(t, 1, Options{Log: slog.New(slog.NewTextHandler(&out, nil))})
	own := n.Addr().String()
	n.stop() // its loop would join, too
	seeds := []string(nil)
	n.opt.Seeds = func() []string { return seeds }
	const bad = "a..b:7946" // never resolved, without a query
	for _, c := range []struct {
		seeds string
		want  bool
	}{
		{own, true}, {bad, false}, {own, true}, {bad + " " + own, false},
		{own + " 127.0.0.1:1", false}, {"no-port", false}, {"no-port", false}, {"", true},
	} {
		seeds = strings.Fields(c.seeds)
		if n.joinSeeds(nil); n.Alone() != c.want {
			t.Errorf("with the seeds %q: alone %t", c.seeds, n.Alone())
		}
	}
	for what, want := range map[string]int{"cannot resolve": 1, "not host:port": 1} {
		if got := strings.Count(out.String(), what); got != want {
			t.Errorf("%d lines with %q: %s", got, what, &out)
		}
	}
}

// TestRestartWithoutSeeds: a node that restarts with a new address returns at once, although nobody
// answers at its seed.
func TestRestartWithoutSeeds(t *testing.T) {
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		s := newSimnet()
		store := newMemory()
		nodes := []running{simNode(t, s, 0, newMemory(), simAddr(0)), simNode(t, s, 1, newMemory(), simAddr(1)),
			simNode(t, s, 2, store, simAddr(2))}
		all := func() bool { return alive(nodes[0]) == 3 && alive(nodes[1]) == 3 && alive(nodes[2]) == 3 }
		until(t, time.Minute, "all know all", all, time.Sleep)
		time.Sleep(5 * time.Second)
		nodes[2].stop()
		const seed = "10.9.9.9:7946"
		s.side[seed] = 1
		o := simOptions(s, 2, store, "10.0.9.2:7946")
		o.Seeds = func() []string { return []string{seed} }
		began := time.Now()
		nodes[2] = run(t, o)
		until(t, time.Minute, "it is back", all, time.Sleep)
		if d := time.Since(began); d > time.Second {
			t.Errorf("it is back after %v", d)
		}
		stopAll(nodes)
		time.Sleep(time.Minute) // let memberlist's last timers expire
	})
}
