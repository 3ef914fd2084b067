package gossip

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Node is a member of the cluster. It is safe for concurrent use.
type Node struct {
	opt  Options
	self atomic.Pointer[self]

	writes  sync.Mutex // serializes local changes; taken before mu, and held during disk writes
	joining sync.Mutex // held while memberlist is replaced or ends; taken before mu

	mu       sync.Mutex // never held during disk or network access
	engine   *engine.Engine
	roster   map[engine.NodeID]rosterEntry
	up       map[string]memberEvent // live members by name
	addrs    map[string]string      // address of each live member that gets messages
	watchers map[*Watcher]struct{}
	serving  map[engine.NodeID]engine.Serving // state last reported to watchers
	list     *memberlist.Memberlist
	carrier  memberlist.NodeAwareTransport // of list
	addr     netip.AddrPort
	ring     *memberlist.Keyring // nil without encryption
	started  time.Time           // wall time
	created  time.Time           // start of the monotonic clock passed to the engine
	opened   time.Time           // time of the last open
	sweptAt  time.Time           // time of the last sweep of the roster
	seenAt   time.Time           // time at which the rows of live nodes were written
	closing  bool                // no goroutine may start any more

	rivals    map[netip.AddrPort]*rival // under mu
	duplicate duplicate                 // under mu
	confirmed time.Time                 // under mu; when the engine last got this node's ID again
	stale     []string                  // under mu; members known under the former ID of this node
	staleAt   time.Time                 // under mu; when those not found again count as dead

	disk *disk

	inbox      chan engine.Event
	wake       chan struct{} // one slot: members have changed
	probed     chan probed
	probeSlots chan struct{} // limits concurrent probes

	memberMu     sync.Mutex
	memberEvents []memberEvent
	live         map[string]bool // members that memberlist reports as alive
	membersAt    time.Time       // last change of live
	membersWait  bool            // a comparison was deferred, because an update may be on its way
	membersHash  atomic.Uint64
	root         atomic.Pointer[engine.Digest]
	exchange     chan string       // one slot: a peer with a different member list
	rejoin       chan []string     // addresses to join at once
	joined       atomic.Bool       // a seed has responded, or the first attempt to join has ended
	alone        atomic.Bool       // the seeds are this node only
	faults       map[string]string // under mu; of names to join

	ready     chan struct{}
	stopped   chan struct{}
	wg        sync.WaitGroup
	life      context.Context // context of Run
	questions questions
	packets   packets
	traffic   transportCounters
	notes     lineLimit
	counters  nodeCounters

	identities  identities
	rivalProbes lineLimit
	refused     map[string]*refusedMember // under mu; live members that are not in use, by name
	judgedAt    time.Time                 // under mu; when the members were judged
	doubts      map[string]time.Time      // under mu; when to probe members that memberlist reports as dead
	former      []retirement              // under mu
}

type nodeCounters struct {
	inboxFull, badMember, rosterFull, exchanges, unsent, forged atomic.Uint64
}

// inboxSize bounds the messages that wait for the engine.
const inboxSize = 4096

