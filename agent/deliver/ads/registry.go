package ads

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// claim records which peer uses a node id. It exists as long as the peer has a stream with the id.
type claim struct {
	id      string
	ref     node.Ref
	peer    access.Peer
	streams int
}

// register adds a stream to its node. It fails if another peer uses the node id, unless the new
// peer is root, which takes over.
func (s *Server) register(st *adsStream, key node.Key, ref node.Ref) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[key.ID]
	if c != nil && c.peer.Holder() != st.peer.Holder() {
		if !st.peer.Root() {
			return inUse(key.ID, c.peer, st.peer)
		}
		for other := range s.streams {
			if other.claim == c {
				other.End("superseded",
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

	st.rollout = s.proxies.Join(key, ref, st.client, st)
	return nil
}

// inUse is the error for a peer whose node id another peer uses.
func inUse(id string, holder, p access.Peer) error {
	return status.Errorf(codes.PermissionDenied, "node id %q is in use by %s; %s may not use it: "+
		"give each Envoy its own node id, or stop the other one", id, holder, p)
}

// unregister removes a stream from its node and reports whether it was the last opened stream.
func (s *Server) unregister(st *adsStream) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.claim.streams--; st.claim.streams == 0 && s.claims[st.claim.id] == st.claim {
		delete(s.claims, st.claim.id)
	}
	return st.rollout.Leave()
}
