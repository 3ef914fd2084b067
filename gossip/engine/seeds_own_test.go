package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// worldDirectory is the directory that the nodes of a world publish.
var worldDirectory = NodeID{0xd1}

func (s *sim) publishDirectory(n *simNode) {
	items := ownItems(s.rng.IntN(9), fmt.Sprint(s.rng.IntN(1000)))
	s.logf("%d publishes %d", n.i, len(items))
	s.step(n, Own{Owner: worldDirectory, Detail: fmt.Sprint("commit ", s.rng.IntN(3)), Items: items})
}

// verifyDirectory publishes the directory on a random node, and checks it on all nodes.
func (s *sim) verifyDirectory() error {
	items := ownItems(7, "last")
	s.step(s.nodes[s.rng.IntN(len(s.nodes))], Own{Owner: worldDirectory, Detail: "last", Items: items})
	s.run(20 * time.Second)
	for _, n := range s.nodes {
		list := n.engine.Directories()
		if len(list) != 1 || list[0].Detail != "last" || len(n.engine.Items(list[0])) != len(items) {
			return fmt.Errorf("node %d has the directories %+v", n.i, list)
		}
		for i, x := range n.engine.Items(list[0]) {
			if string(x.Body) != string(items[i].Body) {
				return fmt.Errorf("node %d has %q in the directory, want %q", n.i, x.Body, items[i].Body)
			}
		}
	}
	return nil
}

func (s *sim) verifyOwn(n *simNode) error {
	for _, o := range s.nodes {
		m := n.engine.Manifest(o.id)
		if o.items == nil {
			continue
		}
		if m == nil {
			return fmt.Errorf("node %d does not know the items of node %d", n.i, o.i)
		}
		var got, want []string
		for _, x := range n.engine.Items(m) {
			got = append(got, x.Key.Name+string(x.Body))
		}
		for _, x := range o.items {
			want = append(want, x.Key.Name+string(x.Body))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("node %d has these items of node %d: %.80q, want %.80q", n.i, o.i, got, want)
		}
		if sv := n.engine.Serving(o.id); sv != Serve {
			return fmt.Errorf("node %d does not serve the items of node %d: %v", n.i, o.i, sv)
		}
	}
	return nil
}

func (s *sim) own(n *simNode) {
	if s.rng.IntN(4) == 0 {
		s.publishDirectory(n)
		return
	}
	n.items = []OwnItem{}
	for i := range s.rng.IntN(4) * (1 + s.rng.IntN(4)) {
		size := []int{10, 10, 3000}[s.rng.IntN(3)]
		n.items = append(n.items,
			OwnItem{Key{Kind: "D", Mesh: "m", Name: fmt.Sprint(n.i, "-", i)},
				[]byte(strings.Repeat(fmt.Sprint(s.rng.IntN(10)), size))})
	}
	s.logf("%d owns %d", n.i, len(n.items))
	s.step(n, Own{Items: n.items})
}