// New returns a node with the state loaded from storage. It joins the cluster in Run.
func New(o Options) (*Node, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	saved, err := o.Storage.Load()
	if err != nil {
		return nil, fmt.Errorf("gossip: load saved state: %w", err)
	}
	n := &Node{opt: o, created: time.Now(), roster: map[engine.NodeID]rosterEntry{}, addrs: map[string]string{},
		up: map[string]memberEvent{}, rivals: map[netip.AddrPort]*rival{}, watchers: map[*Watcher]struct{}{},
		serving: map[engine.NodeID]engine.Serving{}, refused: map[string]*refusedMember{},
		doubts: map[string]time.Time{},
		inbox:  make(chan engine.Event, inboxSize), wake: make(chan struct{}, 1), live: map[string]bool{},
		probed: make(chan probed), probeSlots: make(chan struct{}, probesAtOnce),
		exchange: make(chan string, 1), rejoin: make(chan []string),
		packets:   packets{off: o.TCPOnly, heard: map[string]time.Time{}},
		questions: newQuestions(), ready: make(chan struct{}), stopped: make(chan struct{}), disk: newDisk(o.Storage, o.Log)}
	n.seenAt, n.sweptAt = n.created, n.created
	n.root.Store(&engine.Digest{})
	if len(o.Keys) > 0 {
		if n.ring, err = memberlist.NewKeyring(o.Keys, o.Keys[0]); err != nil {
			return nil, fmt.Errorf("gossip: keys: %w", err)
		}
	}
	for _, f := range o.Former {
		n.former = append(n.former, retirement{Former: f})
	}
	id, signer := o.Self, o.Signer
	if o.Copied != "" && o.NewID != nil {
		n.former = nil // they belong to the original
		if id, signer, err = o.NewID(); err != nil {
			return nil, fmt.Errorf("gossip: %s, and a new node ID cannot be saved: %w", o.Copied, err)
		}
		n.report(fmt.Sprintf("%s; at %s, this node took the new ID %s instead of %s", o.Copied,
			n.now().Wall.UTC().Format(time.RFC3339), id, o.Self))
		o.Log.Error("this node took a new ID", "reason", o.Copied, "old", o.Self, "new", id)
	}
	e, act := engine.New(engine.Config{Self: id, Name: o.Name, Cluster: o.Cluster, Random: o.random(),
		Limits: o.Limits, Signer: signer, Policy: o.Policy, Container: o.Container, Known: o.Known}, n.now(), saved)
	n.engine = e
	n.identities.init(o.rosterLimit, n.listed)
	for _, p := range e.Names() {
		n.identities.know(engine.NodeID(p.Key))
	}
	if err := n.rename(signer); err != nil {
		return nil, err
	}
	n.loadRoster(saved)
	if err := n.disk.durable(act.Durable); err != nil {
		return nil, fmt.Errorf("gossip: cannot save the epoch of this start, so peers would ignore later changes: %w", err)
	}
	n.disk.later(act.Write)
	n.act(act)
	n.notifyServing() // later calls report changes since the start
	return n, nil
}

// Self returns the ID of this node. It changes if the node takes a new ID.
func (n *Node) Self() engine.NodeID { return n.self.Load().meta.node }

// Ready returns a channel that is closed when the sockets are open.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Addr returns the address that peers use to reach this node. It is valid once the node is ready.
func (n *Node) Addr() netip.AddrPort {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addr
}

// Run joins the cluster and runs the node until ctx ends. It must be called only once.
func (n *Node) Run(ctx context.Context) error {
	defer close(n.stopped)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.life = ctx
	if err := n.open(); err != nil {
		return err
	}
	n.wg.Go(func() { n.disk.run(ctx) })
	n.wg.Go(func() { n.joinLoop(ctx) })
	n.wg.Go(func() { n.exchangeLoop(ctx) })
	close(n.ready)
	failed := n.loop(ctx)
	cancel()
	n.mu.Lock()
	n.closing = true
	rows := n.seenRows()
	n.mu.Unlock()
	n.questions.close()
	n.joining.Lock()
	err := n.list.Shutdown() // closes the transport, which stops goroutines that wait for peers
	n.joining.Unlock()
	n.wg.Wait()
	if failed != nil {
		err = failed
	}
	n.disk.later(rows)
	if e := n.disk.durable(nil); e != nil {
		return fmt.Errorf("gossip: save state: %w", e)
	}
	return err
}

// open opens the sockets and starts memberlist. After a change of the node's ID, it uses the same
// port.
func (n *Node) open() error {
	var t memberlist.NodeAwareTransport
	if n.opt.transport != nil {
		t = n.opt.transport()
	} else {
		bind := slices.Clone(n.opt.Bind)
		if n.carrier != nil {
			bind[0] = netip.AddrPortFrom(bind[0].Addr(), n.carrier.(*transport).addr().Port())
		}
		s, err := listen(bind, n.opt.TCPOnly, &n.traffic)
		if err != nil {
			return err
		}
		t = s
		s.start()
	}
	config, err := n.memberlistConfig(t)
	var list *memberlist.Memberlist
	if err == nil {
		list, err = memberlist.Create(config)
	}
	if err != nil {
		_ = t.Shutdown()
		return fmt.Errorf("gossip: start membership: %w", err)
	}
	addr := addrOf(list.LocalNode())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list, n.carrier, n.addr = list, t, addr
	n.opened = time.Now()
	if n.started.IsZero() {
		n.started = n.now().Wall
	}
	return nil
}

