package passthrough

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Conf says what may leave through a proxy.
type Conf struct {
	PassthroughMode *string `json:"passthroughMode,omitempty" merge:"also=Enabled"` // All, Matched or None
	// Enabled is the older form: true is All, false leaves it to the Mesh. Within a policy
	// passthroughMode takes precedence over it; of several policies the strongest that gives one of
	// both decides.
	Enabled     *bool   `json:"enabled,omitempty" merge:"also=PassthroughMode"`
	AppendMatch []Match `json:"appendMatch,omitempty" merge:"append"`
}

// Match permits connections.
type Match struct {
	Type     string  `json:"type,omitempty"`              // Domain, IP or CIDR
	Value    string  `json:"value,omitempty"`             // of the type; a domain may be "*" or begin with "*."
	Port     *uint32 `json:"port,omitempty" check:"port"` // nil: all ports
	Protocol string  `json:"protocol,omitempty"`
}

// The modes.
const (
	ModeAll     = "All"     // everything may leave
	ModeMatched = "Matched" // what a match permits
	ModeNone    = "None"    // nothing
)

// The types of a match.
const (
	typeDomain = "Domain"
	typeIP     = "IP"
	typeCIDR   = "CIDR"
)

// confOf is what one policy says; nil for nothing.
func confOf(p *resource.Resource) *Conf {
	spec, ok := p.Spec.(*resource.Policy)
	if !ok {
		return nil
	}
	c, _ := spec.Default.(*Conf)
	return c
}

// modeOf returns the mode that a merged conf gives a proxy. "" means that the Mesh decides: it says
// explicitly that everything may leave, and the conf gives no mode, which would take precedence
// over it.
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

// The kinds that a policy may be about.
const (
	kindMesh      = "Mesh"
	kindSubset    = "MeshSubset"
	kindDataplane = "Dataplane"
)

// maxMatches bounds the matches of one policy.
const maxMatches = 10_000

// Validate checks every match by itself, then the matches against each other. What it accepts does
// not depend on their order.
func (c *Conf) Validate(v *resource.Validator) {
	if c.PassthroughMode != nil && v.Field("passthroughMode").OneOf(*c.PassthroughMode, ModeAll, ModeMatched, ModeNone) &&
		c.Enabled != nil {
		if all := *c.PassthroughMode == ModeAll; *c.Enabled != all {
			v.Field("enabled").Faultf("%t contradicts passthroughMode %s: remove one of them", *c.Enabled, *c.PassthroughMode)
		}
	}
	at := v.Field("appendMatch")
	if len(c.AppendMatch) > maxMatches {
		at.Faultf("%d matches are given, at most %d are allowed: write networks and wildcards, or several policies",
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
	known := v.Field("protocol").OneOf(m.Protocol, protocolNames[:]...)
	p, _ := protocolOf(m.Protocol)
	if known && p == mysql && m.Port == nil {
		v.Field("protocol").Faultf("mysql needs a port: the proxy must not wait for the client to speak first there, " +
			"and inspects all other ports")
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
			v.Field("value").Faultf("tcp does not go with %s: such connections name no domain, so each domain has a virtual "+
				"address of its own; give domains in whole, or tls, http, http2 or grpc", show(m.Value))
		case m.Port == nil:
			v.Field("port").Faultf("the port is missing, at which connections to the virtual address of the domain are taken")
		}
		return
	}
	if p.class() == plain {
		v.Field("protocol").Faultf("%s does not go with a domain, which such connections do not name: give tls, http, "+
			"http2 or grpc, or the type %s or %s; a MeshExternalService gives the domain a virtual address, "+
			"and a name that leads there", m.Protocol, typeIP, typeCIDR)
	}
	if p.class() == requests && m.Port == nil && strings.HasPrefix(m.Value, "*") &&
		(err != nil || t.kind != domainTarget) {
		v.Field("port").Faultf("the port is missing: Envoy finds a wildcard in the Host of requests with a known port alone")
	}
}

// unique refuses what is written twice.
func unique(at *resource.Validator, matches []Match) {
	type text struct {
		typ, value, protocol string
		port                 uint32
	}
	seen := make(map[text]int, len(matches))
	for i := range matches {
		m := &matches[i]
		key := text{m.Type, m.Value, m.Protocol, toolkit.Or(m.Port, 0)}
		if first, ok := seen[key]; ok {
			at.Index(i).Field("value").Faultf("appendMatch[%d] is the same: remove one of them", first)
			continue
		}
		seen[key] = i
	}
}

// oneProtocol refuses two protocols of requests that nothing tells apart. A port that is given has
// one of them, whatever the addresses are; all ports have one for the same addresses.
func oneProtocol(at *resource.Validator, rules []*rule) {
	const why = "nothing tells http, http2 and grpc apart before a request is read: give both one protocol, or other ports"
	var taken [2]claims // of the address families
	ports := map[uint32]*rule{}
	for i, r := range rules {
		if r == nil || r.protocol.class() != requests {
			continue
		}
		var with *rule
		if first := ports[r.port]; r.port != 0 && first == nil {
			ports[r.port] = r
		} else if first != nil && first.protocol != r.protocol {
			with = first
		}
		for family := range taken {
			if !r.in(family == 1) {
				continue
			}
			whole, others := taken[family].take(r)
			if with == nil {
				with = whole
			}
			if with == nil && len(others) > 0 {
				with = others[0]
			}
		}
		if with != nil {
			at.Index(i).Field("port").Faultf("%s contradicts appendMatch[%d] (%s): %s", r.label(), with.sources[0].index,
				with.label(), why)
		}
	}
}

// inspectable refuses what can never match, since another match switches inspection off on its
// port.
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
				at.Index(i).Field("protocol").Faultf("%s is shadowed by appendMatch[%d] (%s): on the port of mysql nothing is "+
					"inspected, so no TLS and no requests are seen there; give another port, or tcp",
					r.label(), by.sources[0].index, by.label())
				break
			}
		}
	}
}

// checkPolicy refuses to switch inspection off on a port for all proxies of a mesh: it is off for
// every address that they dial on that port, which the owner of another match there would not look
// for.
func checkPolicy(p *resource.Policy, v *resource.Validator) {
	c, ok := p.Default.(*Conf)
	if !ok || !wide(p.TargetRef) {
		return
	}
	for i := range c.AppendMatch {
		if c.AppendMatch[i].Protocol == mysql.String() {
			v.Field("default").Field("appendMatch").Index(i).Field("protocol").Faultf(
				"mysql switches inspection off for all that a proxy sends to the port, so it is not for a whole mesh: " +
					"put the match into a policy whose targetRef names the proxies that need it (MeshSubset with tags, " +
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
