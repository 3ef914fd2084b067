package gossip

import (
	"math/rand/v2"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Simulation runs a node without sockets and goroutines, with a virtual clock. All fields are
// required. The caller passes events to [Node.Drive] instead of calling [Node.Run].
type Simulation struct {
	Now    func() engine.Now
	Random func(int) int       // returns a number in [0, n)
	Send   func([]engine.Send) // gets all messages of the node, and must not call it
}

// Drive processes one event of a simulation.
func (n *Node) Drive(ev engine.Event) {
	n.step(ev)
	n.notifyServing()
}

// Due returns the monotonic time at which a simulation must pass a Tick to Drive.
func (n *Node) Due() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Next()
}

// Unsaved returns the number of operations that wait for the disk.
func (n *Node) Unsaved() int {
	count, _ := n.disk.state()
	return count
}

// Save writes the operations that wait for the disk.
func (n *Node) Save() error { return n.disk.durable(nil) }

// Peer returns the state of a member, or zero.
func (n *Node) Peer(member string) engine.PeerState {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engine.Peer(member)
}

// Root returns the sum of all entries.
func (n *Node) Root() engine.Digest { return *n.root.Load() }

// random returns the source of random numbers of the engine.
func (o Options) random() func(int) int {
	if o.Simulation != nil {
		return o.Simulation.Random
	}
	return rand.IntN
}
