package losstest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/peers"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// States of a file.
const (
	older   = "older"
	newer   = "newer"
	missing = "missing"
	other   = "other" // of node-key: the key of another node
)

// Contents of the pools in these tests.
const (
	oldContent = "default fromb=1s gone=1s slow=1s"
	newContent = "default fromb=1s late=1s slow=2s"
)

func apply(t testing.TB, n *node, document string) {
	t.Helper()
	r, err := decode([]byte(document))
	do(t, err)
	_, err = n.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Author: "test", Durable: true,
		Ops: []store.Op{{Put: r}}})
	do(t, err)
}

func remove(t testing.TB, n *node, name string) {
	t.Helper()
	_, err := n.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Author: "test", Durable: true,
		Ops: []store.Op{{Delete: resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: name}}}})
	do(t, err)
}

// anyContent lets agree accept every content.
const anyContent = "*"

// agree waits until all nodes have the same versions, and these resources are in force.
func agree(t testing.TB, content string, nodes ...*node) {
	t.Helper()
	late := time.After(agenttest.Patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		equal := true
		for _, n := range nodes {
			have := shared(n.store)
			equal = equal && versions(n.store) == versions(nodes[0].store) &&
				(have == content || content == anyContent && have == shared(nodes[0].store))
		}
		if equal {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			for _, n := range nodes {
				t.Errorf("%s: %s\n%s\n%s", n.name, live(n.store), versions(n.store), n.log)
			}
			t.Fatalf("the nodes do not agree on %s", content)
		}
	}
}

// shared returns the resources of the pool in force.
func shared(s *store.Store) string {
	return strings.TrimPrefix(live(s), "web ") // the Dataplane of a node
}

// savedPool returns the older and newer files of three nodes by name.
func savedPool(t *testing.T) map[string][]byte {
	t.Helper()
	saved := map[string][]byte{}
	var nodes []*node
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	startAll := func() {
		nodes = nil
		for i, name := range []string{"a", "b", "c"} {
			nodes = append(nodes, start(t, dirs[i], name, nodes...))
		}
	}
	stop := func(age string) {
		for i, n := range nodes {
			n.Stop()
			for _, file := range []string{"nearside.db", "node-key"} {
				b, err := os.ReadFile(filepath.Join(dirs[i], file))
				do(t, err)
				saved[n.name+"-"+age+"/"+file] = b
			}
		}
	}
	startAll()
	apply(t, nodes[0], "type: Mesh\nname: default\n")
	apply(t, nodes[0], timeout("slow", "1s"))
	apply(t, nodes[0], timeout("gone", "1s"))
	apply(t, nodes[1], timeout("fromb", "1s"))
	agree(t, oldContent, nodes...)
	stop(older)
	startAll()
	apply(t, nodes[1], timeout("slow", "2s"))
	remove(t, nodes[0], "gone")
	apply(t, nodes[0], timeout("late", "1s"))
	agree(t, newContent, nodes...)
	stop(newer)
	return saved
}

// expected returns the content of a pool whose nodes have these files.
func expected(states ...string) string {
	switch {
	case slices.Contains(states, newer):
		return newContent
	case slices.Contains(states, older):
		return oldContent
	}
	return ""
}

