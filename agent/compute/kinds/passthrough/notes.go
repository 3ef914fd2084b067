package passthrough

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// notes collects what owners of policies should know, so that a policy with thousands of matches
// gets a few lines.
type notes struct {
	index map[noteKey]int
	list  []note
}

type noteKey struct {
	policy resource.Key
	text   string // behind the matches
}

type note struct {
	noteKey
	matches []string // the first few
	more    int      // that many others
	indexes map[int]bool
}

// maxNoted bounds the matches that one note names.
const maxNoted = 5

// add notes something about one match.
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
		case at.indexes[s.index]: // said of the other address family
		case len(at.matches) == maxNoted:
			at.more++
		default:
			at.matches = append(at.matches, fmt.Sprintf("appendMatch[%d] (%s)", s.index, r.label()))
		}
		at.indexes[s.index] = true
	}
}

// say notes something about a policy as a whole.
func (n *notes) say(k resource.Key, format string, args ...any) {
	n.list = append(n.list, note{noteKey: noteKey{k, fmt.Sprintf(format, args...)}})
}

// flush hands over the notes in the order in which they came up.
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

// some is a list of which more are not named.
func some(list []string, more int) string {
	out := strings.Join(list, ", ")
	if more > 0 {
		out = fmt.Sprintf("%s and %d more", out, more)
	}
	return out
}

// conflict: the rule that came first keeps what both are about.
func (n *notes) conflict(first, second *rule) {
	on := "that port"
	if first.port == 0 && second.port == 0 {
		on = "all ports"
	} else if port := max(first.port, second.port); port != 0 {
		on = fmt.Sprintf("port %d", port)
	}
	const why = "on %s requests to these addresses have one of http, http2 and grpc, " +
		"and the policy that is merged first decides which"
	n.add(second, "left out beside %s: "+why+"; give both one protocol, or other ports", first.place(), on)
	n.add(first, "stays, and %s is left out: "+why, second.place(), on)
}

// shadowed: on the port of a protocol in which the server speaks first nothing is seen of what the
// client says.
func (n *notes) shadowed(by, r *rule, v6 bool) {
	n.add(r, "shadowed for %s by %s, on whose port nothing is inspected, so no TLS and no requests are seen there; "+
		"give another port, or tcp", family(v6), by.place())
	n.add(by, "shadows %s for %s: on port %d nothing is inspected", r.place(), family(v6), by.port)
}

// noteSilence notes that rules about all ports do not act on those where nothing is inspected.
func (s *ruleSet) noteSilence(n *notes) {
	if len(s.silent) == 0 {
		return
	}
	ports := slices.Sorted(maps.Keys(s.silent))
	var named []string
	for _, p := range ports[:min(len(ports), maxNoted)] {
		named = append(named, fmt.Sprintf("port %d (%s)", p, s.silent[p].place()))
	}
	on := some(named, len(ports)-len(named))
	for _, r := range s.rules {
		if r.port == 0 && r.protocol.class() != plain {
			n.add(r, "shadowed for %s on %s: nothing is inspected there, so no TLS and no requests are seen", family(s.v6), on)
		}
	}
}

// covered: the requests pass as bytes.
func (n *notes) covered(by *rule, hosts []*rule) {
	for _, r := range hosts {
		n.add(r, "without effect beside %s, which takes all that is not TLS to any address: the requests pass as plain "+
			"connections and count as its own", by.place())
	}
}

// cut: some rules do not act beside narrower ones.
func (n *notes) cut(s *ruleSet) {
	told := map[resource.Key]bool{}
	for _, r := range s.rules {
		for _, from := range r.sources {
			if !told[from.policy] {
				told[from.policy] = true
				n.say(from.policy, "some matches do not act for %s on ports, or in ranges of addresses, that other matches name, "+
					"and connections are closed there: that would take more than %d filter chains and ranges; "+
					"write fewer matches about all ports, or fewer addresses", family(s.v6), maxClosure)
			}
		}
	}
}

// permitted notes what a rule in force permits beyond what it looks like.
func (n *notes) permitted(r *rule) {
	switch {
	case r.never():
		n.add(r, "never matches: a wildcard stands for whole names in front, and a further * is taken as it stands; "+
			"write *.example.com")
	case r.anywhere() && r.named():
		n.add(r, "permits every destination that speaks %s", r.protocol)
	case r.forwarded():
		for _, s := range r.sources {
			if !s.pin {
				n.say(s.policy, "appendMatch[%d] (%s) is pinned, though this policy does not ask for it: another one that has "+
					"the same match does", s.index, r.label())
			}
		}
	case r.named() && !r.pinned():
		if r.kind == wildcardTarget {
			n.add(r, "not pinned: whoever names such a domain reaches the address that was dialled, "+
				"whatever the name resolves to; with the label %s: \"true\" the proxy resolves the name itself", labelPinned)
		} else {
			n.add(r, "not pinned: whoever names this domain reaches the address that was dialled; give a port, "+
				"and the proxy resolves the domain itself")
		}
	}
}

func family(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}
