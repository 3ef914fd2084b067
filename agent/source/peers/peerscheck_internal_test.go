package peers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// TestNodeProblems checks that each state of a node is reported with the names of the members, and
// that a healthy node reports nothing.
func TestNodeProblems(t *testing.T) {
	limits := engine.Limits{WriterRecords: 100, WriterBytes: 1000}
	member := func(name, state string) gossip.Member { return gossip.Member{Name: name, State: state} }
	healthy := gossip.Stats{Stats: engine.Stats{Limits: limits, Own: engine.Usage{Records: 89, Bytes: 899}}}
	dead := []gossip.Member{{Self: true, State: gossip.StateAlive}}
	for _, name := range strings.Fields("a b c d e f g") {
		dead = append(dead, member(name, gossip.StateDead))
	}
	if got := nodeProblems(&healthy,
		[]gossip.Member{member("a", gossip.StateAlive), member("b", gossip.StateLeft)}); got != nil {
		t.Errorf("healthy: %q", got)
	}
	stats := func(change func(*gossip.Stats)) *gossip.Stats {
		st := healthy
		change(&st)
		return &st
	}
	for _, x := range []struct {
		st      *gossip.Stats
		members []gossip.Member
		want    string
	}{
		{&healthy, dead[:2], "1 member is dead: a; run"},
		{&healthy, dead, "7 members are dead: a, b, c, d, e and 2 more; run"},
		{stats(func(st *gossip.Stats) { st.PacketsLost = true }), nil, "UDP is blocked: no member responds to packets"},
		{&healthy, []gossip.Member{{Name: "a", State: gossip.StateAlive, PacketsLost: true}},
			"UDP is blocked to members, which get messages over TCP: a; allow UDP"},
		{&healthy, []gossip.Member{{Name: "a", State: gossip.StateAlive, Incompatible: true}},
			"no protocol version in common with members, which exchange nothing with this node: a"},
		{stats(func(st *gossip.Stats) { st.RosterFull = 3 }), nil,
			"nodes that were ignored because this node knows too many: 3"},
		{stats(func(st *gossip.Stats) { st.Cloned = "another process" }), nil, "another process"},
		{stats(func(st *gossip.Stats) { st.ClockDiffers = time.Hour }), nil,
			"the clock of a node differs by 1h0m0s from this one"},
		{stats(func(st *gossip.Stats) { st.Own.Records = 90 }), nil,
			"near its limit as the last writer of resources: 90 of 100"},
		{stats(func(st *gossip.Stats) { st.Own.Bytes = 900 }), nil, "900 of 1000 bytes"},
	} {
		if got := nodeProblems(x.st, x.members); len(got) != 1 || !strings.Contains(got[0], x.want) {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}

// TestDifferingMembers checks that differences count after 30 s, with their entries and reasons.
func TestDifferingMembers(t *testing.T) {
	now := time.Now()
	member := func(name string, age time.Duration, list ...engine.Difference) gossip.Member {
		m := gossip.Member{Name: name}
		m.Differs, m.Differences = now.Add(-age), list
		return m
	}
	timeout := engine.Key{Kind: "MeshTimeout", Mesh: "default", Name: "slow"}
	list, longest := differing([]gossip.Member{{Name: "equal"}, member("fresh", 30*time.Second),
		member("b", 45*time.Second, engine.Difference{Key: timeout, Reason: "parked here: dated in the future"},
			engine.Difference{Node: engine.NodeID{7}, Reason: "only here"}), member("c", 31*time.Second)},
		now, func(id engine.NodeID) string { return map[engine.NodeID]string{{7}: "x"}[id] })
	want := []string{"those of node b, for 45s: MeshTimeout/default/slow (parked here: dated in the future), " +
		"items of x (only here)", "those of node c, for 31s"}
	if !slices.Equal(list, want) || longest != 45*time.Second {
		t.Errorf("%q for %s", list, longest)
	}
}
