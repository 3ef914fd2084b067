package engine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

func manySaved(b *testing.B, n int) []Op {
	var saved []Op
	for i := range n {
		r, err := successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i)}, nil, record.Wall(simStart),
			Writer{byte(i), byte(i >> 8)}, false, "application/json", []byte(strings.Repeat("x", 650)))
		if err != nil {
			b.Fatal(err)
		}
		saved = append(saved, recordOp(r))
	}
	return saved
}

// BenchmarkLoad measures a start with 100,000 records of 730 bytes on disk. The heap holds the
// records once, because they share the saved bytes.
func BenchmarkLoad(b *testing.B) {
	saved := manySaved(b, 100000)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		e, _ := New(Config{Self: NodeID{1}, Random: rand.IntN, Limits: Limits{WriterRecords: 1 << 20}}, at(simStart), saved)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-beside-records")
		runtime.KeepAlive(e)
	}
}

// BenchmarkReceive measures receiving a record of 1 KB with 100,000 records stored.
func BenchmarkReceive(b *testing.B) {
	e, _ := New(Config{Self: NodeID{1}, Member: "self", Random: rand.IntN, Limits: Limits{WriterRecords: 1 << 20}},
		at(simStart), manySaved(b, 100000))
	for i := range 10 {
		e.Step(at(simStart), PeerUp{Member: fmt.Sprint("peer-", i), Node: NodeID{byte(i + 2)}, Features: Features})
	}
	now, i := simStart, 0
	body := []byte(strings.Repeat("y", 900))
	b.ReportAllocs()
	for b.Loop() {
		now, i = now.Add(10*time.Millisecond), i+1
		r, err := successor(Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(i % 100000)}, nil, record.Wall(now), Writer{byte(i)},
			false, "text", body)
		if err != nil {
			b.Fatal(err)
		}
		e.Step(at(now), Received{(&message{From: "peer-1", Records: []*Record{r}}).encode()})
	}
}

// BenchmarkOwn measures a change of one of 5,000 items of this node.
func BenchmarkOwn(b *testing.B) {
	e, _ := New(Config{Self: NodeID{1}, Random: rand.IntN}, at(simStart), nil)
	items := ownItems(5000, strings.Repeat("x", 600))
	e.Step(at(simStart), Own{Items: items})
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		items = slices.Clone(items)
		items[i%5000].Body = fmt.Append(nil, i)
		e.Step(at(simStart), Own{Items: items})
	}
}
