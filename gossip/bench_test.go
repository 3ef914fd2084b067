package gossip

import (
	"fmt"
	"testing"
)

// BenchmarkPutToPeer is the time from a change on one node, whose storage is memory, to the watcher of another, over loopback with encryption.
func BenchmarkPutToPeer(b *testing.B) {
	var nodes []running
	for i := range 2 {
		nodes = append(nodes, run(b, Options{Self: simID(i), Bind: loopback, Storage: newMemory(), Seeds: func() (out []string) {
			for _, n := range nodes {
				out = append(out, n.Addr().String())
			}
			return out
		}}))
	}
	w := nodes[1].Watch()
	for alive(nodes[0]) < 2 || alive(nodes[1]) < 2 {
		nodes[1].Join(nodes[0].Addr().String())
	}
	i := 0
	for b.Loop() {
		i++
		want := fmt.Sprint(i)
		if _, err := nodes[0].Put(Put{Key: keyA, Body: []byte(want)}); err != nil {
			b.Fatal(err)
		}
		for body(nodes[1], keyA) != want {
			<-w.C()
			w.Take()
		}
	}
	stopAll(nodes)
}
