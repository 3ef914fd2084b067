package ads

import (
	"sync"
	"sync/atomic"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// rootFactor is how many times as much memory root may take as any other peer.
const rootFactor = 4

// owner is what all connections and streams of one peer hold together; see Peer.owner.
type owner struct {
	name string

	// Guarded by the mu of the server.
	conns   int
	streams int
	silent  int // streams without a request so far

	maxKept  int64
	kept     atomic.Int64        // what the names of its requests and subscriptions cost, in bytes
	requests *semaphore.Weighted // bytes of its large requests that are under way
	warned   sync.Once           // that it had too many of these
}

// ownerOf returns the account of a peer, which is made when it is the first of its. The mu is held;
// dropOwner follows when a connection or stream ends.
func (s *Server) ownerOf(p access.Peer) *owner {
	name := p.Owner()
	o := s.owners[name]
	if o == nil {
		factor := int64(1)
		if p.Root() {
			factor = rootFactor
		}
		o = &owner{name: name, maxKept: factor * s.opts.MaxPeerBytes,
			requests: semaphore.NewWeighted(factor * max(s.opts.MaxPeerRequests, int64(s.opts.RecvBytes)))}
		s.owners[name] = o
	}
	return o
}

// dropOwner forgets an account that nothing is held on. The mu is held.
func (s *Server) dropOwner(o *owner) {
	if o.conns == 0 && o.streams == 0 {
		delete(s.owners, o.name)
	}
}

// admit counts a stream in, if it may be opened. The mu is held.
func (s *Server) admit(st *adsStream) (reason string, err error) {
	o := s.ownerOf(st.peer)
	defer s.dropOwner(o)
	switch {
	case s.stopping:
		return "", status.Error(codes.Unavailable, "the agent is stopping")
	case len(s.streams) >= int(s.opts.MaxStreams):
		return "too-many", status.Errorf(codes.ResourceExhausted, "%d streams are open, no more are taken", s.opts.MaxStreams)
	case st.peer.Root():
	case o.streams >= int(s.opts.MaxPeerStreams):
		return "too-many-of-peer", status.Errorf(codes.ResourceExhausted, "%s has %d streams open, no more of it are taken",
			o.name, s.opts.MaxPeerStreams)
	case o.silent >= int(s.opts.MaxPeerSilent):
		return "too-many-of-peer", status.Errorf(codes.ResourceExhausted,
			"%s has %d streams open without a request, no more of it are taken", o.name, s.opts.MaxPeerSilent)
	}
	s.nextID++
	st.id, st.owner = s.nextID, o
	s.streams[st] = struct{}{}
	o.streams++
	o.silent++
	s.wg.Add(1)
	return "", nil
}

// dismiss counts a stream out. The mu is held.
func (s *Server) dismiss(st *adsStream) {
	delete(s.streams, st)
	st.owner.streams--
	if !st.asked {
		st.owner.silent--
	}
	st.charges.close(st.owner)
	s.dropOwner(st.owner)
}

// receiveFirst reads the first request of a stream.
func (st *adsStream) receiveFirst(str grpc.ServerStream, msg proto.Message) error {
	err := receive(str, st, true, msg)
	st.srv.mu.Lock()
	st.asked = true
	st.owner.silent--
	st.srv.mu.Unlock()
	if isRefused(err) {
		st.srv.metrics.closed.WithLabelValues("bad-request").Inc()
	}
	return err
}

// isRefused says whether an error of receive is about the request and not about the connection.
func isRefused(err error) bool {
	code := status.Code(err)
	return code == codes.ResourceExhausted || code == codes.InvalidArgument
}

// charges is what the names of one stream cost.
type charges struct {
	mu     sync.Mutex
	bytes  int64
	closed bool
}

func (c *charges) close(o *owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	o.kept.Add(-c.bytes)
	c.bytes = 0
}

// charge puts bytes on the account of the peer, unless it has too many.
func (st *adsStream) charge(n int64) error {
	if n == 0 {
		return nil
	}
	c, o := &st.charges, st.owner
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return status.Error(codes.Unavailable, "the stream has ended")
	}
	if now := o.kept.Add(n); now > o.maxKept {
		o.kept.Add(-n)
		return status.Errorf(codes.ResourceExhausted, "the names that the streams of %s ask for take %d bytes in memory, "+
			"and this request %d more: at most %d are taken; reduce what its proxies reach, or run them as several users",
			o.name, now-n, n, o.maxKept)
	}
	c.bytes += n
	return nil
}

// release takes bytes off the account again.
func (st *adsStream) release(n int64) {
	if n == 0 {
		return
	}
	c := &st.charges
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.bytes -= n
		st.owner.kept.Add(-n)
	}
}

// takeCost makes the cost of the request that the handler looks at now the stream's present one.
// What is left of the last one is released: nothing of that request was kept. It is called from the
// goroutine of the stream alone.
func (st *adsStream) takeCost() {
	st.release(st.cost)
	st.cost = 0
	select {
	case st.cost = <-st.costs:
	default:
	}
}

// namesCost is what the names of one type cost, in bytes.
type namesCost struct {
	charged, counted int64 // as charged; as counted last
	countedPending   bool  // some names were pending then
}

// keepCost puts the cost of the present request on the account of its type, whose subscription has
// its names now.
func (st *adsStream) keepCost(rank int) {
	c := st.watches[rank]
	if c == nil {
		c = &namesCost{}
		st.watches[rank] = c
	}
	c.charged += st.cost
	st.cost = 0
	if c.charged <= 2*c.counted+64<<10 && (!c.countedPending || st.rollout.HasPending(rank)) {
		return
	}
	// Some names were counted twice, are given up or were settled.
	count, bytes := st.rollout.Names(rank)
	now := min(int64(bytes)+int64(count)*nameBytes, c.charged)
	st.release(c.charged - now)
	*c = namesCost{now, now, st.rollout.HasPending(rank)}
}
