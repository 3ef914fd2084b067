package peers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
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
			Ahead: m.Ahead.Seconds(), AgentLost: lost[m.Node] > 0, Revision: revision(m.Root), Files: s.files.differs[m.Node]}
		switch at := s.differs[m.Node]; {
		case m.Self || equal[m.Node]:
			x.Revision, x.InSync = own, true
		case !at.IsZero() && !m.Agrees:
			x.Lag = max(now.Sub(at), 0).Seconds()
		}
		if keys, longest := s.lasting(m.Node); len(keys) > 0 {
			x.InSync, x.Lag = false, longest.Seconds()
		}
	}
	return out
}

const (
	compareTries = 3
	comparePause = 50 * time.Millisecond // for changes on their way
)

// Compared is Members with the current state of the live members: it asks those whose last probe
// response differs from the state of this node. It may take seconds.
func (s *Source) Compared(ctx context.Context) []api.Member {
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
		replies := askAll[rootAnswer](ctx, s, question{Ask: askRoot}, differing)
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

// compare records since when members differ from this node.
func (s *Source) compare() {
	next := map[engine.NodeID]time.Time{}
	now := s.o.Now()
	list := s.node.Members()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		if m.Self || m.Agrees || m.Heard.IsZero() {
			continue
		}
		next[m.Node] = now
		if at, ok := s.differs[m.Node]; ok {
			next[m.Node] = at
		}
	}
	s.differs = next
}

// maxSkew is the clock difference above which a check reports it.
const maxSkew = 2 * time.Second

// manyCAs is the number of nodes above which a check recommends a provided CA: each proxy receives
// about 700 bytes for each node.
const manyCAs = 100

// peersCheck reports the members of the pool and faults of this node.
func (s *Source) peersCheck() api.Check {
	out := api.Check{Name: "peers", OK: true}
	alive := 1
	var dead []string
	for _, m := range s.node.Members() {
		switch {
		case m.Self:
		case m.State == gossip.StateAlive:
			alive++
		case m.State != gossip.StateLeft:
			dead = append(dead, cmp.Or(m.Name, m.Node.String()))
		}
	}
	out.Reason = plural.Form(alive, "no other member is alive", "%d members are alive")
	st := s.node.Stats()
	var problems []string
	report := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	report(alive == 1 && len(s.o.Join) > 0,
		"no address of gossip.join responds: check the network, the cluster name, and the keys")
	report(len(dead) > 0, "%s: %s; run nearside members to list them",
		plural.Form(len(dead), "1 member is dead", "%d members are dead"), named(dead))
	report(st.SaveError != "", "the state of the pool cannot be saved: %s", st.SaveError)
	report(st.Cloned != "", "%s", st.Cloned)
	report(st.Skew > maxSkew || st.Skew < -maxSkew, "the clock differs from those of the other nodes by %s",
		st.Skew.Round(time.Millisecond))
	report(st.ClockDiffers != 0, "the clock of a node differs by %s from this one, and no majority shows which is right: "+
		"synchronize the clocks", st.ClockDiffers.Round(time.Millisecond))
	report(st.Conflicts > 0, "changes that lost to concurrent changes: %d", st.Conflicts)
	report(st.Limbo > 0, "records that may have been deleted long ago and are not in force: %d", st.Limbo)
	report(s.node.Hold(),
		"many nodes were lost at once, probably because of a network partition: their resources are not removed")
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost := s.agentLost(); len(lost) > 0 {
		names := s.writers()
		for _, id := range slices.SortedFunc(maps.Keys(lost), compareNodes) {
			report(true, "%s", lostText(cmp.Or(names[[8]byte(id[:8])], id.String()), lost[id]))
		}
	}
	report(len(s.audit.lasting) > 0, "%s", s.audit.text())
	report(s.left, "this node has left the pool; restart the agent to join again")
	report(s.keysErr != "", "the changed keyring is invalid, so the previous keys stay in use: %s", s.keysErr)
	if p := s.seedsErr.Load(); p != nil {
		report(*p != "", "%s", *p)
	}
	report(s.ownErr != nil, "the resources of this node cannot be published: %v", s.ownErr)
	for _, x := range []struct {
		list map[resource.Key]string
		what string
	}{{s.o.Store.Waiting(), "pool resources not in force on this node"}, {s.clashes, "names claimed by several nodes"}} {
		if len(x.list) > 0 {
			first := slices.SortedFunc(maps.Keys(x.list), resource.Key.Compare)[0]
			report(true, "%s: %d, the first is %s: %s", x.what, len(x.list), first, x.list[first])
		}
	}
	if n := len(s.trust.refused); n > 0 {
		report(true, "untrusted authorities of other nodes: %d, the first is %s",
			n, slices.Min(slices.Collect(maps.Values(s.trust.refused))))
	}
	if n := alive + len(dead); n > manyCAs {
		for _, r := range s.o.Store.Snapshot().Set().Kind("Mesh") {
			m, ok := r.Spec.(*resource.Mesh)
			if !ok {
				continue
			}
			b := m.MTLSEnabled()
			report(b != nil && b.Type == resource.BackendBuiltin, "mesh %s has a builtin CA, so every proxy gets the CA "+
				"certificates of all %d nodes; use a provided CA above %d nodes", r.Name, n, manyCAs)
		}
	}
	if out.Degraded = len(problems) > 0; out.Degraded {
		out.Reason += "; " + strings.Join(problems, "; ")
	}
	return out
}

// Dropped returns the number of dropped messages by reason.
func (s *Source) Dropped() map[string]uint64 {
	st := s.node.Stats()
	return map[string]uint64{"busy": st.Dropped, "unsent": st.Unsent, "refused": st.Refused}
}
