package passthrough

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// notes collects messages for owners of policies and groups them, so that a policy with thousands
// of matches gets few lines.
type notes struct {
	index map[noteKey]int
	list  []note
}

type noteKey struct {
	policy resource.Key
	text   string // follows the matches
}

type note struct {
	noteKey
	matches []string // at most maxNoted
	more    int      // number of further matches
	indexes map[int]bool
}

// maxNoted limits the matches that one note names.
const maxNoted = 5

// add adds a note about one match.
func (n *notes) add(r *rule, format string, args ...any) {
	for _, s := range r.sources {
		k := noteKey{s.policy, fmt.Sprintf(format, args...)}
		i, ok := n.index[k]
		if !ok {
			if n.index == nil {
				n.index = map[noteKey]int{}
			}
			i = len(n.list)
			n.index[k] = i
			n.list = append(n.list, note{noteKey: k, indexes: map[int]bool{}})
		}
		at := &n.list[i]
		switch {
		case at.indexes[s.index]: // noted for the other address family
		case len(at.matches) == maxNoted:
			at.more++
		default:
			at.matches = append(at.matches, fmt.Sprintf("appendMatch[%d] (%s)", s.index, r.label()))
		}
		at.indexes[s.index] = true
	}
}

// say adds a note about a whole policy.
func (n *notes) say(k resource.Key, format string, args ...any) {
	n.list = append(n.list, note{noteKey: noteKey{k, fmt.Sprintf(format, args...)}})
}

// flush reports the notes in order.
func (n *notes) flush(warn func(k resource.Key, format string, args ...any)) {
	for i := range n.list {
		at := &n.list[i]
		if len(at.matches) == 0 {
			warn(at.policy, "%s", at.text)
			continue
		}
		warn(at.policy, "%s: %s", some(at.matches, at.more), at.text)
	}
}

// some formats a list of which more elements are omitted.
func some(list []string, more int) string {
	out := strings.Join(list, ", ")
	if more > 0 {
		out = fmt.Sprintf("%s and %d more", out, more)
	}
	return out
}

// conflict reports two rules with different protocols for the same requests.
func (n *notes) conflict(stronger, weaker *rule) {
	const why = "requests to the same destination have one protocol, and the policy that takes precedence decides it"
	n.add(weaker, "dropped because of %s: "+why+"; use one protocol, or different ports", stronger.location())
	n.add(stronger, "overrides %s: "+why, weaker.location())
}

// ofPort reports a rule for one port that takes precedence there over a rule for all ports with
// another protocol.
func (n *notes) ofPort(r, general *rule) {
	n.add(general, "overridden on port %d by %s: a match with a port takes precedence there; use one protocol, or "+
		"a port for each match", r.port, r.location())
}

// shadowed reports a rule that has no effect because another one disables inspection on its port.
func (n *notes) shadowed(by, r *rule, v6 bool) {
	n.add(r, "shadowed for %s by %s: its port is not inspected, so TLS and requests are not recognized there; "+
		"use another port, or tcp", family(v6), by.location())
	n.add(by, "shadows %s for %s: port %d is not inspected", r.location(), family(v6), by.port)
}

// noteSilence reports rules for all ports that have no effect on ports without inspection.
func (s *ruleSet) noteSilence(n *notes) {
	if len(s.silent) == 0 {
		return
	}
	ports := slices.Sorted(maps.Keys(s.silent))
	var named []string
	for _, p := range ports[:min(len(ports), maxNoted)] {
		named = append(named, fmt.Sprintf("port %d (%s)", p, s.silent[p].location()))
	}
	on := some(named, len(ports)-len(named))
	for _, r := range s.rules {
		if r.port == 0 && r.protocol.class() != plain {
			n.add(r, "shadowed for %s on %s: the port is not inspected, so TLS and requests are not recognized",
				family(s.v6), on)
		}
	}
}

// mixed reports ports on which the proxy waits for the first bytes of clients although a server may
// send first. apart is true if connections to virtual addresses have a separate port of the proxy.
func (n *notes) mixed(list []mixedPort, apart bool) {
	list = slices.DeleteFunc(slices.Clone(list), func(m mixedPort) bool { return apart && m.virtual })
	for i, m := range list {
		if i == maxNoted {
			n.add(m.first, "%d more ports have both kinds of matches, which delays servers that send first",
				len(list)-maxNoted)
			return
		}
		on := "all ports"
		if m.port != 0 {
			on = fmt.Sprintf("port %d", m.port)
		}
		const why = "the proxy waits there for the first bytes of the client, so those of a server that sends first arrive " +
			"after 15 s; use different ports"
		switch {
		case m.plain != nil:
			n.add(m.first, "shares %s with %s: "+why, on, m.plain.location())
			n.add(m.plain, "shares %s with %s: "+why, on, m.first.location())
		case m.virtual:
			n.add(m.first, "shares %s with the TCP service %s: "+why+", or the label %s of the dataplane",
				on, toolkit.Clip(m.service), mesh.LabelVirtualPort)
		default:
			n.add(m.first, "shares %s with the TCP service %s: "+why, on, toolkit.Clip(m.service))
		}
	}
}

// covered reports hosts whose requests pass as plain connections.
func (n *notes) covered(by *rule, hosts []*rule) {
	for _, r := range hosts {
		n.add(r, "no effect because of %s, which permits all connections without TLS to any address: the requests pass as "+
			"plain connections and are counted there", by.location())
	}
}

// cut reports that some rules are not repeated for narrower ports and ranges.
func (n *notes) cut(s *ruleSet) {
	noted := map[resource.Key]bool{}
	for _, r := range s.rules {
		for _, from := range r.sources {
			if !noted[from.policy] {
				noted[from.policy] = true
				n.say(from.policy, "some matches have no effect for %s on ports or address ranges of other matches, "+
					"and connections are closed there, because more than %d filter chains and ranges would be required; "+
					"use fewer matches for all ports, or fewer addresses", family(s.v6), maxClosure)
			}
		}
	}
}

// permitted reports unexpected effects of an effective rule.
func (n *notes) permitted(r *rule) {
	switch {
	case r.never():
		n.add(r, "never matches: a wildcard must be the first label, and any other * is literal; "+
			"use the form *.example.com")
	case r.anywhere() && r.named():
		n.add(r, "permits every destination of protocol %s", r.protocol)
	case r.forwarded():
		for _, s := range r.sources {
			if !s.pin {
				n.say(s.policy, "appendMatch[%d] (%s) is pinned although this policy does not request it, because another policy "+
					"with the same match does", s.index, r.label())
			}
		}
	case r.named() && !r.pinned():
		if r.kind == wildcardTarget {
			n.add(r, "not pinned: a client that sends a matching name reaches any address that it dials; "+
				"set the label %s: \"true\" to make the proxy resolve the name", labelPinned)
		} else {
			n.add(r, "not pinned: a client that sends this name reaches any address that it dials; "+
				"give a port to make the proxy resolve the domain")
		}
	}
}

func family(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}
