package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// maxSpared is how much garbage a small heap may have, in bytes: a collection costs as much for it
// as for one that has more.
const maxSpared = 32 << 20

// Percent is how much garbage there may be, in percent of what is live on the heap: percent of a
// large heap, and of a small one as much as is live, up to 32 MiB.
func Percent(live uint64, percent int) int {
	if live == 0 {
		return 100
	}
	return max(percent, int(min(100, 100*maxSpared/live)))
}

// Pace has the process collect garbage as [Percent] says, from now on. It looks at the heap after
// each collection.
func Pace(percent int) {
	p := &pace{percent: percent}
	p.look()
	p.await()
}

type pace struct {
	percent int
	now     int
}

// await looks again after the next collection, which finds that nobody uses what is allocated here.
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
