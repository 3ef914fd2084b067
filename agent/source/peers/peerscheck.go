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
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// maxSkew is the clock difference above which a check reports it.
const maxSkew = 2 * time.Second

// manyCAs is the number of nodes above which a check recommends a provided CA: each proxy receives
// about 700 bytes for each node.
const manyCAs = 100

// peersCheck reports the members of the pool and faults of this node.
func (s *Source) peersCheck() api.Check {
	out := api.Check{Name: "peers", OK: true}
	members := s.node.Members()
	alive := 1 + len(withState(members, gossip.StateAlive))
	dead := withState(members, gossip.StateDead)
	out.Reason = plural.Form(alive, "no other member is alive", "%d members are alive")
	st := s.node.Stats()
	out.Reason += keysText(members)
	problems := nodeProblems(&st, members)
	report := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	report(alive == 1 && len(s.o.Join) > 0,
		"no address of gossip.join responds: check the network, the cluster name, and the keys")
	report(s.node.Hold(),
		"many nodes were lost at once, probably because of a network partition: their resources are not removed")
	s.mu.Lock()
	defer s.mu.Unlock()
	names, self := s.writers(), s.node.Self()
	var full []string
	for _, u := range st.FullWriters {
		if [8]byte(u.Writer) != [8]byte(self[:8]) {
			full = append(full, cmp.Or(names[u.Writer], unnamed(u.Writer)))
		}
	}
	report(len(full) > 0, "nodes that have reached the limit of records that they may write: %s", named(full))
	if lost := s.agentLost(); len(lost) > 0 {
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

// keysText returns the key of this node, and which live members have none, for the end of a text.
func keysText(members []gossip.Member) (text string) {
	var none []string
	for _, m := range members {
		switch {
		case m.Self && m.Signed:
			text = "; the key of this node is " + m.Node.String()
		case !m.Self && m.State == gossip.StateAlive && !m.Signed:
			none = append(none, cmp.Or(m.Name, m.Node.String()))
		}
	}
	if len(none) > 0 {
		text += "; members of earlier releases, which sign nothing: " + named(none)
	}
	return text
}

// refusedText lists refused members.
func refusedText(members []gossip.Member) string {
	var list []string
	for _, m := range members {
		if m.State == gossip.StateRefused {
			list = append(list, fmt.Sprintf("%s at %s: %s", cmp.Or(m.Name, m.Node.String()), m.Addr, m.Reason))
		}
	}
	return strings.Join(list[:min(len(list), maxNamed)], "; ")
}

// withState returns the names of the other members with a state.
func withState(members []gossip.Member, state string) (out []string) {
	for _, m := range members {
		if !m.Self && m.State == state {
			out = append(out, cmp.Or(m.Name, m.Node.String()))
		}
	}
	return out
}

// nodeProblems returns the problems that a node of the pool reports.
func nodeProblems(st *gossip.Stats, members []gossip.Member) (out []string) {
	report := func(bad bool, format string, args ...any) {
		if bad {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	dead := withState(members, gossip.StateDead)
	report(len(dead) > 0, "%s: %s; run nearside members to list them",
		plural.Form(len(dead), "1 member is dead", "%d members are dead"), named(dead))
	var apart, lost []string
	for _, m := range members {
		if m.Incompatible {
			apart = append(apart, m.Name)
		}
		if m.PacketsLost {
			lost = append(lost, m.Name)
		}
	}
	if refused := withState(members, gossip.StateRefused); len(refused) > 0 {
		report(true, "%s: %s", plural.Form(len(refused), "1 member is refused", "%d members are refused"),
			refusedText(members))
	}
	report(st.NameHolder != sign.ID{},
		"the name of this node belongs to key %s, so other nodes refuse this one: set another "+
			"node.name, or run nearside forget on another node if the node with that key is permanently gone", st.NameHolder)
	const allow = "allow UDP to the port of gossip.bind in both directions, or set gossip.tcpOnly on all nodes"
	switch {
	case st.PacketsLost:
		report(true, "UDP is blocked: no member responds to packets, so all messages use TCP; "+allow)
	case len(lost) > 0:
		report(true, "UDP is blocked to members, which get messages over TCP: %s; "+allow, named(lost))
	}
	report(len(apart) > 0, "no protocol version in common with members, which exchange nothing with this node: %s; "+
		"upgrade the older ones", named(apart))
	report(st.RosterFull > 0, "nodes that were ignored because this node knows too many: %d; remove dead ones with "+
		"nearside forget", st.RosterFull)
	report(st.SaveError != "", "the state of the pool cannot be saved: %s", st.SaveError)
	report(st.Cloned != "", "%s", st.Cloned)
	report(st.Skew > maxSkew || st.Skew < -maxSkew, "the clock differs from those of the other nodes by %s",
		st.Skew.Round(time.Millisecond))
	report(st.ClockDiffers != 0, "the clock of a node differs by %s from this one, and no majority shows which is right: "+
		"synchronize the clocks", st.ClockDiffers.Round(time.Millisecond))
	l := &st.Limits
	report(nearLimit(st.Own.Records, l.WriterRecords) || nearLimit(st.Own.Bytes, l.WriterBytes),
		"this node is near its limit as the last writer of resources: %d of %d records, %d of %d bytes; delete unneeded "+
			"resources, or apply some of them on another node", st.Own.Records, l.WriterRecords, st.Own.Bytes, l.WriterBytes)
	report(st.Conflicts > 0, "changes that lost to concurrent changes: %d", st.Conflicts)
	report(st.Limbo > 0, "records that may have been deleted long ago and are not in force: %d", st.Limbo)
	return out
}

// nearLimit reports whether a value has reached 90 % of a limit.
func nearLimit(value, limit int) bool { return limit > 0 && value >= limit-limit/10 }
