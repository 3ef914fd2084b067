package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Types of package engine that callers of this one meet.
type (
	// Key names a record.
	Key = engine.Key
	// NodeID names a node for all its life.
	NodeID = engine.NodeID
	// Record is one version of what a Key names.
	Record = engine.Record
	// Put is a change of a record.
	Put = engine.Put
	// Item is one thing that a node owns.
	Item = engine.OwnItem
	// Conflict is a version that has lost against one whose writer did not know it.
	Conflict = engine.Conflict
	// Serving says what becomes of the things that a node owns.
	Serving = engine.Serving
	// Op is a change of what is on disk.
	Op = engine.Op
	// Limits bound what is kept.
	Limits = engine.Limits
)

// Storage keeps what must outlive the process: values by bucket and key, which are bytes.
type Storage interface {
	// Load returns everything, in any order.
	Load() ([]Op, error)
	// Write applies operations in their order, all or none, and returns when they are on disk. It is
	// called by one goroutine at a time.
	Write([]Op) error
}

// Options of a node. Self, Cluster and one of Keys and Insecure are required.
type Options struct {
	Self    NodeID // of this node for all its life; kept by the caller
	Name    string // of this node, for people
	Zone    string
	Version string // of the program, for members to see
	Cluster string // nodes of another cluster are not listened to; up to 64 bytes

	Bind []netip.AddrPort // one address for each family; port 0: any, the same for all. Empty: 0.0.0.0 and any port
	// Advertise is what others reach this node at. Zero: the address of Bind, or one of this host
	// where that is unspecified.
	Advertise netip.AddrPort
	TCPOnly   bool // packets go over TCP too

	// Seeds returns addresses (host:port or ip:port) of nodes to join. It is asked each time, so that
	// it can resolve names anew. Nil: none.
	Seeds func() []string

	Keys     [][]byte // of the pool: 16, 24 or 32 bytes; the first encrypts, all decrypt
	Insecure bool     // without Keys: everything is sent and taken in the clear

	// Answer answers what a member asks with [Node.Ask]; "" is no answer. It is called by several
	// goroutines at once. Nil: nothing is answered.
	Answer func(ctx context.Context, question []byte) []byte

	Storage Storage // nil: nothing outlives the process
	Limits  Limits
	Log     *slog.Logger // nil: nothing is logged

	transport memberlist.NodeAwareTransport // of tests
}

// Validate reports what is missing or wrong.
func (o Options) Validate() error {
	switch {
	case o.Self == (NodeID{}):
		return errors.New("gossip options: Self is required")
	case o.Cluster == "" || len(o.Cluster) > 64:
		return fmt.Errorf("gossip options: Cluster has %d bytes, 1 to 64 are allowed", len(o.Cluster))
	case len(o.Name) > 64 || len(o.Zone) > 64 || len(o.Version) > 64:
		return errors.New("gossip options: Name, Zone and Version may have 64 bytes each")
	case len(o.Keys) == 0 && !o.Insecure:
		return errors.New("gossip options: Keys is empty: set a key of 32 bytes, or Insecure to send everything in the clear")
	case len(o.Keys) > 0 && o.Insecure:
		return errors.New("gossip options: both Keys and Insecure are set: remove one")
	}
	for i, k := range o.Keys {
		if err := memberlist.ValidateKey(k); err != nil {
			return fmt.Errorf("gossip options: Keys[%d] has %d bytes, 16, 24 or 32 are allowed", i, len(k))
		}
	}
	seen := map[bool]bool{}
	for i, b := range o.Bind {
		if !b.Addr().IsValid() {
			return fmt.Errorf("gossip options: Bind[%d] is no address", i)
		}
		if v4 := b.Addr().Unmap().Is4(); seen[v4] {
			return fmt.Errorf("gossip options: Bind[%d] is a second address of its family, one is allowed", i)
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
		o.Storage = nowhere{}
	}
	return o
}

// nowhere is a storage that forgets.
type nowhere struct{}

func (nowhere) Load() ([]Op, error) { return nil, nil }
func (nowhere) Write([]Op) error    { return nil }

func newEngine(o Options, saved []Op) (*engine.Engine, engine.Actions) {
	return engine.New(engine.Config{Self: o.Self, Name: o.Name, Random: rand.IntN, Limits: o.Limits}, time.Now(), saved)
}

// ParseNodeID reads what [NodeID.String] writes.
func ParseNodeID(s string) (NodeID, error) { return engine.ParseNodeID(s) }
