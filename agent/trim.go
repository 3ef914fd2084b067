package agent

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// trimmer gives memory back to the system after a burst of work, such as a mesh that is loaded or
// many proxies that connect. Go's collector runs as memory is allocated: an agent that is idle
// after a burst would keep its garbage for minutes, and it is idle nearly always.
type trimmer struct {
	last uint64 // bytes allocated up to the last look
	done uint64 // bytes allocated up to the last trim
}

const (
	trimBurst = 32 << 20 // bytes allocated since the last trim that are worth another one
	trimIdle  = 4 << 20  // bytes allocated between two looks by an agent that is idle
)

// Due reports whether it is time to trim, given the bytes allocated since the start of the process.
func (t *trimmer) Due(allocated uint64) bool {
	idle := allocated-t.last < trimIdle
	t.last = allocated
	if !idle || allocated-t.done < trimBurst {
		return false
	}
	t.done = allocated
	return true
}

// look trims when it is due.
func (t *trimmer) look() {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() == metrics.KindUint64 && t.Due(s[0].Value.Uint64()) {
		runtime.GC() // what lies in a sync.Pool outlives one collection
		debug.FreeOSMemory()
	}
}
