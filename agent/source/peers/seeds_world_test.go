package peers

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// world runs agents without their servers in one goroutine: each has a store with a file, a source,
// and a node, with a virtual clock and network. The seed determines all events.
type world struct {
	t      testing.TB
	rng    *rand.Rand
	now    time.Time // true time
	queue  worldEvents
	seq    int
	nodes  []*member
	limits engine.Limits
	// limited: the limits are low enough to be reached, so that nodes may refuse versions
	limited bool
	keys    []resource.Key // of operators' resources and files

	loss, dup float64
	noPackets bool            // packets are lost; streams work
	cut       map[[2]int]bool // from, to
	truth     truth
	texts     int // number of texts written so far
	trace     []string
	counts    map[string]int // operations and faults that took place
}

type worldEvent struct {
	at  time.Time
	seq int
	run func()
}

type worldEvents []worldEvent

func (q worldEvents) Len() int { return len(q) }
func (q worldEvents) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].seq < q[j].seq
}
func (q worldEvents) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *worldEvents) Push(x any)   { *q = append(*q, x.(worldEvent)) }
func (q *worldEvents) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

var worldStart = time.UnixMilli(1_800_000_000_000)

// newWorld returns a world with n nodes that are not started. With n = 0, the seed determines n.
func newWorld(t testing.TB, dir string, seed uint64, n int) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 35)), now: worldStart, cut: map[[2]int]bool{},
		limits: engine.Limits{Horizon: 200 * time.Hour}, truth: truth{byID: map[string]*change{}}, counts: map[string]int{}}
	if n == 0 {
		n = []int{2, 2, 3, 3, 3, 5}[w.rng.IntN(6)]
	}
	for i := range n {
		w.nodes = append(w.nodes, newMember(i, dir))
	}
	return w
}

// after schedules an event.
func (w *world) after(d time.Duration, run func()) {
	w.seq++
	heap.Push(&w.queue, worldEvent{w.now.Add(d), w.seq, run})
}

// run runs the events of some time.
func (w *world) run(d time.Duration) {
	until := w.now.Add(d)
	for len(w.queue) > 0 && !w.queue[0].at.After(until) {
		ev := heap.Pop(&w.queue).(worldEvent)
		w.advance(ev.at)
		ev.run()
	}
	w.advance(until)
}

func (w *world) advance(to time.Time) {
	if to.After(w.now) {
		w.now = to
	}
}

// skip advances the clock without events.
func (w *world) skip(d time.Duration) {
	w.run(3 * time.Second)
	w.now = w.now.Add(d)
}

func (w *world) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%8.3f ", w.now.Sub(worldStart).Seconds())+fmt.Sprintf(format, args...))
}

// millis returns a random duration below n milliseconds.
func (w *world) millis(n int) time.Duration {
	return time.Duration(w.rng.IntN(n*1000)) * time.Microsecond
}

// post delivers a message.
func (w *world) post(from *member, m engine.Send) {
	at := slices.IndexFunc(w.nodes, func(o *member) bool { return o.up && o.name == m.To })
	if at < 0 || w.cut[[2]int{from.i, at}] {
		return
	}
	to := w.nodes[at]
	copies := 1
	switch {
	case m.Stream && w.cut[[2]int{to.i, from.i}]:
		return
	case m.Stream:
	case w.noPackets || w.rng.Float64() < w.loss:
		return
	case w.rng.Float64() < w.dup:
		copies = 2
	}
	boot := to.boot
	for range copies {
		d := 200*time.Microsecond + w.millis(2)
		if m.Stream {
			d += w.millis(4)
			for w.rng.Float64() < w.loss {
				d += 200 * time.Millisecond // TCP retransmission
			}
		} else if w.rng.Float64() < w.dup {
			d += w.millis(300) // reordering
		}
		w.after(d, func() {
			if to.boot == boot && !w.cut[[2]int{from.i, to.i}] {
				w.drive(to, engine.Received{Data: slices.Clone(m.Data)})
			}
		})
	}
}

func (w *world) linked(a, b *member) bool {
	return a.up && b.up && !w.cut[[2]int{a.i, b.i}] && !w.cut[[2]int{b.i, a.i}]
}

// probe simulates memberlist: each node probes another one every second.
func (w *world) probe(n *member, boot int) {
	if !n.up || n.boot != boot {
		return
	}
	w.after(time.Second, func() { w.probe(n, boot) })
	o := w.nodes[w.rng.IntN(len(w.nodes))]
	if o == n {
		return
	}
	if !w.linked(n, o) {
		if n.failed[o.i]++; n.failed[o.i] == 2 && n.view[o.i] != "" {
			w.drive(n, engine.PeerDown{Member: n.view[o.i]})
			delete(n.view, o.i)
		}
		return
	}
	w.meet(n, o)
	w.meet(o, n)
	if !w.noPackets { // a probe over TCP has no payload
		w.drive(n, engine.Acked{Member: o.name, Payload: engine.AckPayload(o.source.node.Root(), w.clock(o).Wall),
			RTT: time.Millisecond})
	}
}

func (w *world) meet(n, o *member) {
	n.failed[o.i] = 0
	if old := n.view[o.i]; old != o.name {
		n.view[o.i] = o.name
		if old != "" {
			w.drive(n, engine.PeerDown{Member: old})
		}
		w.drive(n, engine.PeerUp{Member: o.name, Node: o.id, Name: o.display(),
			Known: worldStart.Add(-48 * time.Hour), Features: engine.Features})
	}
}
