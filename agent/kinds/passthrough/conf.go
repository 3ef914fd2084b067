package passthrough

import (
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf says what may leave through a proxy.
type Conf struct {
	PassthroughMode *string `json:"passthroughMode,omitempty" merge:"also=Enabled"` // All, Matched or None
	// Enabled is the older form: true is All, false leaves it to the Mesh. Within a policy passthroughMode takes precedence
	// over it; of several policies the strongest that gives one of both decides.
	Enabled     *bool   `json:"enabled,omitempty" merge:"also=PassthroughMode"`
	AppendMatch []Match `json:"appendMatch,omitempty" merge:"append"`
}

// Match permits connections.
type Match struct {
	Type     string  `json:"type,omitempty"`  // Domain, IP or CIDR
	Value    string  `json:"value,omitempty"` // of the type; a domain may be "*" or begin with "*."
	Port     *uint32 `json:"port,omitempty"`  // nil: all ports
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

// modeOf returns the mode that a merged conf gives a proxy. "" means that the Mesh decides: it says explicitly that
// everything may leave, and the conf gives no mode, which would take precedence over it.
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