// loop passes events to the engine, one at a time. It fails if the sockets cannot be opened after a
// change of the node's ID.
func (n *Node) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var servingAt time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-n.inbox:
			n.step(ev)
		case p := <-n.probed:
			if err := n.decide(ctx, p); err != nil {
				return err
			}
		case <-n.wake:
			n.mu.Lock()
			out := n.takeMembers()
			n.mu.Unlock()
			n.execute(out)
		case <-timer.C:
			n.step(engine.Tick{})
			if now := time.Now(); now.Sub(servingAt) >= time.Second {
				n.notifyServing()
				n.check()
				servingAt = now
			}
		}
		n.mu.Lock()
		d := n.engine.Next() - n.now().Mono
		n.mu.Unlock()
		timer.Reset(min(max(d, time.Millisecond), time.Second))
	}
}

// check runs periodic tasks.
func (n *Node) check() {
	n.mu.Lock()
	out := n.takeMembers()
	if now := time.Now(); now.Sub(n.judgedAt) >= judgeEvery {
		n.judgedAt = now
		n.judgeMembers(&out)
	}
	n.probeRivals(&out)
	n.probeDoubts(&out)
	n.dropStale(&out)
	n.confirmID(&out)
	n.mu.Unlock()
	n.execute(out)
	var swept changes
	n.mu.Lock()
	n.sweepRoster(&swept)
	retired := n.retireFormer(&swept)
	n.mu.Unlock()
	n.execute(swept)
	for _, f := range retired {
		f()
	}
	n.checkPackets()
}

// execute carries out the effects of membership changes.
func (n *Node) execute(c changes) {
	n.disk.later(c.ops)
	for _, ev := range c.events {
		n.step(ev)
	}
	for _, line := range c.lines {
		n.logLine(line)
	}
	n.startProbes(n.life, c.probes)
}

// now returns the time for the engine.
func (n *Node) now() engine.Now {
	if n.opt.Simulation != nil {
		return n.opt.Simulation.Now()
	}
	return engine.Now{Wall: n.wall(), Mono: time.Since(n.created)}
}

// wall returns the time of the wall clock.
func (n *Node) wall() time.Time { return n.opt.Now().Round(0) }

// step passes an event to the engine and executes the returned actions.
func (n *Node) step(ev engine.Event) {
	n.mu.Lock()
	act := n.engine.Step(n.now(), ev)
	n.disk.later(act.Write) // before a reader stores a version that replaces a conflict
	n.notify(act.Changed)
	root := n.engine.Root()
	n.root.Store(&root)
	n.mu.Unlock()
	if len(act.Durable) > 0 {
		if err := n.disk.durable(act.Durable); err != nil {
			n.opt.Log.Error("cannot save gossip state; messages that depend on it are not sent", "error", err)
			act.Send = nil
		}
	}
	n.act(act)
}

// logLine logs a line, unless there are too many.
func (n *Node) logLine(text string, args ...any) {
	ok, dropped := n.notes.allow(time.Now())
	if dropped > 0 {
		n.opt.Log.Warn("gossip events were not logged; see conflicts, limbo and metrics for all of them", "dropped", dropped)
	}
	if ok {
		n.opt.Log.Warn(text, args...)
	}
}

func (n *Node) act(act engine.Actions) {
	for _, note := range act.Notes {
		n.logLine(note.Text, "what", note.What)
	}
	if len(act.Send) == 0 {
		return
	}
	if n.opt.Simulation != nil {
		n.opt.Simulation.Send(act.Send)
		return
	}
	n.mu.Lock()
	list := n.list
	addrs := make([]string, len(act.Send))
	for i, s := range act.Send {
		addrs[i] = n.addrs[s.To]
	}
	n.mu.Unlock()
	if list == nil {
		return
	}
	now := time.Now()
	for i, s := range act.Send {
		if addrs[i] == "" {
			n.counters.unsent.Add(1)
			continue
		}
		name := s.To
		if s.Stream || n.packets.lostTo(name, now) {
			name = viaStream + name
		}
		if err := list.SendToAddress(memberlist.Address{Addr: addrs[i], Name: name}, s.Data); err != nil {
			n.counters.unsent.Add(1)
			n.opt.Log.Debug("message not sent", "to", addrs[i], "bytes", len(s.Data), "error", err)
		}
	}
}
