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

// Options of a pool. Store, Decode, Dir, Node, Cluster, Bind and one of Keys and Insecure are
// required.
type Options struct {
	Store *store.Store
	// Decode reads a resource, with all checks, as [resource.Marshal] writes it.
	Decode func([]byte) (*resource.Resource, error)
	Dir    string // where the pool is kept: paths.state

	Node, Zone, Version, Cluster string
	Bind, Advertise              string // host:port; an empty host of Bind is all addresses
	Join                         []string
	Keys                         [][]byte
	KeyringFile                  string // Keys were read from it; it is read again when it changes. "": it never is
	Insecure, TCPOnly            bool

	// Changed is called when others say something that is no resource, as the authorities that they
	// have. It must not block.
	Changed func()
	// Converged is told how long a change of another node took to get here, by the clocks of both.
	// Nil: nobody is.
	Converged func(time.Duration)
	// Answer answers the questions of other members; see [gossip.Options].
	Answer func(ctx context.Context, question []byte) []byte

	Log *slog.Logger
	Now func() time.Time
}

// Source is the part of an agent that exchanges resources with others. Its methods may be called at
// the same time.
type Source struct {
	o       Options
	self    engine.NodeID
	node    *gossip.Node
	disk    *storage
	cold    bool // nothing was known of the pool at the start
	started time.Time
	watcher *gossip.Watcher

	mu      sync.Mutex
	waiting map[resource.Key]string                               // records that are not in force here, and why
	clashes map[resource.Key]string                               // resources of other nodes that are not taken, and why
	peers   map[engine.NodeID]map[resource.Key]*resource.Resource // what others own, as far as it can be used
	shared  map[resource.Key]bool                                 // what was written here and may not be in the store yet
	own     [32]byte                                              // of what was said to be owned last
	trust   trust
	reach   reach
	told    bool
	ownErr  error
	agreed  bool // with a peer, since the start
	left    bool // for good
	keysErr string
	differs map[engine.NodeID]time.Time // members that have something else, and since when that is seen

	keyStamp string // of the loop alone
	seedsErr atomic.Pointer[string]
	end      func() // ends the part in the pool
}

// Open opens what is kept of the pool. Nothing is sent before [Source.Start]. It may take a second
// where something of it is lost.
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
			// Peers tell the starts of a node by their seconds, and the file that knows the last one is
			// gone.
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
			Seeds: s.seeds, Answer: o.Answer, Keys: o.Keys, Insecure: o.Insecure, Storage: disk, Log: o.Log,
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

// addrPort reads the address of a socket.
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
		return out, fmt.Errorf("%q is no IP address with a port: give one such as 10.0.0.1:7946, or :7946 for all addresses",
			s)
	}
	return out, nil
}

// Addr is where others reach this node, once it was started.
func (s *Source) Addr() netip.AddrPort { return s.node.Addr() }

// syncTime is how long a node that knows nothing of the pool waits for it before it serves.
const syncTime = 10 * time.Second

// Start makes the node a member until ctx ends; the returned function waits until all of its
// goroutines have ended. Where nothing was known of the pool and there is somebody to join, Start
// returns once there is agreement with a peer, but not later than after some seconds.
func (s *Source) Start(ctx context.Context) (wait func() error, err error) {
	s.tellOwn()
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
		return nil, cmp.Or(wait(), context.Cause(ctx)) // what ended it is the cause
	}
	if s.cold && len(s.o.Join) > 0 {
		s.awaitPool(ctx)
	}
	s.offer()
	return wait, nil
}

// awaitPool waits until a peer has agreed, or for some seconds.
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
			s.o.Log.Warn("no peer has told what is in the pool; the agent goes on with what it has", "join", s.o.Join)
			return
		case <-tick.C:
			if s.agree() {
				s.take(s.watcher.Take(), false)
				return
			}
		}
	}
}

// agree reports whether this node has agreed with a peer since the start.
func (s *Source) agree() bool { return s.node.Stats().Agreed.After(s.started) }

// loop keeps the store and the pool alike until ctx ends.
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
			s.tellOwn()
			s.settle()
			s.retry()
		case <-tick.C:
			s.reloadKeys()
			s.compare()
			if !s.pruned() && s.agree() {
				s.prune()
			}
		}
	}
}

// Share puts what an operator writes into the pool. It is on disk when it returns, and on its way
// to others.
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

// mediaType is that of resources in the pool.
const mediaType = "application/json"

// ofNode reports whether resources of a kind belong to the node that they come from.
func ofNode(kind string) bool {
	switch kind {
	case "Dataplane", "ExternalService", "ZoneIngress", "ZoneEgress":
		return true
	}
	return false
}
