package ads

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// keepGone is how many nodes without a stream are remembered.
const keepGone = 256

// claim is the hold of a peer on a node id, as long as it has a stream under it.
type claim struct {
	id      string
	ref     node.Ref
	peer    access.Peer
	streams int
}

// register puts a stream under its node, unless another peer uses the node id.
func (s *Server) register(st *adsStream, key node.Key, ref node.Ref) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[key.ID]
	if c != nil && c.peer.Holder() != st.peer.Holder() {
		if !st.peer.Root() {
			return status.Errorf(codes.PermissionDenied, "node id %q is in use by %s; %s may not take it",
				key.ID, c.peer, st.peer)
		}
		for other := range s.streams {
			if other.claim == c {
				other.kill("superseded",
					status.Errorf(codes.PermissionDenied, "node id %q was taken over from %s by %s", key.ID, c.peer, st.peer))
			}
		}
		c = nil
	}
	if c == nil {
		c = &claim{id: key.ID, ref: ref, peer: st.peer}
		s.claims[key.ID] = c
	}
	c.streams++
	st.claim = c

	n := s.nodes[key]
	if n == nil {
		n = &proxyNode{srv: s, key: key, ref: ref}
		s.nodes[key] = n
	}
	n.mu.Lock()
	n.ready = s.ready
	st.node = n
	n.streams = append(n.streams, st)
	n.mu.Unlock()
	return nil
}

// opened counts a stream that the handler has let in.
func (s *Server) opened(st *adsStream) {
	n := st.node
	s.mu.Lock()
	n.connected++
	first := n.connected == 1
	if first {
		s.metrics.proxies.Inc()
		if i := slices.Index(s.gone, n); i >= 0 {
			s.gone = slices.Delete(s.gone, i, i+1)
		}
	}
	n.mu.Lock()
	// Ready may have been called since the stream was registered.
	n.ready = s.ready
	st.number = s.lastStream.Add(1)
	n.introduce(st)
	st.watchGrace()
	n.mu.Unlock()
	s.mu.Unlock()
	s.watchers.notify()
	s.opts.Changed()
}

// LastStream returns the number of the stream that was let in last, 0 before the first. See
// [Config.LastStream].
func (s *Server) LastStream() uint64 { return s.lastStream.Load() }

// unregister takes a stream off its node and reports whether it was the last one that was let in. A
// node without streams is remembered for a while if it was ever let in.
func (s *Server) unregister(st *adsStream, wasOpened bool) (last bool) {
	n := st.node
	s.mu.Lock()
	if st.claim.streams--; st.claim.streams == 0 && s.claims[n.key.ID] == st.claim {
		delete(s.claims, n.key.ID)
	}
	n.mu.Lock()
	n.countResources()
	st.end()
	n.streams = slices.DeleteFunc(n.streams, func(o *adsStream) bool { return o == st })
	for rank, w := range n.sentBy {
		if w != nil && w == st.watches[rank] {
			n.sentBy[rank] = nil
		}
	}
	alone := len(n.streams) == 0
	if wasOpened {
		n.record(api.Event{Kind: "disconnected"}, nil)
	}
	n.noteAnswered()
	n.mu.Unlock()
	if wasOpened {
		n.connected--
		last = n.connected == 0
	}
	if last {
		s.metrics.proxies.Dec()
		n.leftAt = time.Now()
		n.mu.Lock()
		n.dropConfig()
		n.mu.Unlock()
		s.gone = append(s.gone, n)
		s.forget()
		s.awaitGone()
	} else if alone && n.connected == 0 && !slices.Contains(s.gone, n) {
		n.mu.Lock()
		s.countRejections(n, false)
		n.mu.Unlock()
		delete(s.nodes, n.key) // it was never let in
	}
	s.mu.Unlock()
	s.watchers.notify()
	return last
}

// awaitGone has what clients had that are gone forgotten when the time has come. The mu is held.
func (s *Server) awaitGone() {
	if s.goneTimer != nil || s.stopping {
		return
	}
	for _, n := range s.gone {
		if n.remembers() {
			s.goneTimer = time.AfterFunc(max(0, time.Until(n.leftAt.Add(s.opts.GoneTime))), func() {
				s.mu.Lock()
				s.goneTimer = nil
				s.mu.Unlock()
				s.forgetAccepted(s.opts.GoneTime)
			})
			return
		}
	}
}

// Shed forgets what clients had that are gone for a while already, for the sake of memory.
func (s *Server) Shed() { s.forgetAccepted(s.opts.GoneTime / 4) }

// forgetAccepted forgets what clients had that are gone for some time. Those that come back later
// are like clients of an agent that was started anew: they bring the versions that they have, and
// are sent what differs.
func (s *Server) forgetAccepted(after time.Duration) {
	s.mu.Lock()
	forgot := false
	for _, n := range s.gone {
		if time.Since(n.leftAt) >= after && n.remembers() {
			n.mu.Lock()
			n.accepted, n.against = draft.Lists{}, nil
			n.mu.Unlock()
			forgot = true
		}
	}
	s.awaitGone()
	s.mu.Unlock()
	if forgot {
		s.opts.Forgot()
	}
}

// remembers says whether there is something to forget of a node that is gone. What was accepted is
// needed where something else was rejected.
func (n *proxyNode) remembers() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.streams) == 0 && !n.rejects &&
		(len(n.against) > 0 || slices.ContainsFunc(n.accepted[:], func(l []*draft.Resource) bool { return len(l) > 0 }))
}

// forget drops the nodes that are gone beyond keepGone, first those that never had a config. The mu
// is held.
func (s *Server) forget() {
	for len(s.gone) > keepGone {
		i := max(0, slices.IndexFunc(s.gone, func(n *proxyNode) bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return !n.served
		}))
		// A stream may just be on its way in; then its node stays, and opened takes it off the list.
		n := s.gone[i]
		n.mu.Lock()
		idle := len(n.streams) == 0
		if idle {
			s.countRejections(n, false)
		}
		n.mu.Unlock()
		if idle {
			delete(s.nodes, n.key)
		}
		s.gone = slices.Delete(s.gone, i, i+1)
	}
}
