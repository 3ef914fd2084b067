package peers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Members returns the nodes of the pool as seen by this node, sorted by name.
func (s *Source) Members() []api.Member { return s.members(nil) }

// members is Members. It reports the nodes in equal as in sync.
func (s *Source) members(equal map[engine.NodeID]bool) []api.Member {
	list := s.node.Members()
	own := revision(s.node.Stats().Root)
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.agentLost()
	now := s.o.Now()
	out := make([]api.Member, len(list))
	for i, m := range list {
		x := &out[i]
		*x = api.Member{Name: m.Name, ID: m.Node.String(), Zone: m.Zone, Version: m.Version, Address: m.Addr.String(),
			State: m.State, Since: m.Since.UTC().Truncate(time.Second), Self: m.Self, InSync: m.Self || m.Agrees,
			Ahead: m.Ahead.Seconds(), AgentLost: lost[m.Node] > 0, Revision: revision(m.Root), Files: s.files.differs[m.Node],
			Incompatible: m.Incompatible, PacketsLost: m.PacketsLost, Signed: m.Signed, Reason: m.Reason}
		switch {
		case m.Self || equal[m.Node]:
			x.Revision, x.InSync = own, true
		case !m.Differs.IsZero() && m.State == gossip.StateAlive:
			x.InSync, x.Lag = false, max(now.Sub(m.Differs), 0).Seconds()
		}
	}
	return out
}

const (
	compareTries = 3
	comparePause = 50 * time.Millisecond // for changes on their way
	compareTime  = 3 * time.Second
)

// Compared is Members with the current state of the live members: it asks those whose last probe
// response differs from the state of this node. It may take seconds.
func (s *Source) Compared(ctx context.Context) []api.Member {
	ctx, cancel := context.WithTimeout(ctx, compareTime)
	defer cancel()
	equal := map[engine.NodeID]bool{}
	differing := slices.DeleteFunc(s.others(), func(m gossip.Member) bool { return m.Agrees })
	for try := 0; len(differing) > 0 && try < compareTries; try++ {
		if try > 0 {
			select {
			case <-time.After(comparePause):
			case <-ctx.Done():
			}
		}
		before := s.root()
		replies := askAll[rootAnswer](ctx, s, askRoot, differing)
		after := s.root()
		differing = nil
		for _, r := range replies {
			switch {
			case r.err != nil: // its last probe response is the best information
			case r.got.Root == before || r.got.Root == after:
				equal[r.member.Node] = true
			default:
				differing = append(differing, r.member)
			}
		}
	}
	return s.members(equal)
}

// revision returns a short form of a root for display, or "" if it is unknown.
func revision(root engine.Digest) string {
	if root == (engine.Digest{}) {
		return ""
	}
	return fmt.Sprintf("%08x", uint32(root[0]>>32)) // #nosec G115 -- truncated on purpose
}

// Dropped returns the number of dropped messages by reason.
func (s *Source) Dropped() map[string]uint64 {
	st := s.node.Stats()
	return map[string]uint64{"busy": st.Dropped, "unsent": st.Unsent, "refused": st.Refused + st.Forged}
}
