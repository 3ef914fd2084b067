package peers

import (
	"cmp"
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

// Members returns the nodes of the pool as this one sees them, sorted by name.
func (s *Source) Members() []api.Member {
	list := s.node.Members()
	s.mu.Lock()
	lost := s.agentLost()
	now, since := s.o.Now(), maps.Clone(s.differs)
	s.mu.Unlock()
	own := revision(s.node.Stats().Root)
	out := make([]api.Member, len(list))
	for i, m := range list {
		out[i] = api.Member{Name: m.Name, ID: m.Node.String(), Zone: m.Zone, Version: m.Version, Address: m.Addr.String(),
			State: m.State, Since: m.Since.UTC().Truncate(time.Second), Self: m.Self, InSync: m.Self || m.Agrees,
			Ahead: m.Ahead.Seconds(), AgentLost: lost[m.Node] > 0, Revision: revision(m.Root)}
		if m.Self {
			out[i].Revision = own
		}
		if at := since[m.Node]; !at.IsZero() && !m.Self && !m.Agrees {
			out[i].Lag = max(now.Sub(at), 0).Seconds()
		}
	}
	return out
}

// revision is a root for people; "" where it is not known.
func revision(root engine.Digest) string {
	if root == (engine.Digest{}) {
		return ""
	}
	return fmt.Sprintf("%08x", uint32(root[0]>>32)) // #nosec G115 -- it is shortened on purpose
}

// compare notes since when members have something else than this node.
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

// maxSkew is how far clocks may be apart before it is said.
const maxSkew = 2 * time.Second

// manyCAs is the number of nodes above which a provided CA is advised: each proxy is sent some 700
// bytes for each node.
const manyCAs = 100

// Check says how the pool stands. Missing peers never make the node unready.
func (s *Source) Check() api.Check {
	out := api.Check{Name: "peers", OK: true}
	alive, others := 1, 0
	for _, m := range s.node.Members() {
		switch {
		case m.Self:
		case m.State == gossip.StateAlive:
			alive++
		case m.State != gossip.StateLeft:
			others++
		}
	}
	out.Reason = plural.Form(alive, "no other member is alive", "%d members are alive")
	st := s.node.Stats()
	var problems []string
	say := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	say(alive == 1 && len(s.o.Join) > 0,
		"none of gossip.join answers: look at the network, the cluster's name and the keys")
	say(others > 0, "%s; nearside members lists them",
		plural.Form(others, "1 member is unreachable", "%d members are unreachable"))
	say(st.SaveError != "", "the pool is not saved: %s", st.SaveError)
	say(s.disk.aside != "", "the file of the pool was damaged and is set aside as %s", s.disk.aside)
	say(st.Cloned, "another node runs with the id of this one: give one of the two a paths.state of its own, without %s",
		identityFile)
	say(st.Skew > maxSkew || st.Skew < -maxSkew, "the clock is %s off that of the others", st.Skew.Round(time.Millisecond))
	say(st.Conflicts > 0, "changes that lost against others made at the same time: %d", st.Conflicts)
	say(st.Limbo > 0, "records that may have been deleted long ago, and are not in force: %d", st.Limbo)
	say(s.node.Hold(),
		"so many nodes were lost at once that a cut of the network is suspected: nothing of theirs is removed")
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost := s.agentLost(); len(lost) > 0 {
		names := s.names(s.node.Owned())
		for _, id := range slices.SortedFunc(maps.Keys(lost), compareNodes) {
			say(true, "%s", lostText(cmp.Or(names[[8]byte(id[:8])], id.String()), lost[id]))
		}
	}
	say(s.left, "this node has left the pool; restart the agent to come back")
	say(s.keysErr != "", "the keyring has changed and is not taken, the keys of before stay in use: %s", s.keysErr)
	if p := s.seedsErr.Load(); p != nil {
		say(*p != "", "%s", *p)
	}
	say(s.ownErr != nil, "what this node has is not told to others: %v", s.ownErr)
	for _, x := range []struct {
		list map[resource.Key]string
		what string
	}{{s.waiting, "resources of the pool that are not in force here"}, {s.clashes, "names that several nodes claim"}} {
		if len(x.list) > 0 {
			first := slices.SortedFunc(maps.Keys(x.list), compareKeys)[0]
			say(true, "%s: %d, the first is %s: %s", x.what, len(x.list), first, x.list[first])
		}
	}
	if n := len(s.trust.refused); n > 0 {
		say(true, "authorities of other nodes that are not trusted: %d, the first is %s",
			n, slices.Min(slices.Collect(maps.Values(s.trust.refused))))
	}
	if n := alive + others; n > manyCAs {
		for _, r := range s.o.Store.Snapshot().Set().Kind("Mesh") {
			m, ok := r.Spec.(*resource.Mesh)
			if !ok {
				continue
			}
			b := m.MTLSEnabled()
			say(b != nil && b.Type == resource.BackendBuiltin, "mesh %s has a builtin CA, of which each of %d nodes has its "+
				"own that every proxy is sent; above %d nodes use a provided one", r.Name, n, manyCAs)
		}
	}
	if out.Degraded = len(problems) > 0; out.Degraded {
		out.Reason += "; " + strings.Join(problems, "; ")
	}
	return out
}

// Dropped counts messages that were not taken or not sent, by reason.
func (s *Source) Dropped() map[string]uint64 {
	st := s.node.Stats()
	return map[string]uint64{"busy": st.Dropped, "unsent": st.Unsent, "refused": st.Refused}
}
