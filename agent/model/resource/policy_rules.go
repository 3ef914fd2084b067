package resource

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// ClientMatch is a condition on a connection of a client. All given conditions must hold.
type ClientMatch struct {
	SpiffeID *SpiffeIDMatch `json:"spiffeID,omitempty"`
	SNI      *SNIMatch      `json:"sni,omitempty"`
}

// SpiffeIDMatch is a condition on the SPIFFE IDs in a certificate. One matching ID suffices.
type SpiffeIDMatch struct {
	Type  string `json:"type"` // MatchExact or MatchPrefix
	Value string `json:"value"`
}

// SNIMatch is a condition on the server name that the client requests in its TLS handshake.
type SNIMatch struct {
	Type  string `json:"type"` // Exact
	Value string `json:"value"`
}

// Types of SpiffeIDMatch. A prefix matches bytes: spiffe://default/web also matches
// spiffe://default/web-2.
const (
	MatchExact  = "Exact"
	MatchPrefix = "Prefix"
)

const (
	spiffeScheme = "spiffe://"
	maxSPIFFEID  = 2048 // bytes, by the SPIFFE standard
	maxMatches   = 100  // of one list
)

// Holds reports whether the match is true for a client with these SPIFFE IDs that requests a server
// name.
func (m *ClientMatch) Holds(ids []string, serverName string) bool {
	return (m.SpiffeID != nil || m.SNI != nil) && (m.SNI == nil || m.SNI.Value == serverName) &&
		(m.SpiffeID == nil || slices.ContainsFunc(ids, m.SpiffeID.holds))
}

func (m *SpiffeIDMatch) holds(id string) bool {
	return id == m.Value || m.Type == MatchPrefix && strings.HasPrefix(id, m.Value)
}

// Covers reports whether the match includes every client that o includes.
func (m *ClientMatch) Covers(o *ClientMatch) bool {
	return (m.SNI == nil || o.SNI != nil && *m.SNI == *o.SNI) && (m.SpiffeID == nil || o.SpiffeID != nil &&
		(*m.SpiffeID == *o.SpiffeID || m.SpiffeID.Type == MatchPrefix && m.SpiffeID.holds(o.SpiffeID.Value)))
}

// Class ranks matches as Kuma orders rules: exact SPIFFE IDs, prefixes, server names, all clients.
func (m *ClientMatch) Class() int {
	switch {
	case m.SpiffeID != nil && m.SpiffeID.Type == MatchExact:
		return 3
	case m.SpiffeID != nil:
		return 2
	case m.SNI != nil:
		return 1
	}
	return 0
}

// String formats the match for a message.
func (m *ClientMatch) String() string {
	var out []string
	if id := m.SpiffeID; id != nil && id.Type == MatchPrefix {
		out = append(out, id.Value+"*")
	} else if id != nil {
		out = append(out, id.Value)
	}
	if m.SNI != nil {
		out = append(out, "SNI "+m.SNI.Value)
	}
	return strings.Join(out, " with ")
}

// Matches checks a list of matches.
func (v *Validator) Matches(list []ClientMatch) {
	if len(list) > maxMatches {
		v.Faultf("%d matches are given, at most %d are allowed: split them into several rules, or use prefixes",
			len(list), maxMatches)
		return
	}
	for i := range list {
		m, at := &list[i], v.Index(i)
		if m.SpiffeID == nil && m.SNI == nil {
			at.Field("spiffeID").Faultf(
				`the SPIFFE ID is missing: give one like {type: Exact, value: "spiffe://default/web"}, or give sni`)
		}
		if m.SpiffeID != nil {
			m.SpiffeID.validate(at.Field("spiffeID"))
		}
		if m.SNI != nil {
			at.Field("sni").Field("type").OneOf(m.SNI.Type, MatchExact)
			at.Field("sni").Field("value").sni(m.SNI.Value)
		}
	}
}

// sni checks a requested server name, which Envoy compares in lower case.
func (v *Validator) sni(s string) {
	if s != strings.ToLower(s) || strings.HasSuffix(s, ".") || strings.Contains(s, "_") {
		v.Faultf("%s is not a server name: lower-case letters, digits, '-' and '.' between them are allowed", strict.Quote(s))
		return
	}
	v.HostName(s, "a server name")
}

func (m *SpiffeIDMatch) validate(v *Validator) {
	v.Field("type").OneOf(m.Type, MatchExact, MatchPrefix)
	v = v.Field("value")
	domain, path, _ := strings.Cut(strings.TrimPrefix(m.Value, spiffeScheme), "/")
	switch {
	case m.Value == "":
		v.Faultf(`the value is missing: give a SPIFFE ID like "spiffe://default/web"`)
	case len(m.Value) > maxSPIFFEID:
		v.Faultf("the SPIFFE ID has %d bytes, at most %d are allowed", len(m.Value), maxSPIFFEID)
	case !strings.HasPrefix(m.Value, spiffeScheme):
		v.Faultf("%s is not a SPIFFE ID: it begins with %s", strict.Quote(m.Value), spiffeScheme)
	case strings.ContainsFunc(m.Value, notInSPIFFEID):
		v.Faultf("%s is not a SPIFFE ID: letters, digits and . - _ ~ %% : / are allowed", strict.Quote(m.Value))
	case m.Type == MatchExact && (domain == "" || path == "" || strings.HasSuffix(path, "/")):
		v.Faultf("%s is not a whole SPIFFE ID: give one like spiffe://default/web, or type: %s",
			strict.Quote(m.Value), MatchPrefix)
	}
}

func notInSPIFFEID(r rune) bool {
	return r >= 0x80 || !alnum(byte(r)) && !strings.ContainsRune(".-_~%:/", r)
}

// InboundItems returns the items for inbound traffic: those of rules, or those of from.
func (p *Policy) InboundItems() []PolicyItem {
	if len(p.Rules) > 0 {
		return p.Rules
	}
	return p.From
}

// InboundField is the name of the list that InboundItems returns.
func (p *Policy) InboundField() string {
	if len(p.Rules) > 0 {
		return "rules"
	}
	return "from"
}

// validateRules checks rules, which apply to all clients that their matches select.
func (p *Policy) validateRules(list *Validator, s *PolicyShape) {
	if len(p.Rules) == 0 {
		return
	}
	for _, other := range []struct {
		field string
		n     int
	}{{"from", len(p.From)}, {"to", len(p.To)}} {
		if other.n > 0 && (other.field == "from" || s.FromAsRules) {
			list.Faultf("a policy cannot have both rules and %s: move %s into another policy", other.field, other.field)
		}
	}
	for i := range p.Rules {
		it, v := &p.Rules[i], list.Index(i)
		if len(it.Matches) > 0 && !s.RuleMatches {
			v.Field("matches").Faultf("%s; without matches, the rule applies to all clients",
				cmp.Or(s.NoMatches, "rules of this kind apply to all clients"))
		} else {
			v.Field("matches").Matches(it.Matches)
		}
		if it.Conf == nil {
			v.Faultf("the conf is missing")
		} else {
			it.Conf.Validate(v.Field("default"))
		}
	}
}
