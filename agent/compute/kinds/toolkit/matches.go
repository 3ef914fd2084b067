package toolkit

import (
	"regexp"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// CertificateHeader holds the URIs in the certificate of a client, for the requests that an inbound
// takes: its connection manager makes the header anew, whatever the client sends, and leaves it out
// where there is no certificate. Each URI stands behind a semicolon, since a hash comes first.
const CertificateHeader = "x-forwarded-client-cert"

// OfMatch matches the requests of clients for whom a match holds, or with not those for whom it
// does not, among them whoever shows no certificate.
func OfMatch(m *resource.ClientMatch, not bool) *routev3.HeaderMatcher {
	var value *matcherv3.StringMatcher
	switch id := m.SpiffeID; {
	case id == nil: // refused when it was read
		value = Exactly("")
	case id.Type == resource.MatchPrefix:
		value = &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: ";URI=" + id.Value}}
	default:
		value = Regex(".*;URI=" + regexp.QuoteMeta(id.Value) + "(;.*)?")
	}
	out := Header(CertificateHeader, value)
	out.InvertMatch, out.TreatMissingHeaderAsEmpty = not, not
	return out
}

// WarnUntold notes for the policies of a kind with matches that an inbound takes no mutual TLS, so
// that they hold for nobody.
func WarnUntold(c *policy.Context, rules *policy.KindRules, l *draft.Listener) {
	if !slices.ContainsFunc(l.Chains, func(ch *draft.Chain) bool { return ch.TLS }) {
		WarnPolicies(c, rules.Policies, "inbound %d takes no mTLS, so clients cannot be told by their SPIFFE ID: matches "+
			"hold for none of them; enable mtls of the Mesh", l.Port)
	}
}
