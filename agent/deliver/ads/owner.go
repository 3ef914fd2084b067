package ads

import (
	"sync"
	"sync/atomic"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// rootFactor multiplies the memory limits for root.
const rootFactor = 4

// A pod has few Envoys, and a node has many pods, so the limits of a pod are lower than those of a
// user.
const (
	podFactor  = 16 // divides the memory limit for subscriptions
	podStreams = 32
)

// owner accounts for all connections and streams of one peer; see Peer.Owner.
type owner struct {
	name string

	// Guarded by the mu of the server.
	conns   int
	streams int
	silent  int // streams that have not sent a request
	drains  int // concurrent drains

	maxStreams, maxSilent uint32

	maxKept  int64
	kept     atomic.Int64        // size in bytes of the names of its requests and subscriptions
	requests *semaphore.Weighted // limits the bytes of large requests
	warned   sync.Once           // a refused or closed connection was logged
}

// ownerOf returns the account of a peer. It creates the account if there is none. The caller holds
// mu, and calls dropOwner when the connection or stream ends.
func (s *Server) ownerOf(p access.Peer) *owner {
	name := p.Owner()
	o := s.owners[name]
	if o == nil {
		factor := int64(1)
		if p.Root() {
			factor = rootFactor
		}
		o = &owner{name: name, maxKept: factor * s.opts.MaxPeerBytes, maxStreams: s.opts.MaxPeerStreams,
			maxSilent: s.opts.MaxPeerSilent,
			requests:  semaphore.NewWeighted(factor * max(s.opts.MaxPeerRequests, int64(s.opts.RecvBytes)))}
		if p.Pod != nil {
			o.maxKept /= podFactor
			o.maxStreams, o.maxSilent = min(o.maxStreams, podStreams), min(o.maxSilent, podStreams/2)
		}
		s.owners[name] = o
	}
	return o
}

// dropOwner removes an account without connections and streams. The caller holds mu.
func (s *Server) dropOwner(o *owner) {
	if o.conns == 0 && o.streams == 0 && o.drains == 0 {
		delete(s.owners, o.name)
	}
}

// admit adds a stream, or returns an error and its metric label if there are too many. The caller
// holds mu.
func (s *Server) admit(st *adsStream) (reason string, err error) {
	o := s.ownerOf(st.peer)
	defer s.dropOwner(o)
	switch {
	case s.stopping:
		return "", status.Error(codes.Unavailable, "the agent is stopping")
	case len(s.streams) >= int(s.opts.MaxStreams):
		return "too-many", status.Errorf(codes.ResourceExhausted, "%d streams are open, which is the maximum",
			s.opts.MaxStreams)
	case st.peer.Root():
	case o.streams >= int(o.maxStreams):
		return "too-many-of-peer", status.Errorf(codes.ResourceExhausted, "%s has %d streams open, which is the maximum",
			o.name, o.maxStreams)
	case o.silent >= int(o.maxSilent):
		return "too-many-of-peer", status.Errorf(codes.ResourceExhausted,
			"%s has %d streams open without a request, which is the maximum", o.name, o.maxSilent)
	}
	s.nextID++
	st.id, st.owner = s.nextID, o
	s.streams[st] = struct{}{}
	o.streams++
	o.silent++
	s.wg.Add(1)
	return "", nil
}

// dismiss removes a stream. The caller holds mu.
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
		st.srv.refuse(st.peer, node.Key{}, reasonBadRequest, err)
	}
	return err
}

// isRefused reports whether an error of receive means that the request is refused, and not that the
// connection failed.
func isRefused(err error) bool {
	code := status.Code(err)
	return code == codes.ResourceExhausted || code == codes.InvalidArgument
}

// charges is the size of the names of one stream.
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

// charge adds bytes to the account of the peer. It fails if this exceeds the limit.
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
		return status.Errorf(codes.ResourceExhausted, "the names to which the streams of %s subscribe take %d bytes, "+
			"and this request takes %d more; at most %d are allowed: reduce what its proxies reach, "+
			"or run them as several users",
			o.name, now-n, n, o.maxKept)
	}
	c.bytes += n
	return nil
}

// release removes bytes from the account.
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

// nextCost makes the cost of the request that the handler reads now the present cost of the stream.
// It releases the remaining cost of the previous request, of which nothing was stored. It is called
// only by the goroutine of the stream.
func (st *adsStream) nextCost() {
	st.release(st.cost)
	st.cost = 0
	select {
	case st.cost = <-st.costs:
	default:
	}
}

// namesCost is the size of the names of one type in bytes.
type namesCost struct {
	charged, counted int64 // charged to the peer; at the last count
	countedPending   bool  // some names were pending at the last count
}

// chargeType adds the cost of the present request to that of its type, because the subscription
// stores the names.
func (st *adsStream) chargeType(rank int) {
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
	// Some names were counted twice, or were removed or answered since.
	count, bytes := st.rollout.Names(rank)
	now := min(int64(bytes)+int64(count)*nameBytes, c.charged)
	st.release(c.charged - now)
	*c = namesCost{now, now, st.rollout.HasPending(rank)}
}
