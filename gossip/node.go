package gossip

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Node is a member of the cluster. It is safe for concurrent use.
type Node struct {
	opt    Options
	meta   meta
	member string // member name in memberlist

	writes sync.Mutex // serializes local changes; taken before mu, and held during disk writes

	mu       sync.Mutex // never held during disk or network access
	engine   *engine.Engine
	roster   map[engine.NodeID]rosterEntry
	addrs    map[string]string // address of each live member
	watchers map[*Watcher]struct{}
	serving  map[engine.NodeID]engine.Serving // state last reported to watchers
	list     *memberlist.Memberlist
	addr     netip.AddrPort
	ring     *memberlist.Keyring // nil without encryption
	started  time.Time
	created  time.Time // start of the monotonic clock passed to the engine
	closing  bool      // no goroutine may start any more

	disk *disk

	inbox chan engine.Event
	wake  chan struct{} // one slot: members have changed

	memberMu     sync.Mutex
	memberEvents []memberEvent
	live         map[string]bool // members that memberlist reports as alive
	membersAt    time.Time       // last change of live
	membersWait  bool            // a comparison was deferred, because an update may be on its way
	membersHash  atomic.Uint64
	root         atomic.Pointer[engine.Digest]
	exchange     chan string // one slot: a peer with a different member list

	ready     chan struct{}
	stopped   chan struct{}
	wg        sync.WaitGroup
	life      context.Context // context of Run
	questions questions
	socket    *transport
	notes     lineLimit
	counters  nodeCounters
}

type nodeCounters struct {
	inboxFull, badMember, cloned, rosterFull, exchanges, unsent atomic.Uint64
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
		watchers: map[*Watcher]struct{}{},
		serving:  map[engine.NodeID]engine.Serving{},
		inbox:    make(chan engine.Event, inboxSize), wake: make(chan struct{}, 1), live: map[string]bool{},
		exchange:  make(chan string, 1),
		questions: newQuestions(), ready: make(chan struct{}), stopped: make(chan struct{}), disk: newDisk(o.Storage, o.Log)}
	n.root.Store(&engine.Digest{})
	if len(o.Keys) > 0 {
		if n.ring, err = memberlist.NewKeyring(o.Keys, o.Keys[0]); err != nil {
			return nil, fmt.Errorf("gossip: keys: %w", err)
		}
	}
	e, act := engine.New(engine.Config{Self: o.Self, Name: o.Name, Random: o.random(), Limits: o.Limits}, n.now(), saved)
	n.engine, n.member = e, e.Member()
	n.meta = meta{node: o.Self, epoch: e.Stats().Epoch, name: o.Name, zone: o.Zone, version: o.Version}
	n.loadRoster(saved)
	if err := n.disk.durable(act.Durable); err != nil {
		return nil, fmt.Errorf("gossip: cannot save the epoch of this start, so peers would ignore later changes: %w", err)
	}
	n.act(act)
	return n, nil
}

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
	n.loop(ctx)
	cancel()
	n.mu.Lock()
	n.closing = true
	n.mu.Unlock()
	n.questions.close()
	err := n.list.Shutdown() // closes the transport, which stops goroutines that wait for peers
	n.wg.Wait()
	if e := n.disk.durable(nil); e != nil {
		return fmt.Errorf("gossip: save state: %w", e)
	}
	return err
}

func (n *Node) open() error {
	t := n.opt.transport
	if t == nil {
		s, err := listen(n.opt.Bind, n.opt.TCPOnly)
		if err != nil {
			return err
		}
		n.socket, t = s, s
		s.start()
	}
	list, err := memberlist.Create(n.memberlistConfig(t))
	if err != nil {
		_ = t.Shutdown()
		return fmt.Errorf("gossip: start membership: %w", err)
	}
	self := list.LocalNode()
	ip, _ := netip.AddrFromSlice(self.Addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list, n.addr, n.started = list, netip.AddrPortFrom(ip.Unmap(), self.Port), time.Now()
	return nil
}

// loop passes events to the engine, one at a time.
func (n *Node) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var servingAt time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-n.inbox:
			n.step(ev)
		case <-n.wake:
			n.mu.Lock()
			events, ops := n.takeMembers()
			n.mu.Unlock()
			n.disk.later(ops)
			for _, ev := range events {
				n.step(ev)
			}
		case <-timer.C:
			n.step(engine.Tick{})
			if now := time.Now(); now.Sub(servingAt) >= time.Second {
				n.notifyServing()
				servingAt = now
			}
		}
		n.mu.Lock()
		d := n.engine.Next() - n.now().Mono
		n.mu.Unlock()
		timer.Reset(min(max(d, time.Millisecond), time.Second))
	}
}

// now returns the time for the engine.
func (n *Node) now() engine.Now {
	if n.opt.Simulation != nil {
		return n.opt.Simulation.Now()
	}
	t := time.Now()
	return engine.Now{Wall: t, Mono: t.Sub(n.created)}
}

// step passes an event to the engine and executes the returned actions.
func (n *Node) step(ev engine.Event) {
	n.mu.Lock()
	act := n.engine.Step(n.now(), ev)
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

func (n *Node) act(act engine.Actions) {
	n.disk.later(act.Write)
	for _, note := range act.Notes {
		ok, dropped := n.notes.allow(time.Now())
		if dropped > 0 {
			n.opt.Log.Warn("gossip events were not logged; see conflicts, limbo and metrics for all of them", "dropped", dropped)
		}
		if ok {
			n.opt.Log.Warn(note.Text, "what", note.What)
		}
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
	for i, s := range act.Send {
		if addrs[i] == "" {
			n.counters.unsent.Add(1)
			continue
		}
		name := s.To
		if s.Stream {
			name = viaStream + name
		}
		if err := list.SendToAddress(memberlist.Address{Addr: addrs[i], Name: name}, s.Data); err != nil {
			n.counters.unsent.Add(1)
			n.opt.Log.Debug("message not sent", "to", addrs[i], "bytes", len(s.Data), "error", err)
		}
	}
}
