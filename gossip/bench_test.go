package gossip

import (
	"fmt"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// BenchmarkPutToPeer measures the time from a change on a node with in-memory storage to the
// notification of another node's watcher, over loopback with encryption.
func BenchmarkPutToPeer(b *testing.B) {
	var nodes []running
	for i := range 2 {
		nodes = append(nodes,
			run(b, Options{Self: simID(i), Bind: loopback, Storage: newMemory(), Seeds: func() (out []string) {
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
		if _, err := nodes[0].Put(engine.Put{Key: keyA, Body: []byte(want)}); err != nil {
			b.Fatal(err)
		}
		for body(nodes[1], keyA) != want {
			<-w.C()
			w.Take()
		}
	}
	stopAll(nodes)
}

// BenchmarkIdle measures the CPU time, traffic, and heap of an idle node in a cluster of 50 with
// 10,000 records. One operation is one second; run it with -benchtime 30x.
func BenchmarkIdle(b *testing.B) {
	const count, records = 50, 10000
	var nodes []running
	for i := range count {
		nodes = append(nodes,
			run(b, Options{Self: simID(i), Bind: loopback, Storage: newMemory(), Seeds: func() (out []string) {
				for _, n := range nodes[:min(len(nodes), 1)] {
					out = append(out, n.Addr().String())
				}
				return out
			}}))
	}
	for at := 0; at < records; at += 100 {
		var puts []engine.Put
		for i := range 100 {
			puts = append(puts,
				engine.Put{Key: engine.Key{Kind: "K", Mesh: "m", Name: fmt.Sprint(at + i)}, Body: make([]byte, 730)})
		}
		if _, err := nodes[0].Put(puts...); err != nil {
			b.Fatal(err)
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for quiet := 0; quiet < 50; quiet++ {
		<-tick.C
		for _, n := range nodes {
			if alive(n) < count || n.Stats().Root != nodes[0].Stats().Root {
				quiet = 0
			}
		}
	}
	sent := func() (sum uint64) {
		for _, n := range nodes {
			sum += n.Stats().BytesOut
		}
		return sum
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	bytes, began := sent(), cpuTime(b)
	n := 0
	for b.Loop() {
		<-second.C
		n++
	}
	b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/float64(count*n), "µs-CPU/s")
	b.ReportMetric(float64(sent()-bytes)/float64(count*n), "B/s")
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/count/(1<<20), "MiB-heap")
	stopAll(nodes)
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
