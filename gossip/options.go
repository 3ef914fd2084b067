package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Storage persists values by bucket and key. Keys are arbitrary bytes.
type Storage interface {
	// Load returns everything, in any order.
	Load() ([]engine.Op, error)
	// Write applies operations in order, all or none, and returns when they are on disk. Calls are
	// never concurrent.
	Write([]engine.Op) error
}

// Queue is a Storage that writes pending operations in the transactions of other changes too. The
// node passes all operations that may be written later to it.
type Queue interface {
	Storage
	// Later adds operations to the next transaction. It must neither block nor call the node.
	Later([]engine.Op)
	// Pending returns the number of operations that wait for a transaction. Write, even without
	// operations, writes them.
	Pending() int
}

// Options configures a node. Self, Cluster, and either Keys or Insecure are required.
type Options struct {
	Self    engine.NodeID // permanent ID of this node; the caller stores it
	Signer  sign.Signer   // key of this node, whose fingerprint is Self; nil: this node signs nothing
	Policy  engine.Policy // see [engine.Config]; nil: all entries may be in force
	Former  []Former      // earlier identities of this node
	Name    string        // display name
	Zone    string
	Version string // version of the program, shown to members
	Cluster string // up to 64 bytes; nodes of other clusters are ignored

	Bind []netip.AddrPort // one address per IP family; port 0: any port, the same for all. Empty: 0.0.0.0 and any port
	// Advertise is the address that peers use to reach this node. Zero: the address of Bind or, if
	// that is unspecified, an address of this host.
	Advertise netip.AddrPort
	TCPOnly   bool // send packets over TCP too

	// Seeds returns the addresses (host:port or ip:port) of nodes to join. It is called before each
	// attempt, so names can be resolved again. Nil: none.
	Seeds func() []string

	Keys     [][]byte // keys of the pool: 16, 24 or 32 bytes; the first encrypts, all decrypt
	Insecure bool     // run without Keys: messages are neither encrypted nor authenticated

	// Answer returns the answer to another member's [Node.Ask], or "" for no answer. It must be
	// safe for concurrent use. Nil: questions are ignored.
	Answer func(ctx context.Context, question []byte) []byte

	// Admit returns why a member must not be used, or "". It must be fast and must not call the node:
	// it is called with a lock held, often for the same member. Nil: all members are used.
	Admit func(Identity) string
	// Enrolled reports whether an operator vouches for a node with a key, so its clock counts at once.
	// It is called like Admit. Nil: for none.
	Enrolled func(engine.NodeID) bool

	// NewID creates and persists another ID, and its key if Signer is set, for this node. It is called
	// if another live process uses Self and started earlier, or if Copied is set. Nil: the node
	// reports the duplicate and keeps its ID.
	NewID func() (engine.NodeID, sign.Signer, error)
	// Copied is the reason why the saved state is a copy of another node's state, as a clause. "":
	// there is no evidence. If it is set, the node takes a new ID before it starts.
	Copied string

	Container string                 // see [engine.Config]
	Known     func(kind string) bool // see [engine.Config]

	Storage Storage // nil: no state survives the process
	Limits  engine.Limits
	Log     *slog.Logger     // nil: no logs
	Now     func() time.Time // the wall clock; nil: [time.Now]

	Simulation *Simulation // nil: a real node

	// Set by tests.
	transport   func() memberlist.NodeAwareTransport
	protocol    Protocol
	noFeatures  bool
	rosterLimit int
	known       func(name string) time.Time // since when this node knows a name
}

// Validate returns an error for the first missing or invalid option.
func (o Options) Validate() error {
	switch {
	case o.Self == (engine.NodeID{}):
		return errors.New("gossip options: Self is required")
	case o.Signer != nil && sign.Fingerprint(o.Signer.Public()) != sign.ID(o.Self):
		return errors.New("gossip options: Self must be the fingerprint of Signer")
	case o.Cluster == "" || len(o.Cluster) > 64:
		return fmt.Errorf("gossip options: Cluster has %d bytes, 1 to 64 are allowed", len(o.Cluster))
	case len(o.Name) > 64 || len(o.Zone) > 64 || len(o.Version) > 64:
		return errors.New("gossip options: Name, Zone and Version may have 64 bytes each")
	case len(o.Keys) == 0 && !o.Insecure:
		return errors.New("gossip options: Keys is empty: set a key of 32 bytes, or Insecure to send without encryption")
	case len(o.Keys) > 0 && o.Insecure:
		return errors.New("gossip options: both Keys and Insecure are set: unset Insecure")
	}
	for i, k := range o.Keys {
		if err := memberlist.ValidateKey(k); err != nil {
			return fmt.Errorf("gossip options: Keys[%d] has %d bytes; it must have 16, 24, or 32", i, len(k))
		}
	}
	seen := map[bool]bool{}
	for i, b := range o.Bind {
		if !b.Addr().IsValid() {
			return fmt.Errorf("gossip options: Bind[%d] is not a valid address", i)
		}
		if v4 := b.Addr().Unmap().Is4(); seen[v4] {
			return fmt.Errorf("gossip options: Bind[%d] is a second address of the same family, only one is allowed", i)
		} else {
			seen[v4] = true
		}
	}
	return nil
}

func (o Options) withDefaults() Options {
	if len(o.Bind) == 0 {
		o.Bind = []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), 0)}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Seeds == nil {
		o.Seeds = func() []string { return nil }
	}
	if o.Storage == nil {
		o.Storage = noStorage{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.protocol == (Protocol{}) {
		o.protocol = Protocol{engine.ProtocolMin, engine.ProtocolMax}
	}
	if o.rosterLimit == 0 {
		o.rosterLimit = maxRoster
	}
	return o
}

// noStorage discards writes.
type noStorage struct{}

func (noStorage) Load() ([]engine.Op, error) { return nil, nil }
func (noStorage) Write([]engine.Op) error    { return nil }
