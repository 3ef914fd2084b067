package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Names of files in paths.state.
const (
	databaseFile = "gossip.db"
	identityFile = "node-id"
)

// Options configures a pool. Store, Decode, Dir, Node, Cluster, Bind, and either Keys or Insecure
// are required.
type Options struct {
	Store *store.Store
	// Decode parses and validates a resource written by [resource.Marshal].
	Decode func([]byte) (*resource.Resource, error)
	Dir    string // directory of the pool's files: paths.state

	Node, Zone, Version, Cluster string
	Bind, Advertise              string // host:port; an empty host of Bind means all addresses
	Join                         []string
	Keys                         [][]byte
	KeyringFile                  string // source of Keys; it is read again when it changes. "": none
	Insecure, TCPOnly            bool

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
}

// Source exchanges resources with the other agents of the pool. It is safe for concurrent use.
type Source struct {
	o       Options
	self    engine.NodeID
	node    *gossip.Node
	disk    *storage
	cold    bool // the pool was unknown at the start
	started time.Time
	watcher *gossip.Watcher

	mu        sync.Mutex
	waiting   map[resource.Key]string                               // records not in force here, and why
	clashes   map[resource.Key]string                               // refused resources of other nodes, and why
	peers     map[engine.NodeID]map[resource.Key]*resource.Resource // usable resources of other nodes
	shared    map[resource.Key]bool                                 // shared keys whose change may not be in the store yet
	own       [32]byte                                              // hash of the published items
	trust     trust
	reach     reach
	published bool
	ownErr    error
	agreed    bool // set by prune
	left      bool // left permanently
	keysErr   string
	differs   map[engine.NodeID]time.Time // members with a different state, and since when

	keyMu    sync.Mutex // held while the keyring is loaded
	keyStamp string     // guarded by keyMu
	seedsErr atomic.Pointer[string]
	end      func() // ends the membership
}

// Open opens the state of the pool. It sends nothing before [Source.Start]. If its database was
// lost, Open may take a second.
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
	self, fresh, err := nodeID(filepath.Join(o.Dir, identityFile))
	if err != nil {
		return nil, err
	}
	disk, err := openStorage(filepath.Join(o.Dir, databaseFile), o.Now())
	if err != nil {
		return nil, fmt.Errorf("open the pool: %w", err)
	}
	saved, err := disk.Load()
	if err == nil {
		if len(saved) == 0 && !fresh {
			// The epoch of a start is its time in seconds, and the file with the last epoch is gone.
			select {
			case <-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second))):
			case <-ctx.Done():
			}
		}
		s := &Source{o: o, self: self, disk: disk, cold: len(saved) == 0, started: o.Now(),
			waiting: map[resource.Key]string{}, clashes: map[resource.Key]string{}, shared: map[resource.Key]bool{},
			peers: map[engine.NodeID]map[resource.Key]*resource.Resource{}}
		s.node, err = gossip.New(gossip.Options{
			Self: self, Name: o.Node, Zone: o.Zone, Version: o.Version, Cluster: o.Cluster, Bind: []netip.AddrPort{bind},
			Advertise: advertise, TCPOnly: o.TCPOnly,
			Seeds: s.seeds, Answer: s.answer, Keys: o.Keys, Insecure: o.Insecure, Storage: disk, Log: o.Log,
		})
		if err == nil {
			s.openTrust()
			s.reach.open()
			s.watcher = s.node.Watch()
			s.take(s.watcher.Take(), true)
			return s, nil
		}
	}
	_ = disk.close()
	return nil, fmt.Errorf("open the pool: %w", err)
}

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
// If the pool was unknown and there are addresses to join, Start waits at most syncTime until this
// node agrees with a peer.
func (s *Source) Start(ctx context.Context) (wait func() error, err error) {
	s.publishOwn()
	g, ctx := errgroup.WithContext(ctx)
	pool, end := context.WithCancel(ctx)
	s.end = end
	g.Go(func() error { defer end(); return s.node.Run(pool) })
	g.Go(func() error { s.loop(ctx); return nil })
	g.Go(func() error { s.reachLoop(pool); return nil })
	wait = func() error { return errors.Join(g.Wait(), s.disk.close()) }
	select {
	case <-s.node.Ready():
	case <-ctx.Done():
		return nil, cmp.Or(wait(), context.Cause(ctx)) // the error that ended it
	}
	if s.cold && len(s.o.Join) > 0 {
		s.awaitPool(ctx)
	}
	s.offer()
	return wait, nil
}

// awaitPool waits until this node agrees with a peer, at most syncTime.
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
			s.resolveShared()
			s.retry()
		case <-tick.C:
			s.reloadKeys()
			s.compare()
			if !s.pruned() && s.hasAgreed() {
				s.prune()
			}
		}
	}
}

// Share adds changes made by operators to the pool. When it returns, they are on disk and on their
// way to other nodes.
func (s *Source) Share(changes []store.Change) error {
	var puts []engine.Put
	for i := range changes {
		c := &changes[i]
		k := engine.Key(c.Key)
		if c.Source.Kind != store.SourceAPI || ofNode(c.Key.Kind) || c.Deleted && s.node.Record(k) == nil {
			continue
		}
		p := engine.Put{Key: k, Delete: c.Deleted}
		if !c.Deleted {
			body, err := resource.Marshal(c.Resource)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Key, err)
			}
			p.Body, p.MediaType = body, mediaType
		}
		puts = append(puts, p)
	}
	if len(puts) == 0 {
		return nil
	}
	s.mu.Lock()
	for _, p := range puts {
		s.shared[resource.Key(p.Key)] = true
	}
	s.mu.Unlock()
	_, err := s.node.Put(puts...)
	return err
}

// mediaType is the media type of resources in the pool.
const mediaType = "application/json"

// ofNode reports whether resources of a kind belong to a node.
func ofNode(kind string) bool {
	switch kind {
	case "Dataplane", "ExternalService", "ZoneIngress", "ZoneEgress":
		return true
	}
	return false
}
