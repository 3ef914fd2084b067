package gossip

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
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
		if n.joinSeeds(); n.Alone() != c.want {
			t.Errorf("with the seeds %q: alone %t", c.seeds, n.Alone())
		}
	}
	for what, want := range map[string]int{"cannot resolve": 1, "not host:port": 1} {
		if got := strings.Count(out.String(), what); got != want {
			t.Errorf("%d lines with %q: %s", got, what, &out)
		}
	}
}
