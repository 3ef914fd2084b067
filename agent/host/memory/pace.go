package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// maxGarbage limits the additional garbage of a small heap in bytes, since a collection has a fixed
// cost.
const maxGarbage = 32 << 20

// Percent returns the GC percentage for a live heap size: percent for large heaps, and up to 100 %
// for small ones, limited to 32 MiB of garbage.
func Percent(live uint64, percent int) int {
	if live == 0 {
		return 100
	}
	return max(percent, int(min(100, 100*maxGarbage/live)))
}

// Pace adjusts the GC percentage to [Percent] after each collection from now on.
func Pace(percent int) {
	p := &pace{percent: percent}
	p.look()
	p.await()
}

type pace struct {
	percent int
	now     int
}

// await runs look after the next collection, which frees the object allocated here.
func (p *pace) await() {
	runtime.AddCleanup(&struct{ _ [16]byte }{}, func(p *pace) {
		p.look()
		p.await()
	}, p)
}

func (p *pace) look() {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return
	}
	if next := Percent(s[0].Value.Uint64(), p.percent); next != p.now &&
		(p.now == 0 || next == p.percent || next == 100 || max(next, p.now)-min(next, p.now) > 5) {
		p.now = next
		debug.SetGCPercent(next)
	}
}
