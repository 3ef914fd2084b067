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

// Node is one member of the cluster. It is safe for use by many goroutines.
type Node struct {
	opt    Options
	meta   meta
	member string // name in memberlist

	writes sync.Mutex // one local change at a time; taken before mu, and held over the disk

	mu       sync.Mutex // never held over the disk or the network
	engine   *engine.Engine
	roster   map[NodeID]known
	addrs    map[string]string // of members that are up
	watchers map[*Watcher]struct{}
	serving  map[NodeID]Serving // as watchers were told
	list     *memberlist.Memberlist
	addr     netip.AddrPort
	ring     *memberlist.Keyring // nil without encryption
	started  time.Time
	closing  bool // nothing is started any more

	disk *disk

	inbox chan engine.Event
	wake  chan struct{} // one slot: members have changed

	memberMu     sync.Mutex
	memberEvents []memberEvent
	live         map[string]bool // members that are up, as memberlist says
	membersAt    time.Time       // when that changed last
	membersWait  bool            // a difference was left to what is on its way
	membersHash  atomic.Uint64
	root         atomic.Pointer[engine.Digest]
	exchange     chan string // one slot: a peer that knows other members

	ready    chan struct{}
	stopped  chan struct{}
	wg       sync.WaitGroup
	life     context.Context // of Run
	asks     asks
	socket   *transport
	notes    lineLimit
	counters nodeCounters
}

type nodeCounters struct {
	inboxFull, badMember, cloned, rosterFull, exchanges, unsent atomic.Uint64
}

// inboxSize bounds the messages that wait for the engine.
const inboxSize = 4096

// New returns a node with what its storage has kept. It is a member once it runs.
func New(o Options) (*Node, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	saved, err := o.Storage.Load()
	if err != nil {
		return nil, fmt.Errorf("gossip: load what was saved: %w", err)
	}
	n := &Node{opt: o, roster: map[NodeID]known{}, addrs: map[string]string{}, watchers: map[*Watcher]struct{}{},
		serving: map[NodeID]Serving{},
		inbox:   make(chan engine.Event, inboxSize), wake: make(chan struct{}, 1), live: map[string]bool{},
		exchange: make(chan string, 1),
		asks:     newAsks(), ready: make(chan struct{}), stopped: make(chan struct{}), disk: newDisk(o.Storage, o.Log)}
	n.root.Store(&engine.Digest{})
	if len(o.Keys) > 0 {
		if n.ring, err = memberlist.NewKeyring(o.Keys, o.Keys[0]); err != nil {
			return nil, fmt.Errorf("gossip: keys: %w", err)
		}
	}
	e, act := newEngine(o, saved)
	n.engine, n.member = e, e.Member()
	n.meta = meta{node: o.Self, epoch: e.Stats().Epoch, name: o.Name, zone: o.Zone, version: o.Version}
	n.loadRoster(saved)
	if err := n.disk.durable(act.Durable); err != nil {
		return nil, fmt.Errorf("gossip: the epoch of this start cannot be saved, and without it peers would take later "+
			"changes for old ones: %w", err)
	}
	n.act(act)
	return n, nil
}

// Ready is closed when the sockets are open.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Addr is where others reach this node, once it is ready.
func (n *Node) Addr() netip.AddrPort {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addr
}

// Run makes the node a member until the context ends. It may be called once.
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
	n.asks.close()
	err := n.list.Shutdown() // closes the transport, and so ends what waits for peers
	n.wg.Wait()
	if e := n.disk.durable(nil); e != nil {
		return fmt.Errorf("gossip: save what was not saved yet: %w", e)
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

// loop hands events to the engine, one after the other.
func (n *Node) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var told time.Time
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
			if now := time.Now(); now.Sub(told) >= time.Second {
				n.tellServing()
				told = now
			}
		}
		n.mu.Lock()
		d := time.Until(n.engine.Next())
		n.mu.Unlock()
		timer.Reset(min(max(d, time.Millisecond), time.Second))
	}
}

// step gives the engine an event and does what it asks for.
func (n *Node) step(ev engine.Event) {
	n.mu.Lock()
	act := n.engine.Step(time.Now(), ev)
	n.told(act.Changed)
	root := n.engine.Root()
	n.root.Store(&root)
	n.mu.Unlock()
	if len(act.Durable) > 0 {
		if err := n.disk.durable(act.Durable); err != nil {
			n.opt.Log.Error("the state of gossip cannot be saved; what depends on it is not sent", "error", err)
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
			n.opt.Log.Warn("more has happened than is logged; conflicts, limbo and figures have all of it", "dropped", dropped)
		}
		if ok {
			n.opt.Log.Warn(note.Text, "what", note.What)
		}
	}
	if len(act.Send) == 0 {
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
			n.opt.Log.Debug("a message was not sent", "to", addrs[i], "bytes", len(s.Data), "error", err)
		}
	}
}
