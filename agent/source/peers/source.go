package peers

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/source/peers/policy"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Options configures a pool. Store, Decode, Self, Node, Cluster, Bind, and either Keys or Insecure
// are required.
type Options struct {
	Store *store.Store
	// Decode parses and validates a resource written by [resource.Marshal].
	Decode func([]byte) (*resource.Resource, error)
	Self   engine.NodeID // ID of this node; see [OpenIdentity]
	Fresh  bool          // Self is new
	Signer sign.Signer   // key of Self; nil: this node signs nothing
	Former []gossip.Former
	// NewID creates and saves another identity, if the state directory is a copy. Nil: Self stays.
	NewID   func() (Identity, error)
	Machine Machine // the present machine; zero: unknown

	Node, Zone, Version, Cluster string
	Bind, Advertise              string // host:port; an empty host of Bind means all addresses
	Join                         []string
	Keys                         [][]byte
	KeyringFile                  string // source of Keys; it is read again when it changes. "": none
	Insecure, TCPOnly            bool

	Trust TrustOptions
	State string   // directory with the state of this node; "": the trust file is not saved
	Kinds []string // of resources that this version knows

	// Published maps the paths of this node's published directories to their IDs.
	Published map[string]string
	// Directories returns their content; see [directory.Source.Published]. Nil: there are none.
	Directories func() []directory.Published

	// Changed is called when peers publish changes other than resources, such as authorities. It must
	// not block.
	Changed func()
	// Converged is called with the time that a change of another node took to arrive, by the clocks of
	// both nodes. Nil: not called.
	Converged func(time.Duration)
	// Answer answers questions of other members; see [gossip.Options].
	Answer func(ctx context.Context, question []byte) []byte

	Log *slog.Logger
	Now func() time.Time

	tune func(*gossip.Options) // set by tests; may be nil
}

// Source exchanges resources with the other agents of the pool. It is safe for concurrent use.
type Source struct {
	o       Options
	node    *gossip.Node
	cold    bool // the pool was unknown at the start
	started time.Time
	watcher *gossip.Watcher

	mu      sync.Mutex
	clashes map[resource.Key]string                               // refused resources of other nodes, and why
	peers   map[engine.NodeID]map[resource.Key]*resource.Resource // usable resources of other nodes
	claims  map[resource.Key][]engine.NodeID                      // the nodes in peers with a key, sorted
	touched map[resource.Key]bool                                 // keys in claims that the store has changed
	names   map[engine.NodeID]string                              // of the nodes in peers
	// keys of the nodes in peers that have signed their resources
	signers    map[engine.NodeID]sign.ID
	local      *store.Snapshot                 // content that ownItems were read from
	ownItems   map[resource.Key]engine.OwnItem // this node's resources in local
	ownChanges uint64                          // of ownItems
	own        [32]byte                        // hash of ownChanges and of the other published items
	trust      authorities
	policy     *policy.Policy
	verdicts   verdicts
	searching  atomic.Bool                             // for enrolled members; see findEnrolled
	outside    map[engine.NodeID]map[engine.Key]string // items beyond enrollments and roles, and why
	reach      reach
	files      fileDigests
	voided     map[int][]resource.Key // by heals of this start, by era
	audit      audit
	dirs       directories
	published  bool
	ownErr     error
	left       bool // left permanently
	keysErr    string

	keyMu    sync.Mutex // held while the keyring is loaded
	keyStamp string     // guarded by keyMu
	seedsErr atomic.Pointer[string]
	end      func() // ends the membership
}

// Open joins the store to the pool. It sends nothing before [Source.Start].
func Open(ctx context.Context, o Options) (*Source, error) {
	bind, err := addrPort(o.Bind)
	if err != nil {
		return nil, fmt.Errorf("gossip.bind: %w", err)
	}
	var advertise netip.AddrPort
	if o.Advertise != "" {
		if advertise, err = addrPort(o.Advertise); err != nil {
			return nil, fmt.Errorf("gossip.advertise: %w", err)
		}
	}
	disk := storage{o.Store}
	saved, _ := disk.Load() // never fails
	if err := checkFiles(o, saved); err != nil {
		o.Log.Warn("cannot write the state of the pool", "error", err)
	}
	cold := len(saved) == 0
	if cold && !o.Fresh {
		// The epoch of a start is its time in seconds, and the state with the last epoch is lost.
		select {
		case <-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second))):
		case <-ctx.Done():
		}
	}
	s := &Source{o: o, cold: cold, started: o.Now(), clashes: map[resource.Key]string{},
		peers:  map[engine.NodeID]map[resource.Key]*resource.Resource{},
		claims: map[resource.Key][]engine.NodeID{}, touched: map[resource.Key]bool{}, names: map[engine.NodeID]string{},
		signers:  map[engine.NodeID]sign.ID{},
		ownItems: map[resource.Key]engine.OwnItem{}, voided: map[int][]resource.Key{}}
	s.openPolicy(saved)
	pool := gossip.Options{
		Self: o.Self, Name: o.Node, Zone: o.Zone, Version: o.Version, Cluster: o.Cluster, Bind: []netip.AddrPort{bind},
		Advertise: advertise, TCPOnly: o.TCPOnly, Seeds: s.seeds, Answer: s.answer, Keys: o.Keys, Insecure: o.Insecure,
		Container: "Mesh", Known: func(kind string) bool { return len(o.Kinds) == 0 || slices.Contains(o.Kinds, kind) },
		Storage: loadedStorage{disk, saved}, Log: o.Log, Now: o.Now, Signer: o.Signer, Former: o.Former,
		Policy: s.policy, Admit: s.admit,
		Enrolled: func(id engine.NodeID) bool { return s.policy.State().Enrollment(id) != nil },
	}
	if o.NewID != nil {
		pool.NewID = func() (engine.NodeID, sign.Signer, error) {
			id, err := o.NewID()
			if err == nil {
				s.policy.SetSelf(id.Node)
			}
			return id.Node, id.Signer, err
		}
	}
	machine, was := machineOp(saved)
	machine.Value, pool.Copied = CopiedFrom(was, o.Machine)
	if o.tune != nil {
		o.tune(&pool)
	}
	if s.node, err = gossip.New(pool); err != nil {
		return nil, fmt.Errorf("open the pool: %w", err)
	}
	if o.Machine != (Machine{}) && !bytes.Equal(machine.Value, was) {
		if err := disk.Write([]engine.Op{machine}); err != nil {
			o.Log.Warn("cannot save the identity of this machine; a copy of the state may go unnoticed", "error", err)
		}
	}
	o.Store.Connect(s.node)
	s.dirs.open()
	s.openTrust()
	s.reach.open()
	s.files.open()
	s.watcher = s.node.Watch()
	s.take(s.watcher.Take(), true)
	s.retrust()
	return s, nil
}

