// Package memory measures the memory of the process. When memory runs short, it first evicts caches
// and then refuses new proxies. Without a memory limit it does nothing.
package memory

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Thresholds in percent of the limit. The live memory is known as of the last collection. The rest
// above shortAt is for allocations until the next collection, data in flight, and changes of served
// proxies.
const (
	shedAt  = 70 // caches are evicted above this
	shortAt = 80 // no more proxies are accepted above this, if evicting caches does not help
	enough  = 70 // proxies are accepted again below this
	// mappedAt is the share of memory mapped by Go, live or not, above which the runtime has failed
	// to respect the limit.
	mappedAt = 105
)

const (
	shedEvery = time.Minute // minimum interval while memory is not short
	// minimum interval while memory is short, because the live memory is only known after a
	// collection, and after memory was freed
	collectEvery = 30 * time.Second
)

// Smallest is the smallest limit of a control group, in bytes, with which an agent of a small mesh
// works. The kernel counts the pages of the program in the limit, too. Below it, it drops and reads
// them all the time: a start takes minutes, and requests time out.
const Smallest = 48 << 20

// Use is the memory use of a process in bytes.
type Use struct {
	Limit  uint64 // limit of the garbage collector; 0: none
	Live   uint64 // live heap as of the last collection plus memory outside the heap
	Mapped uint64 // memory that Go has mapped
	Group  uint64 // limit of the control group at the start; 0: none or unknown
}

// TooSmall reports whether the limit of the control group is below [Smallest].
func (u Use) TooSmall() bool { return u.Group > 0 && u.Group < Smallest }

// groupLimit returns the memory limit of the control group of this process.
func groupLimit() uint64 {
	n, err := memlimit.FromCgroup()
	if err != nil || n >= math.MaxInt64 {
		return 0
	}
	return n
}

