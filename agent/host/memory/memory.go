// Package memory says how much memory the process may take and has in use, has caches given up
// before it is short, and says then that there is none for more proxies. Nothing is bounded where
// the process has no limit.
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
)

// Shares of the limit, in percent. What is in use is known as of the last collection: between
// shortAt and the limit there is room for what is taken until the next one, for what is on its way
// to proxies, and for the changes of those that are served.
const (
	shedAt  = 70 // from here on caches are given up
	shortAt = 80 // from here on, where that does not suffice, no more proxies are taken
	enough  = 70 // below it they are again
	// mappedAt is how much Go may have from the system, live or not: it has been held to the limit in
	// vain then.
	mappedAt = 105
)

const (
	shedEvery = time.Minute // at most, while there is room
	// while there is none, since what is in use is not known without a collection, and when something
	// was freed
	collectEvery = 30 * time.Second
)

// Use is how much memory a process takes, in bytes.
type Use struct {
	Limit  uint64 // that Go's collector keeps to; 0: none
	Live   uint64 // in use: live on the heap as of the last collection, and all that is not on the heap
	Mapped uint64 // that Go has from the system
}

// Read reads how much this process takes.
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

// reaches says whether so many percent of the limit are in use.
func (u Use) reaches(percent uint64) bool { return u.Limit > 0 && u.Live >= u.Limit/100*percent }

// isShort says whether there is no memory for more.
func (u Use) isShort() bool {
	return u.reaches(shortAt) || u.Limit > 0 && u.Mapped >= u.Limit/100*mappedAt
}

// Options is what a Guard needs.
type Options struct {
	Read    func() Use       // nil: [Read]
	Collect func()           // collects garbage and gives memory back; nil: that of Go
	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: nothing is logged
	Shed    func()           // gives up caches; nil: there are none. It must not call the guard.
	Own     func()           // asks who calls [Guard.Room] to give up his own, as there; nil: nobody is asked
	// told when it becomes short, and when it no longer is. Nil: nobody is. It must not call the
	// guard.
	Changed func()
}

// Guard watches over the memory of a process. Its methods may be called from any goroutine.
type Guard struct {
	o Options

	short atomic.Pointer[ShortError]
	sheds atomic.Uint64
	freed atomic.Bool

	mu        sync.Mutex
	shed      time.Time // when caches were given up last
	collected time.Time // when a collection was made for the sake of room
}

// ShortError says that there is no memory for more.
type ShortError struct {
	Use   Use // when it became short
	Since time.Time
}

// Error names the limit and the remedy.
func (e *ShortError) Error() string {
	return fmt.Sprintf("the agent has no memory for more proxies: %d MiB are in use of the %d MiB that it may take; "+
		"those that are served stay so, and this one is served once there is memory again. "+
		"Raise the limit (MemoryMax= of the unit, resources.limits.memory of the container, GOMEMLIMIT), "+
		"or have proxies reach fewer services", e.Use.Live>>20, e.Use.Limit>>20)
}

// New returns a guard.
func New(o Options) *Guard {
	if o.Read == nil {
		o.Read = Read
	}
	if o.Collect == nil {
		o.Collect = func() {
			runtime.GC() // what lies in a sync.Pool outlives one collection
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
	return &Guard{o: o}
}

// State is how the memory stands.
type State struct {
	Use
	Short *ShortError // nil: there is room
	Sheds uint64      // how often caches were given up
}

// State returns how the memory stands.
func (g *Guard) State() State { return State{g.o.Read(), g.short.Load(), g.sheds.Load()} }

// Room returns nil where there is memory for one more proxy, else an error that says why it is not
// taken. Before it becomes short it gives up all caches; own gives up those of the caller.
func (g *Guard) Room(own func()) error {
	u := g.o.Read()
	short := g.short.Load()
	switch {
	case short == nil && !u.isShort():
		return nil
	case short != nil && u.reaches(enough):
		return short
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if short = g.short.Load(); short == nil && g.o.Now().Sub(g.shed) >= collectEvery {
		g.giveUp(own)
		g.collect()
		u = g.o.Read()
	}
	return g.judge(u)
}

// Spare says whether there is memory for what only saves work.
func (g *Guard) Spare() bool { return g.short.Load() == nil && !g.o.Read().reaches(shedAt) }

// Freed says that something large is no longer in use.
func (g *Guard) Freed() { g.freed.Store(true) }

// Look is called now and then: it gives up caches where much is in use, finds out when there is
// room again, and gives back what has been freed.
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
		_ = g.judge(u)
	case u.reaches(shedAt) && now.Sub(g.shed) >= shedEvery:
		g.giveUp(nil)
		g.freed.Store(true)
	case g.freed.Load() && now.Sub(g.collected) >= collectEvery:
		g.collect()
	}
}

func (g *Guard) giveUp(own func()) {
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

// judge takes note of whether memory is short. It becomes so at one share of the limit and ceases
// to be at a lower one.
func (g *Guard) judge(u Use) error {
	short := g.short.Load()
	switch {
	case short == nil && u.isShort():
		short = &ShortError{Use: u, Since: g.o.Now()}
		g.short.Store(short)
		g.o.Log.Warn("memory is short: no more proxies are taken for the time being", "inUse", u.Live, "mapped", u.Mapped,
			"limit", u.Limit)
		g.o.Changed()
	case short != nil && !u.reaches(enough) && !u.isShort():
		short = nil
		g.short.Store(nil)
		g.o.Log.Info("there is memory for more proxies again", "inUse", u.Live, "limit", u.Limit)
		g.o.Changed()
	}
	if short == nil {
		return nil // and no error that holds a nil pointer
	}
	return short
}
