package engine

import (
	"bytes"
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// sim runs engines in one goroutine, with a virtual clock and network. The seed determines all
// events.
type sim struct {
	t       testing.TB
	rng     *rand.Rand
	now     time.Time // true time
	queue   events
	seq     int
	nodes   []*simNode
	limits  Limits
	cluster string

	container string        // see Config
	known     time.Duration // age of the pool at the start; names known for more than a day vote on clocks
	loss, dup float64
	noStreams bool // all streams are lost
	noPackets bool // all packets are lost
	noAcks    bool // probe responses carry no payload
	delay     func() time.Duration
	cut       map[[2]int]bool // from, to

	sent      map[string]int // bytes sent as packets and over streams
	delivered func(n *simNode)
	posted    func(Send)
	history   *truth
	keys      []Key // keys that the run writes
	full      int   // local changes that a limit refused
	refused   int   // versions of peers that a limit refused for some time
	lacking   int   // versions that a limit refused, in the end
	dropped   bool  // some conflicts were dropped because there were too many
	trace     []string
}

type simNode struct {
	i       int
	id      NodeID
	boot    int
	began   time.Time // of this start
	up      bool
	engine  *Engine
	clock   time.Duration // offset of the wall clock from the true time; may jump
	disk    map[string]Op
	pending []Op
	old     []map[string]Op // earlier states of the disk
	view    map[int]string  // names of live members according to this node
	failed  map[int]int
	items   []OwnItem
	ticks   time.Time
	uploads int // messages with a record to other nodes
	signer  sign.Signer
	policy  Policy
	notes   []Note
}

type simEvent struct {
	at  time.Time
	seq int
	run func()
}

type events []simEvent

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *events) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

var simStart = time.UnixMilli(1_800_000_000_000)

// at returns a time on two clocks that agree since the start of the simulation.
func at(t time.Time) Now { return Now{t, t.Sub(simStart)} }

func newSim(t testing.TB, seed uint64, n int, limits Limits) *sim {
	s := &sim{t: t, rng: rand.New(rand.NewPCG(seed, 17)), now: simStart, limits: limits, cut: map[[2]int]bool{},
		sent: map[string]int{}, known: 25 * time.Hour}
	s.delay = func() time.Duration { return 200*time.Microsecond + time.Duration(s.rng.IntN(2000))*time.Microsecond }
	for i := range n {
		s.nodes = append(s.nodes, &simNode{i: i, id: NodeID{byte(i >> 8), byte(i), 1}, disk: map[string]Op{}})
	}
	return s
}

func (s *sim) after(d time.Duration, run func()) {
	s.seq++
	heap.Push(&s.queue, simEvent{s.now.Add(d), s.seq, run})
}

