package passthrough

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// protocol is what a match says that is spoken. The order is that in which chains are listed.
type protocol uint8

const (
	tls protocol = iota
	tcp
	mysql
	http
	http2
	grpc
)

// protocolNames are the names of the protocols in documents.
var protocolNames = [...]string{tls: "tls", tcp: "tcp", mysql: "mysql", http: "http", http2: "http2", grpc: "grpc"}

func (p protocol) String() string { return protocolNames[p] }

func protocolOf(s string) (protocol, bool) {
	i := slices.Index(protocolNames[:], s)
	return protocol(max(i, 0)), i >= 0
}

// class says by what a connection is told to be of a protocol.
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

// inspected reports whether the proxy has to look at what the client says.
func (p protocol) inspected() bool { return p != mysql }

// source is where a rule is written.
type source struct {
	policy resource.Key
	index  int  // in spec.default.appendMatch
	pin    bool // the policy pins
}

// rule is what is permitted, whoever asks for it and however it is written.
type rule struct {
	target
	protocol protocol
	port     uint32 // 0: all ports
	sources  []source
	pin      bool // some policy that asks for it pins
	// past is the domain that the proxy resolves past the names that the resolver of the agent gives
	// virtual addresses; "" for one that it resolves as everybody does.
	past string
	// name is that of the cluster, and stat what statistics have for it. Copies of the rule's chain on
	// other ports lead there too, so that it counts all that the rule permits.
	name, stat string
}

// identity is what two rules have in common that admit the same connections of one address family.
type identity struct {
	class  class
	port   uint32
	domain string       // as in target
	prefix netip.Prefix // zero where any address is meant
}

func (r *rule) identity() identity {
	out := identity{class: r.protocol.class(), port: r.port, domain: r.domain}
	if !r.named() && !r.anywhere() {
		out.prefix = r.prefix
	}
	return out
}

// label is how users call the match that a rule was made of.
func (r *rule) label() string {
	on := "all ports"
	if r.port != 0 {
		on = "port " + strconv.FormatUint(uint64(r.port), 10)
	}
	return fmt.Sprintf("%s %s, %s", r.protocol, toolkit.Clip(r.text), on)
}

// place is where a rule is written first, with what it says.
func (r *rule) place() string {
	return fmt.Sprintf("%s appendMatch[%d] (%s)", r.sources[0].policy, r.sources[0].index, r.label())
}

// ruleOf reads a match, which validation has accepted; false for one that it would not.
func ruleOf(m *Match, from source) (*rule, bool) {
	p, ok := protocolOf(m.Protocol)
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

// claims are the protocols of requests that rules have taken. Envoy tells HTTP/1.1, HTTP/2 and gRPC
// apart by nothing that a filter chain is chosen by, so on one port the requests to the same
// addresses are of one protocol.
type claims struct {
	scopes map[netip.Prefix]map[uint32]*rule // by the addresses, zero for any, and the port: who came first
}

// take claims what a rule about requests needs. With whole set the rule cannot act, since another
// has all that it is about. Otherwise others are the rules that have some of its ports.
func (c *claims) take(r *rule) (whole *rule, others []*rule) {
	if r.protocol.class() != requests {
		return nil, nil
	}
	scope := r.identity().prefix
	ports := c.scopes[scope]
	switch first := ports[r.port]; {
	case first != nil && first.protocol != r.protocol:
		return first, nil
	case first != nil:
		return nil, nil
	}
	if all := ports[0]; all != nil && all.protocol != r.protocol {
		return all, nil
	}
	if r.port == 0 {
		for _, o := range ports {
			if o.protocol != r.protocol {
				others = append(others, o)
			}
		}
		slices.SortFunc(others, func(a, b *rule) int { return int(a.port) - int(b.port) })
	}
	if ports == nil {
		ports = map[uint32]*rule{}
		if c.scopes == nil {
			c.scopes = map[netip.Prefix]map[uint32]*rule{}
		}
		c.scopes[scope] = ports
	}
	ports[r.port] = r
	return nil, others
}

// maxRules bounds the rules of one address family.
const maxRules = 20_000

// ruleSet is what is in force for one address family.
type ruleSet struct {
	v6    bool
	rules []*rule
	// silent are the ports on which nothing is inspected, each with the rule that asks for it.
	silent map[uint32]*rule
}

// newRuleSet makes the rules of one address family of what the policies ask for, in the order in
// which they are merged. What is dropped is noted.
func newRuleSet(v6 bool, asked []*rule, n *notes) *ruleSet {
	out := &ruleSet{v6: v6, silent: map[uint32]*rule{}}
	known := make(map[identity]*rule, len(asked))
	var taken claims
	for _, r := range asked {
		if !r.in(v6) {
			continue
		}
		whole, others := taken.take(r)
		if whole != nil {
			n.conflict(whole, r)
			continue
		}
		for _, o := range others {
			n.conflict(o, r)
		}
		own := *r // the sources are those of this family
		if first := known[own.identity()]; first != nil {
			first.sources = append(first.sources[:len(first.sources):len(first.sources)], own.sources...)
			first.pin = first.pin || own.pin
			if own.protocol == mysql {
				first.protocol = mysql // which admits all that tcp does
			}
			continue
		}
		if len(out.rules) == maxRules {
			n.add(r, "left out: one proxy takes %d matches; write networks and wildcards instead", maxRules)
			continue
		}
		known[own.identity()] = &own
		out.rules = append(out.rules, &own)
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
	return out
}
