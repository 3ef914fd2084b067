package passthrough

import (
	"cmp"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Conf is the conf of a MeshPassthrough.
type Conf struct {
	PassthroughMode *string `json:"passthroughMode,omitempty" merge:"also=Enabled"` // All, Matched or None
	// Enabled is the older form of PassthroughMode: true means All, false leaves the decision to
	// the Mesh. Within a policy PassthroughMode takes precedence. Of several policies, the
	// strongest that sets either field decides.
	Enabled     *bool   `json:"enabled,omitempty" merge:"also=PassthroughMode"`
	AppendMatch []Match `json:"appendMatch,omitempty" merge:"append"`
}

// Match permits connections to a destination.
type Match struct {
	Type     string  `json:"type,omitempty"`              // Domain, IP or CIDR
	Value    string  `json:"value,omitempty"`             // a domain may be "*" or begin with "*."
	Port     *uint32 `json:"port,omitempty" check:"port"` // Default all ports
	Protocol string  `json:"protocol,omitempty"`          // Default tcp
}

// protocol returns the name of the protocol, which the match may omit.
func (m *Match) protocol() string { return cmp.Or(m.Protocol, tcp.String()) }

// Passthrough modes.
const (
	ModeAll     = "All"     // permit all connections
	ModeMatched = "Matched" // permit connections that match
	ModeNone    = "None"    // permit none
)

// Types of a match.
const (
	typeDomain = "Domain"
	typeIP     = "IP"
	typeCIDR   = "CIDR"
)

// confOf returns the conf of a policy, or nil.
func confOf(p *resource.Resource) *Conf {
	spec, ok := p.Spec.(*resource.Policy)
	if !ok {
		return nil
	}
	c, _ := spec.Default.(*Conf)
	return c
}

// modeOf returns the mode of a merged conf. It returns "" if the Mesh explicitly permits all
// connections and the conf sets no mode, which would take precedence.
func modeOf(m *resource.Mesh, c *Conf) string {
	switch {
	case c.PassthroughMode != nil:
		return *c.PassthroughMode
	case c.Enabled != nil && *c.Enabled:
		return ModeAll
	}
	if n := m.Networking; n != nil && n.Outbound != nil && n.Outbound.Passthrough != nil && *n.Outbound.Passthrough {
		return ""
	}
	return ModeMatched
}

// targetRef kinds of the policies.
const (
	kindMesh      = "Mesh"
	kindSubset    = "MeshSubset"
	kindDataplane = "Dataplane"
)

// maxMatches limits the matches of one policy.
const maxMatches = 10_000

// Validate validates each match, and then the matches against each other. The result does not
// depend on their order.
func (c *Conf) Validate(v *resource.Validator) {
	if c.PassthroughMode != nil && v.Field("passthroughMode").OneOf(*c.PassthroughMode, ModeAll, ModeMatched, ModeNone) &&
		c.Enabled != nil {
		if all := *c.PassthroughMode == ModeAll; *c.Enabled != all {
			v.Field("enabled").Faultf("%t contradicts passthroughMode %s: write passthroughMode %s, which lets less out",
				*c.Enabled, *c.PassthroughMode, map[bool]string{true: ModeNone, false: *c.PassthroughMode}[all])
		}
	}
	at := v.Field("appendMatch")
	if len(c.AppendMatch) > maxMatches {
		at.Faultf("%d matches are given, and at most %d are allowed: use networks and wildcards, or several policies",
			len(c.AppendMatch), maxMatches)
		return
	}
	rules := make([]*rule, len(c.AppendMatch))
	for i := range c.AppendMatch {
		c.AppendMatch[i].validate(at.Index(i))
		rules[i], _ = ruleOf(&c.AppendMatch[i], source{index: i})
	}
	unique(at, c.AppendMatch)
	oneProtocol(at, rules)
	inspectable(at, rules)
}

func (m *Match) validate(v *resource.Validator) {
	typed := v.Field("type").OneOf(m.Type, typeDomain, typeIP, typeCIDR)
	known := v.Field("protocol").OneOf(m.protocol(), protocolNames[:]...)
	p, _ := protocolOf(m.protocol())
	if known && p == mysql && m.Port == nil {
		v.Field("protocol").Faultf("mysql requires a port, because the proxy must not wait for the client's first " +
			"bytes there and inspects all other ports")
	}
	if !typed {
		return
	}
	t, err := parseTarget(m.Type, m.Value)
	if err != nil {
		v.Field("value").Faultf("%v", err)
	}
	if !known || m.Type != typeDomain {
		return
	}
	if p == tcp && err == nil {
		switch {
		case t.kind != domainTarget:
			v.Field("value").
				Faultf("tcp cannot be combined with %s, because such connections contain no domain, so each domain "+
					"needs its own virtual address: give complete domains, or tls, http, http2, or grpc", show(m.Value))
		case m.Port == nil:
			v.Field("port").Faultf("the port is missing: give the port of the domain's virtual address")
		}
		return
	}
	if p.class() == plain {
		v.Field("protocol").
			Faultf("%s cannot be combined with a domain, because such connections contain none: use tls, http, "+
				"http2, or grpc, or type %s or %s; a MeshExternalService assigns the domain a virtual address and a hostname",
				m.protocol(), typeIP, typeCIDR)
	}
	if p.class() == requests && m.Port == nil && strings.HasPrefix(m.Value, "*") &&
		(err != nil || t.kind != domainTarget) {
		v.Field("port").Faultf("the port is missing: Envoy matches a wildcard in the Host of requests only with a known port")
	}
}

// unique rejects duplicate matches.
func unique(at *resource.Validator, matches []Match) {
	type text struct {
		typ, value, protocol string
		port                 uint32
	}
	seen := make(map[text]int, len(matches))
	for i := range matches {
		m := &matches[i]
		key := text{m.Type, m.Value, m.protocol(), toolkit.Or(m.Port, 0)}
		if first, ok := seen[key]; ok {
			at.Index(i).Field("value").Faultf("appendMatch[%d] is identical: remove one of them", first)
			continue
		}
		seen[key] = i
	}
}

// oneProtocol rejects different protocols for requests that Envoy cannot distinguish. A specific
// port must have one of http, http2, and grpc for all addresses. Rules for all ports must have one
// for the same addresses.
func oneProtocol(at *resource.Validator, rules []*rule) {
	const why = "Envoy cannot distinguish http, http2, and grpc when it selects a chain: use one protocol, " +
		"or different ports"
	var used [2]claims // by address family
	ports := map[uint32]*rule{}
	for i, r := range rules {
		if r == nil || r.protocol.class() != requests {
			continue
		}
		var conflicting *rule
		if first := ports[r.port]; r.port != 0 && first == nil {
			ports[r.port] = r
		} else if first != nil && first.protocol != r.protocol {
			conflicting = first
		}
		for family := range used {
			if !r.in(family == 1) {
				continue
			}
			whole, others := used[family].take(r)
			if conflicting == nil {
				conflicting = whole
			}
			if conflicting == nil && len(others) > 0 {
				conflicting = others[0]
			}
		}
		if conflicting != nil {
			at.Index(i).Field("port").Faultf("%s contradicts appendMatch[%d] (%s): %s", r.label(), conflicting.sources[0].index,
				conflicting.label(), why)
		}
	}
}

// inspectable rejects matches that have no effect because another match disables inspection on
// their port.
func inspectable(at *resource.Validator, rules []*rule) {
	var silent [2]map[uint32]*rule
	for family := range silent {
		silent[family] = map[uint32]*rule{}
		for _, r := range rules {
			if r != nil && !r.protocol.inspected() && r.in(family == 1) && silent[family][r.port] == nil {
				silent[family][r.port] = r
			}
		}
	}
	for i, r := range rules {
		if r == nil || r.port == 0 || r.protocol.class() == plain {
			continue
		}
		for family := range silent {
			if by := silent[family][r.port]; by != nil && r.in(family == 1) {
				at.Index(i).Field("protocol").Faultf("%s is shadowed by appendMatch[%d] (%s): TLS and requests are not "+
					"recognized on a port of mysql, which disables inspection; use another port, or tcp",
					r.label(), by.sources[0].index, by.label())
				break
			}
		}
	}
}

// checkPolicy rejects, in a policy for all proxies of a mesh, matches that permit more than their
// author may expect: mysql disables inspection for all addresses on the port, and the default
// protocol permits any bytes.
func checkPolicy(p *resource.Policy, v *resource.Validator) {
	c, ok := p.Default.(*Conf)
	if !ok || !wide(p.TargetRef) {
		return
	}
	at := v.Field("default").Field("appendMatch")
	for i := range c.AppendMatch {
		switch c.AppendMatch[i].Protocol {
		case "":
			at.Index(i).Field("protocol").Faultf("the protocol is missing: a match for a whole mesh must name it, because the " +
				"default tcp permits any bytes; give one of tls, http, http2, and grpc if the destination speaks it, else tcp")
		case mysql.String():
			at.Index(i).Field("protocol").Faultf(
				"mysql disables inspection of all traffic of a proxy to the port, so it is not allowed for a whole mesh: " +
					"move the match into a policy whose targetRef selects the proxies that need it (MeshSubset with tags, " +
					"or Dataplane with a name or labels)")
		}
	}
}

// wide reports whether a targetRef selects all proxies of a mesh.
func wide(t *resource.TargetRef) bool {
	switch {
	case t == nil || t.Kind == kindMesh:
		return true
	case t.Kind == kindSubset:
		return len(t.Tags) == 0
	}
	return t.Kind == kindDataplane && t.Name == "" && len(t.Labels) == 0
}
