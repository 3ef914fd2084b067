package resource

import (
	"cmp"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// ClientMatch is a condition on the certificate of a client.
type ClientMatch struct {
	SpiffeID *SpiffeIDMatch `json:"spiffeID,omitempty"`
}

// SpiffeIDMatch is a condition on the SPIFFE IDs in a certificate. One matching ID suffices.
type SpiffeIDMatch struct {
	Type  string `json:"type"` // MatchExact or MatchPrefix
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

// Holds reports whether the match is true for one of the SPIFFE IDs.
func (m *ClientMatch) Holds(ids []string) bool {
	if m.SpiffeID == nil {
		return false
	}
	for _, id := range ids {
		if m.SpiffeID.Type == MatchExact && id == m.SpiffeID.Value ||
			m.SpiffeID.Type == MatchPrefix && strings.HasPrefix(id, m.SpiffeID.Value) {
			return true
		}
	}
	return false
}

// Covers reports whether the match includes every client that o includes.
func (m *ClientMatch) Covers(o *ClientMatch) bool {
	return m.SpiffeID != nil && o.SpiffeID != nil && (*m.SpiffeID == *o.SpiffeID ||
		m.SpiffeID.Type == MatchPrefix && strings.HasPrefix(o.SpiffeID.Value, m.SpiffeID.Value))
}

// String formats the match for a message.
func (m *ClientMatch) String() string {
	if m.SpiffeID == nil {
		return ""
	}
	if m.SpiffeID.Type == MatchPrefix {
		return m.SpiffeID.Value + "*"
	}
	return m.SpiffeID.Value
}

// Matches checks a list of matches.
func (v *Validator) Matches(list []ClientMatch) {
	if len(list) > maxMatches {
		v.Faultf("%d matches are given, at most %d are allowed: split them into several rules, or use prefixes",
			len(list), maxMatches)
		return
	}
	for i := range list {
		at := v.Index(i).Field("spiffeID")
		if list[i].SpiffeID == nil {
			at.Faultf(`the SPIFFE ID is missing: give one like {type: Exact, value: "spiffe://default/web"}`)
			continue
		}
		list[i].SpiffeID.validate(at)
	}
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
		if other.n > 0 {
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
