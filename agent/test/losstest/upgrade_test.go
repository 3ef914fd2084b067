package losstest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// TestUpgradeOfFirstRelease starts a pool from the files of the first release, whose nodes have no
// keys, and stops it once in the middle of the upgrade. Each node keeps its name and resources,
// gets the ID of its key, and retires its former ID.
func TestUpgradeOfFirstRelease(t *testing.T) {
	t.Parallel()
	dirs, names, former := []string{t.TempDir(), t.TempDir()}, []string{"a", "b"}, []string{}
	for i, name := range names {
		for _, file := range []string{"gossip.db", "nearside.db", "node-id"} {
			placeFile(t, dirs[i], file, release1(t, name+"-newer/"+file))
		}
		former = append(former, string(release1(t, name+"-newer/node-id")[:32]))
	}
	for range 2 {
		var nodes []*node
		for i, name := range names {
			nodes = append(nodes, start(t, dirs[i], name, nodes...))
		}
		for _, n := range nodes {
			n.Stop()
		}
	}
	a := start(t, dirs[0], "a")
	b := start(t, dirs[1], "b", a)
	agree(t, newContent, a, b)
	late := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	upgraded := func(n *node, dir, own, peer string) bool {
		if _, err := os.Stat(filepath.Join(dir, "node-id.retired")); err != nil {
			return false
		}
		alive := 0
		for _, m := range n.peers.Members() {
			switch {
			case m.State == api.MemberAlive && m.Signed && m.ID != own && m.ID != peer:
				alive++
			case m.State == api.MemberAlive || m.State == api.MemberRefused:
				return false
			}
		}
		return alive == 2
	}
	for !upgraded(a, dirs[0], former[0], former[1]) || !upgraded(b, dirs[1], former[1], former[0]) {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("members %+v and %+v\n%s\n%s", a.peers.Members(), b.peers.Members(), a.log, b.log)
		}
	}
	agree(t, newContent, a, b)
	writable(t, []*node{a, b})
	for n, want := range map[*node]string{a: "api", b: "peer:a"} { // the Dataplane of node a
		var got []string
		for _, rec := range n.store.Snapshot().Records() {
			if rec.Name == "web" {
				got = append(got, rec.Source.String())
			}
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("node %s has the Dataplane from %v, want %s", n.name, got, want)
		}
	}
}
