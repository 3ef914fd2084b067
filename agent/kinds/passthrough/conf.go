package passthrough

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf says what may leave through a proxy.
type Conf struct {
	PassthroughMode *string `json:"passthroughMode,omitempty"` // All, Matched or None
	// Enabled is the older form: true is All, false is Matched. passthroughMode goes over it.
	Enabled     *bool   `json:"enabled,omitempty"`
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

// port is the port of the match, 0 for all.
func (m *Match) port() uint32 {
	if m.Port == nil {
		return 0
	}
	return *m.Port
}

// confOf is what one policy says; nil for nothing.
func confOf(o *policy.Origin) *Conf {
	p, ok := o.Policy.Spec.(*resource.Policy)
	if !ok {
		return nil
	}
	c, _ := p.Default.(*Conf)
	return c
}

// modeOf returns the mode that is in force for a proxy. "" means that the Mesh decides: it says explicitly that
// everything may leave, and no policy gives a mode, which would go over it.
func modeOf(m *resource.Mesh, origins []policy.Origin) string {
	for _, o := range slices.Backward(origins) {
		switch c := confOf(&o); {
		case c == nil || c.PassthroughMode == nil && c.Enabled == nil:
			continue
		case c.PassthroughMode != nil:
			return *c.PassthroughMode
		case *c.Enabled:
			return ModeAll
		}
		break // not enabled: the mode that is meant when none is given
	}
	if n := m.Networking; n != nil && n.Outbound != nil && n.Outbound.Passthrough != nil && *n.Outbound.Passthrough {
		return ""
	}
	return ModeMatched
}
