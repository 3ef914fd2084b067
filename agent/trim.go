package agent

import (
	"log/slog"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/memory"
)

// trimEvery is the interval for checking memory and the authorization of streams.
const trimEvery = 5 * time.Second

// revokedEvery is the interval for checking whether tokens were revoked, so their streams end
// within a second.
const revokedEvery = 500 * time.Millisecond

// trimmer returns memory to the system after a burst of work, for example after loading a mesh or
// when many proxies connect. Go's collector runs on allocation, so an agent that is idle after a
// burst, as it usually is, would keep its garbage for minutes.
type trimmer struct {
	last uint64 // bytes allocated until the last check
	done uint64 // bytes allocated until the last trim
}

const (
	trimBurst = 8 << 20 // bytes since the last trim that justify another one, if the heap is smaller
	trimIdle  = 4 << 20 // bytes between two checks of an idle agent
)

// Due reports whether to trim, given the bytes allocated since the start of the process and the
// size of the live heap.
func (t *trimmer) Due(allocated, live uint64) bool {
	idle := allocated-t.last < trimIdle
	t.last = allocated
	if !idle || allocated-t.done < min(max(trimBurst, live), 4*trimBurst) {
		return false
	}
	t.done = allocated
	return true
}

// look trims if it is due.
func (t *trimmer) look(log *slog.Logger) {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 || s[1].Value.Kind() != metrics.KindUint64 ||
		!t.Due(s[0].Value.Uint64(), s[1].Value.Uint64()) {
		return
	}
	runtime.GC() // the content of a sync.Pool survives one collection
	debug.FreeOSMemory()
	if err := memory.ReleaseProgram(); err != nil {
		log.Debug("memory of the program", "error", err)
	}
}
