package passthrough

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// protocol is the protocol of a match. Chains are listed in this order.
type protocol uint8

const (
	tls protocol = iota
	tcp
	mysql
	http
	http2
	grpc
)

// protocolNames are the names in documents.
var protocolNames = [...]string{tls: "tls", tcp: "tcp", mysql: "mysql", http: "http", http2: "http2", grpc: "grpc"}

func (p protocol) String() string { return protocolNames[p] }

func protocolOf(s string) (protocol, bool) {
	i := slices.Index(protocolNames[:], s)
	return protocol(max(i, 0)), i >= 0
}

// class is how Envoy recognizes a protocol.
type class uint8

const (
	secure   class = iota // it begins with a TLS ClientHello
	plain                 // any bytes that are not TLS
	requests              // HTTP/1.1, or HTTP/2 without TLS
)

func (p protocol) class() class {
	switch p {
	case tls:
		return secure
	case tcp, mysql:
		return plain
	}
	return requests
}

// inspected reports whether the proxy must inspect client data.
func (p protocol) inspected() bool { return p != mysql }

// source identifies the match behind a rule.
type source struct {
	policy resource.Key
	index  int  // in spec.default.appendMatch
	pin    bool // the policy pins
}

// rule is a permitted destination, in normalized form.
type rule struct {
	target
	protocol protocol
	port     uint32 // 0 for all ports
	sources  []source
	pin      bool // pinned by at least one policy
	// resolved is the domain that the proxy must resolve to its real addresses because the agent's
	// resolver answers it with a virtual address; "" otherwise.
	resolved string
	// name is the cluster name, and stat its name in statistics. Copies of the rule's chain on
	// other ports use the same cluster, so that it counts all traffic of the rule.
	name, stat string
	closes     bool // closes connections; see closing
}

// identity is equal for rules that permit the same connections of one address family.
type identity struct {
	class  class
	port   uint32
	domain string       // as in target
	prefix netip.Prefix // zero for any address
}

func (r *rule) identity() identity {
	out := identity{class: r.protocol.class(), port: r.port, domain: r.domain}
	if !r.named() && !r.anywhere() {
		out.prefix = r.prefix
	}
	return out
}

// label describes the match for users.
func (r *rule) label() string {
	on := "all ports"
	if r.port != 0 {
		on = "port " + strconv.FormatUint(uint64(r.port), 10)
	}
	return fmt.Sprintf("%s %s, %s", r.protocol, toolkit.Clip(r.text), on)
}

// location returns the first source of a rule with its label.
func (r *rule) location() string {
	return fmt.Sprintf("%s appendMatch[%d] (%s)", r.sources[0].policy, r.sources[0].index, r.label())
}

// ruleOf converts a match. It returns false if the match is invalid.
func ruleOf(m *Match, from source) (*rule, bool) {
	p, ok := protocolOf(m.protocol())
	t, err := parseTarget(m.Type, m.Value)
	port := toolkit.Or(m.Port, 0)
	if !ok || err != nil || port > maxPort || m.Port != nil && port == 0 || t.named() && p.class() == plain {
		return nil, false
	}
	name := resourceName(p, t.text, port)
	return &rule{target: t, protocol: p, port: port, sources: []source{from}, name: name,
		stat: toolkit.StatName(name)}, true
}

const maxPort = 65535

// maxRules limits the rules of one address family.
const maxRules = 20_000

// ruleSet holds the effective rules of one address family.
type ruleSet struct {
	v6    bool
	rules []*rule
	// silent holds the ports without inspection, with the rule that disables it.
	silent map[uint32]*rule
	// first holds the first rule of each port that depends on the client's bytes.
	first map[uint32]*rule
	// virtual are the ranges of virtual addresses, sorted.
	virtual []netip.Prefix
	// unassigned closes all virtual addresses without a rule, even if no rule leads there.
	unassigned bool
	through    bool // traffic leaves the mesh through zone egresses
}

// inspects returns the rule for which the proxy inspects the first bytes of clients on a port, or
// nil. Port 0 means the ports without rules.
func (s *ruleSet) inspects(port uint32) *rule {
	if s.silent[port] != nil {
		return nil
	}
	return cmp.Or(s.first[port], s.first[0])
}

// strongest returns the strongest rule of requests by identity. list holds all rules in merge
// order. Requests to one Host, or to one range of addresses, on a port lead to one cluster, so they
// have one protocol.
func strongest(v6 bool, list []*rule) map[identity]*rule {
	out := map[identity]*rule{}
	for _, r := range list {
		if r.in(v6) && r.protocol.class() == requests {
			out[r.identity()] = r
		}
	}
	return out
}

// newRuleSet returns the effective rules of one address family. list holds all rules in merge
// order. It notes dropped rules.
func newRuleSet(v6 bool, list []*rule, n *notes) *ruleSet {
	out := &ruleSet{v6: v6, silent: map[uint32]*rule{}, first: map[uint32]*rule{}}
	known := make(map[identity]*rule, len(list))
	winners := strongest(v6, list)
	for _, r := range list {
		if !r.in(v6) {
			continue
		}
		id := r.identity()
		if w := winners[id]; w != nil && w.protocol != r.protocol {
			n.conflict(w, r)
			continue
		}
		if id.port = 0; r.port != 0 {
			if w := winners[id]; w != nil && w.protocol != r.protocol {
				n.ofPort(r, w)
			}
		}
		copied := *r // sources are collected by family
		if first := known[copied.identity()]; first != nil {
			first.sources = append(first.sources[:len(first.sources):len(first.sources)], copied.sources...)
			first.pin = first.pin || copied.pin
			if copied.protocol == mysql {
				first.protocol = mysql // includes everything that tcp permits
			}
			continue
		}
		if len(out.rules) == maxRules {
			n.add(r, "dropped: a proxy supports %d matches; use networks and wildcards instead", maxRules)
			continue
		}
		known[copied.identity()] = &copied
		out.rules = append(out.rules, &copied)
	}
	for _, r := range out.rules {
		if !r.protocol.inspected() && out.silent[r.port] == nil {
			out.silent[r.port] = r
		}
	}
	out.rules = slices.DeleteFunc(out.rules, func(r *rule) bool {
		by := out.silent[r.port]
		shadowed := by != nil && r.protocol.class() != plain
		if shadowed {
			n.shadowed(by, r, out.v6)
		}
		return shadowed
	})
	for _, r := range out.rules {
		if r.protocol.class() != plain && out.first[r.port] == nil {
			out.first[r.port] = r
		}
	}
	return out
}