// Read returns the memory use of this process, without the limit of its control group.
func Read() Use {
	s := []metrics.Sample{
		{Name: "/gc/gomemlimit:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(s)
	v := func(i int) uint64 {
		if s[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return s[i].Value.Uint64()
	}
	u := Use{Limit: v(0), Mapped: v(2) - v(3)}
	if u.Limit >= math.MaxInt64 {
		u.Limit = 0
	}
	u.Live = v(1) + u.Mapped - min(u.Mapped, v(4)+v(5)+v(6))
	return u
}

// reaches reports whether live memory has reached a percentage of the limit.
func (u Use) reaches(percent uint64) bool { return u.Limit > 0 && u.Live >= u.Limit/100*percent }

// IsShort reports whether memory is short.
func (u Use) IsShort() bool {
	return u.reaches(shortAt) || u.Limit > 0 && u.Mapped >= u.Limit/100*mappedAt
}

// Options configures a [Guard].
type Options struct {
	Read    func() Use       // nil: [Read], with the limit of the control group
	Collect func()           // collects garbage and returns memory to the system; nil: that of Go
	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: no logging
	Shed    func()           // evicts caches; may be nil. It must not call the guard.
	Own     func()           // asks the caller of [Guard.Admit] to evict its caches; may be nil
	// Changed is called when memory becomes short and when it no longer is. It may be nil and must
	// not call the guard.
	Changed func()
}

// Guard watches the memory of a process. It is safe for concurrent use.
type Guard struct {
	o Options

	short atomic.Pointer[ShortError]
	sheds atomic.Uint64
	freed atomic.Bool

	mu        sync.Mutex
	shed      time.Time // last eviction of caches
	collected time.Time // last collection to free memory
}

// ShortError reports that there is no memory for more proxies.
type ShortError struct {
	Use   Use // when memory became short
	Since time.Time
}

// Error returns the limit and the remedy.
func (e *ShortError) Error() string {
	return fmt.Sprintf("the agent has no memory for more proxies: %d MiB of its limit of %d MiB are in use; "+
		"connected proxies are still served, and this one has to wait. "+
		"Raise the limit (MemoryMax= of the unit, resources.limits.memory of the container, GOMEMLIMIT), "+
		"or limit the services that proxies reach", e.Use.Live>>20, e.Use.Limit>>20)
}

// New returns a guard.
func New(o Options) *Guard {
	if o.Read == nil {
		group := groupLimit()
		o.Read = func() Use { u := Read(); u.Group = group; return u }
	}
	if o.Collect == nil {
		o.Collect = func() {
			runtime.GC() // objects in a sync.Pool survive one collection
			debug.FreeOSMemory()
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Shed == nil {
		o.Shed = func() {}
	}
	if o.Own == nil {
		o.Own = func() {}
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if u := o.Read(); u.TooSmall() {
		o.Log.Warn("the memory limit is below the smallest that works; raise MemoryMax= of the unit or "+
			"resources.limits.memory of the container", "limit", u.Group, "smallest", Smallest)
	}
	return &Guard{o: o}
}

// State is the state of the memory.
type State struct {
	Use
	Short *ShortError // nil: memory is sufficient
	Sheds uint64      // number of evictions
}

// State returns the state of the memory.
func (g *Guard) State() State { return State{g.o.Read(), g.short.Load(), g.sheds.Load()} }

// Admit returns nil if there is memory for one more proxy, and a [ShortError] otherwise. It evicts
// all caches before memory is short; own evicts those of the caller.
func (g *Guard) Admit(own func()) error {
	u := g.o.Read()
	short := g.short.Load()
	switch {
	case short == nil && !u.IsShort():
		return nil
	case short != nil && u.reaches(enough):
		return short
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if short = g.short.Load(); short == nil && g.o.Now().Sub(g.shed) >= collectEvery {
		g.evict(own)
		g.collect()
		u = g.o.Read()
	}
	return g.update(u)
}

// Spare reports whether there is memory for caches.
func (g *Guard) Spare() bool { return g.short.Load() == nil && !g.o.Read().reaches(shedAt) }

// Freed records that a large object is no longer used.
func (g *Guard) Freed() { g.freed.Store(true) }

// Look is called periodically. It evicts caches if much memory is used, detects when memory is
// sufficient again, and returns freed memory.
func (g *Guard) Look() {
	u := g.o.Read()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch now := g.o.Now(); {
	case g.short.Load() != nil:
		if g.freed.Load() || now.Sub(g.collected) >= collectEvery {
			g.collect()
			u = g.o.Read()
		}
		_ = g.update(u)
	case u.reaches(shedAt) && now.Sub(g.shed) >= shedEvery:
		g.evict(nil)
		g.freed.Store(true)
	case g.freed.Load() && now.Sub(g.collected) >= collectEvery:
		g.collect()
	}
}

func (g *Guard) evict(own func()) {
	g.shed = g.o.Now()
	g.sheds.Add(1)
	if own == nil {
		own = g.o.Own
	}
	own()
	g.o.Shed()
}

func (g *Guard) collect() {
	g.freed.Store(false)
	g.collected = g.o.Now()
	g.o.Collect()
}

// update updates whether memory is short. The threshold at which the state ends is lower than the
// one at which it begins.
func (g *Guard) update(u Use) error {
	short := g.short.Load()
	switch {
	case short == nil && u.IsShort():
		short = &ShortError{Use: u, Since: g.o.Now()}
		g.short.Store(short)
		g.o.Log.Warn("memory is short; new proxies are refused until memory is free", "inUse", u.Live, "mapped", u.Mapped,
			"limit", u.Limit)
		g.o.Changed()
	case short != nil && !u.reaches(enough) && !u.IsShort():
		short = nil
		g.short.Store(nil)
		g.o.Log.Info("memory is sufficient; new proxies are accepted", "inUse", u.Live, "limit", u.Limit)
		g.o.Changed()
	}
	if short == nil {
		return nil // not a non-nil error with a nil pointer
	}
	return short
}