// TestFiles starts pools of three nodes, each with a newer, an older, or no nearside.db, and with
// its node-key, that of another node, or none. A node with another key needs another name.
func TestFiles(t *testing.T) {
	t.Parallel()
	saved := savedPool(t)
	ages, ids := []string{newer, older, missing}, []string{newer, other, missing}
	try := func(databases, identities [3]string) {
		t.Run(fmt.Sprintf("nearside.db %v, node-key %v", databases, identities), func(t *testing.T) {
			t.Parallel()
			var nodes []*node
			for i, name := range []string{"a", "b", "c"} {
				dir := t.TempDir()
				if databases[i] != missing {
					placeFile(t, dir, "nearside.db", saved[name+"-"+databases[i]+"/nearside.db"])
				}
				switch identities[i] {
				case newer:
					placeFile(t, dir, "node-key", saved[name+"-newer/node-key"])
				case other:
					_, err := peers.OpenIdentity(dir)
					do(t, err)
					fallthrough
				default:
					name += "-renamed"
				}
				nodes = append(nodes, start(t, dir, name, nodes...))
			}
			agree(t, expected(databases[:]...), nodes...)
			writable(t, nodes)
			for i, n := range nodes {
				reported(t, n, databases[i], identities[i], databases[:])
			}
		})
	}
	for _, database := range ages {
		for _, id := range ids {
			for changed := 1; changed <= 3; changed++ { // the same files on one, two, and all nodes
				databases, identities := [3]string{newer, newer, newer}, [3]string{newer, newer, newer}
				for i := range changed {
					databases[i], identities[i] = database, id
				}
				try(databases, identities)
			}
		}
	}
	for i := range 27 { // other files on each node
		databases := [3]string{ages[i/9], ages[i/3%3], ages[i%3]}
		identities := [3]string{ids[i%3], ids[i/3%3], ids[(i+i/9)%3]}
		for j, d := range databases {
			if j > 0 && d == missing { // a node with an ID but no state starts slowly
				identities[j] = missing
			}
		}
		try(databases, identities)
	}
}

// reported checks what a node has logged about its files.
func reported(t *testing.T, n *node, database, id string, all []string) {
	t.Helper()
	for text, want := range map[string]bool{
		"no state of the pool is on disk": database == missing && id != missing,
		"node-key is missing":             database != missing && id == missing,
		"belong to different nodes":       database != missing && id == other,
		"came back from other nodes": !strings.HasPrefix(n.name, "c") && database != newer && id == newer &&
			(slices.Contains(all, newer) || database == missing && slices.Contains(all, older)),
	} {
		if want { // the node may log it after its peers have everything
			agenttest.Eventually(t, n.name+" logs: "+text, func() bool { return strings.Contains(n.log.String(), text) })
		}
		if got := strings.Contains(n.log.String(), text); got != want {
			t.Errorf("%s has nearside.db %s, node-key %s; %q logged: %t\n%s", n.name, database, id, text, got, n.log)
		}
	}
}

// writable checks that a write and a deletion on each node reach all nodes.
func writable(t *testing.T, nodes []*node) {
	t.Helper()
	content := shared(nodes[0].store)
	for _, n := range nodes {
		apply(t, n, timeout("zz", "9s"))
		agree(t, strings.TrimSpace(content+" zz=9s"), nodes...)
		remove(t, n, "zz")
		agree(t, content, nodes...)
	}
}

// TestFilesOfFirstRelease migrates pools of two nodes, of which one or both have older or no files.
func TestFilesOfFirstRelease(t *testing.T) {
	t.Parallel()
	for changed := 1; changed <= 2; changed++ {
		for _, pool := range []string{older, newer, missing} {
			for _, database := range []string{older, newer, missing} {
				for _, id := range []string{newer, other, missing} {
					t.Run(fmt.Sprintf("%d nodes, gossip.db %s, nearside.db %s, node-id %s", changed, pool, database, id),
						func(t *testing.T) {
							t.Parallel()
							var nodes []*node
							for i, name := range []string{"a", "b"} {
								files := map[string]string{"gossip.db": newer, "nearside.db": newer, "node-id": newer}
								if i < changed {
									files = map[string]string{"gossip.db": pool, "nearside.db": database, "node-id": id}
								}
								dir := t.TempDir()
								for file, state := range files {
									switch state {
									case older, newer:
										placeFile(t, dir, file, release1(t, name+"-"+state+"/"+file))
									case other:
										placeFile(t, dir, file, fmt.Appendf(nil, "%016x%016x\n", i+1, i+1))
									}
								}
								nodes = append(nodes, start(t, dir, name, nodes...))
							}
							states := []string{pool, database}
							if changed < 2 {
								states = append(states, newer)
							}
							agree(t, expected(states...), nodes...)
							writable(t, nodes)
						})
				}
			}
		}
	}
}
