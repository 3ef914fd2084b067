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

// CertificateHeader holds the URIs of the client certificate in requests that an inbound receives.
// The inbound's connection manager overwrites the header sent by the client and omits it if there
// is no certificate. Each URI follows a semicolon, because the header begins with a hash.
const CertificateHeader = "x-forwarded-client-cert"

// OfMatch returns a matcher for requests of clients that match m. If not is true, it matches all
// other clients, including those without a certificate.
func OfMatch(m *resource.ClientMatch, not bool) *routev3.HeaderMatcher {
	var value *matcherv3.StringMatcher
	switch id := m.SpiffeID; {
	case id == nil: // rejected on input
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

// WarnNoMTLS warns that the matches of a kind's policies select no client, because the inbound does
// not accept mTLS.
func WarnNoMTLS(c *policy.Context, rules *policy.KindRules, l *draft.Listener) {
	if !slices.ContainsFunc(l.Chains, func(ch *draft.Chain) bool { return ch.TLS }) {
		WarnPolicies(c, rules.Policies, "inbound %d does not accept mTLS, so clients have no SPIFFE ID and the "+
			"matches select none of them; enable mtls of the Mesh", l.Port)
	}
}