// loadedStorage is a storage whose state is already loaded.
type loadedStorage struct {
	storage
	saved []engine.Op
}

// Load implements [gossip.Storage].
func (s loadedStorage) Load() ([]engine.Op, error) { return s.saved, nil }

// addrPort parses the address of a socket.
func addrPort(s string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		host = "0.0.0.0"
	}
	out, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return out, fmt.Errorf("%q is not an IP address with a port; set one such as 10.0.0.1:7946, "+
			"or :7946 for all addresses", s)
	}
	return out, nil
}

// Addr returns the address at which peers reach this node, after Start.
func (s *Source) Addr() netip.AddrPort { return s.node.Addr() }

// syncTime is how long a node without any state of the pool waits for a peer before it serves.
const syncTime = 10 * time.Second

// Start joins the pool until ctx ends. The returned function waits until all goroutines have ended.
// If the pool was unknown and there are other addresses to join, Start waits at most syncTime until
// this node agrees with a peer.
func (s *Source) Start(ctx context.Context) (wait func() error, err error) {
	s.enter()
	g, ctx := errgroup.WithContext(ctx)
	pool, end := context.WithCancel(ctx)
	s.end = end
	g.Go(func() error { defer end(); return s.node.Run(pool) })
	g.Go(func() error { s.loop(ctx); return nil })
	g.Go(func() error { s.reachLoop(pool); return nil })
	wait = g.Wait
	select {
	case <-s.node.Ready():
	case <-ctx.Done():
		return nil, cmp.Or(wait(), context.Cause(ctx)) // the error that ended it
	}
	if s.cold && len(s.o.Join) > 0 {
		s.awaitPool(ctx)
	}
	return wait, nil
}

// enter publishes the resources of this node.
func (s *Source) enter() {
	if s.node.Stats().Agreed.IsZero() {
		// Other nodes may not accept old versions of a node that was never in the pool.
		if err := s.o.Store.Renew(s.o.Now().Add(-renewAge)); err != nil {
			s.o.Log.Warn("cannot renew old resources for the pool", "error", err)
		}
	}
	if s.o.Directories != nil {
		s.announce(s.o.Directories())
	}
	s.publishOwn()
}

// renewAge is the age of versions that are renewed when a node joins a pool for the first time. It
// is below the lifetime of tombstones.
const renewAge = 7 * 24 * time.Hour

// awaitPool waits until this node agrees with a peer, at most syncTime. A node that is the only one
// to join, such as the first pod of a DaemonSet, does not wait.
func (s *Source) awaitPool(ctx context.Context) {
	late := time.NewTimer(syncTime)
	defer late.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			s.o.Log.Warn("no peer has sent the state of the pool; the agent continues with local resources", "join", s.o.Join)
			return
		case <-tick.C:
			if s.hasAgreed() {
				s.take(s.watcher.Take(), false)
				return
			}
			if s.node.Alone() {
				s.o.Log.Info("no other node to join; this is the first node of the pool", "join", s.o.Join)
				return
			}
		}
	}
}

// hasAgreed reports whether this node has been in sync with a peer since it started.
func (s *Source) hasAgreed() bool { return s.node.Stats().Agreed.After(s.started) }

// loop synchronizes the store and the pool until ctx ends.
func (s *Source) loop(ctx context.Context) {
	defer s.watcher.Close()
	changed, stop := s.o.Store.Watch()
	defer stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.watcher.C():
			s.take(s.watcher.Take(), false)
		case <-changed:
			s.publishOwn()
			s.retry()
			s.resettle()
		case <-tick.C:
			s.publishDirectories()
			s.reloadKeys()
			s.runAudit(s.o.Now())
			s.expireTrust()
			s.findEnrolled()
		}
	}
}

// ofNode reports whether resources of a kind belong to a node.
func ofNode(kind string) bool { return !Shared(kind) }

// Shared reports whether operators' resources of a kind are records of the pool. Other kinds belong
// to a node.
func Shared(kind string) bool {
	switch kind {
	case "Dataplane", "ExternalService", "ZoneIngress", "ZoneEgress", resource.KindEndpointState:
		return false
	}
	return true
}