// runUntil runs all events up to a time.
func (s *sim) runUntil(t time.Time) {
	for len(s.queue) > 0 && !s.queue[0].at.After(t) {
		ev := heap.Pop(&s.queue).(simEvent)
		s.now = maxTime(s.now, ev.at)
		ev.run()
	}
	s.now = maxTime(s.now, t)
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (s *sim) run(d time.Duration) { s.runUntil(s.now.Add(d)) }

// skip advances the clock without events.
func (s *sim) skip(d time.Duration) {
	s.run(3 * time.Second)
	s.now = s.now.Add(d)
}

// name returns the display name. Names of nodes with keys must differ.
func (n *simNode) name() string {
	if n.signer == nil {
		return "node"
	}
	return fmt.Sprint("node-", n.i)
}

// sign gives all nodes keys.
func (s *sim) sign() {
	for _, n := range s.nodes {
		n.signer = testKey(byte(n.i + 1))
		n.id = nodeOf(n.signer)
	}
}

func (n *simNode) member() string { return fmt.Sprintf("%d-%d", n.i, n.boot) }

// local returns the time on the clocks of a node.
func (s *sim) local(n *simNode) Now { return Now{s.now.Add(n.clock), s.now.Sub(n.began)} }

func (s *sim) start(n *simNode) {
	n.boot++
	n.began = s.now
	n.up, n.view, n.failed, n.pending = true, map[int]string{}, map[int]int{}, nil
	n.ticks = time.Time{}
	var saved []Op
	for _, k := range slices.Sorted(maps.Keys(n.disk)) {
		saved = append(saved, n.disk[k])
	}
	e, act := New(Config{Self: n.id, Member: n.member(), Name: n.name(), Cluster: s.cluster, Random: s.rng.IntN,
		Limits: s.limits, Signer: n.signer, Policy: n.policy, Container: s.container}, s.local(n), saved)
	n.engine = e
	s.do(n, act)
	if n.items != nil {
		s.step(n, Own{Items: n.items})
	}
	boot := n.boot
	s.after(time.Duration(s.rng.IntN(1000))*time.Millisecond, func() { s.probe(n, boot) })
	s.tick(n)
}

func (s *sim) step(n *simNode, ev Event) {
	if n.up {
		s.do(n, n.engine.Step(s.local(n), ev))
		s.tick(n)
	}
}

// tick schedules the next tick of a node.
func (s *sim) tick(n *simNode) {
	d := min(max(n.engine.Next()-s.local(n).Mono, time.Millisecond), time.Second)
	at := s.now.Add(d)
	if !n.ticks.IsZero() && !at.Before(n.ticks) && n.ticks.After(s.now) {
		return
	}
	n.ticks = at
	boot := n.boot
	s.after(d, func() {
		if n.up && n.boot == boot && n.ticks.Equal(at) {
			n.ticks = time.Time{}
			s.step(n, Tick{})
		}
	})
}

func apply(disk map[string]Op, ops []Op) {
	for _, op := range ops {
		if op.Value == nil {
			delete(disk, op.Bucket+"/"+op.Key)
		} else {
			disk[op.Bucket+"/"+op.Key] = op
		}
	}
}

// durable writes all pending operations and ops in one transaction.
func (n *simNode) durable(ops []Op) {
	apply(n.disk, n.pending)
	apply(n.disk, ops)
	n.pending = nil
}

func (s *sim) do(n *simNode, act Actions) {
	if len(act.Durable) > 0 {
		n.durable(act.Durable)
	}
	if len(act.Write) > 0 {
		if len(n.pending) == 0 {
			boot := n.boot
			s.after(100*time.Millisecond, func() {
				if n.up && n.boot == boot {
					n.durable(nil)
				}
			})
		}
		n.pending = append(n.pending, act.Write...)
	}
	for _, m := range act.Send {
		s.post(n, m)
	}
	n.notes = append(n.notes, act.Notes...)
	if s.delivered != nil && len(act.Changed) > 0 {
		s.delivered(n)
	}
}

func (s *sim) post(from *simNode, m Send) {
	if len(m.Data) > MaxMessage {
		s.t.Fatalf("a message of %d bytes", len(m.Data))
	}
	var to *simNode
	for i, c := range m.To {
		if c == '-' {
			at, _ := strconv.Atoi(m.To[:i])
			if to = s.nodes[at]; to.member() != m.To {
				to = nil
			}
		}
	}
	if s.posted != nil {
		s.posted(m)
	}
	stream := m.Stream
	kind := "packets"
	if stream {
		kind = "streams"
	}
	s.sent[kind] += len(m.Data)
	if len(m.Data) > 10<<10 {
		from.uploads++
	}
	if to == nil || !to.up || s.cut[[2]int{from.i, to.i}] {
		return
	}
	copies := 1
	if !stream {
		if s.noPackets || s.rng.Float64() < s.loss {
			return
		}
		if s.rng.Float64() < s.dup {
			copies = 2
		}
	} else if s.noStreams || s.cut[[2]int{to.i, from.i}] {
		return
	}
	boot := to.boot
	for range copies {
		d := s.delay()
		if stream {
			d += s.delay() + s.delay() // handshake
			for s.rng.Float64() < s.loss {
				d += 200 * time.Millisecond // TCP retransmission
			}
		} else if s.rng.Float64() < s.dup {
			d += time.Duration(s.rng.IntN(300)) * time.Millisecond // reordering
		}
		s.after(d, func() {
			if to.up && to.boot == boot && !s.cut[[2]int{from.i, to.i}] {
				s.step(to, Received{slices.Clone(m.Data)})
			}
		})
	}
}

func (s *sim) linked(a, b *simNode) bool {
	return a.up && b.up && !s.cut[[2]int{a.i, b.i}] && !s.cut[[2]int{b.i, a.i}]
}

// probe simulates memberlist: each node probes another one every second.
func (s *sim) probe(n *simNode, boot int) {
	if !n.up || n.boot != boot {
		return
	}
	s.after(time.Second, func() { s.probe(n, boot) })
	o := s.nodes[s.rng.IntN(len(s.nodes))]
	if o == n {
		return
	}
	if !s.linked(n, o) {
		if n.failed[o.i]++; n.failed[o.i] == 2 && n.view[o.i] != "" {
			s.step(n, PeerDown{n.view[o.i]})
			delete(n.view, o.i)
		}
		return
	}
	s.meet(n, o)
	s.meet(o, n)
	if !s.noAcks {
		s.step(n, Acked{o.member(), AckPayload(o.engine.Root(), s.local(o).Wall), time.Millisecond})
	}
}

func (s *sim) meet(n, o *simNode) {
	n.failed[o.i] = 0
	if old := n.view[o.i]; old != o.member() {
		if old != "" {
			s.step(n, PeerDown{old})
		}
		n.view[o.i] = o.member()
		s.step(n, PeerUp{Member: o.member(), Node: o.id, Name: fmt.Sprint("node", o.i),
			Known: simStart.Add(-s.known), Features: Features})
	}
}

func (s *sim) crash(n *simNode) {
	s.detectDropped(n)
	n.up, n.pending = false, nil
}

func (s *sim) detectDropped(n *simNode) {
	for what, k := range n.engine.Stats().Counters {
		s.dropped = s.dropped || k > 0 && strings.HasPrefix(what, "conflict dropped")
		if what == "refused: "+whyWriterFull || what == "refused: "+whyDeletionsFull || what == "refused: "+whyParkedFull {
			s.refused += int(k)
		}
	}
}

// join makes all nodes know each other at once.
func (s *sim) join() {
	for _, n := range s.nodes {
		for _, o := range s.nodes {
			if n != o && s.linked(n, o) {
				s.meet(n, o)
			}
		}
	}
}

func (s *sim) logf(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf("%8.3f ", s.now.Sub(simStart).Seconds())+fmt.Sprintf(format, args...))
}

// differences lists the entries that differ between two nodes, by content and as their stores hold
// them.
func (s *sim) differences(a, b *simNode) (out []Slot) {
	for _, n := range []*simNode{a, b} {
		o := a
		if n == a {
			o = b
		}
		for slot, en := range n.engine.entries {
			other := o.engine.entries[slot]
			if other == nil || !bytes.Equal(en.encoded(), other.encoded()) {
				if !slices.Contains(out, slot) {
					out = append(out, slot)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Slot) int { return bytes.Compare(a[:], b[:]) })
	return out
}

func (en *entry) encoded() []byte {
	if en.record != nil {
		return en.record.Encoded()
	}
	return en.manifest.Encoded()
}
