package match

import (
	"strings"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

const uriSANURL = envoy.TypePrefix + "envoy.extensions.matching.common_inputs.ssl.v3.UriSanInput"

// decideRBAC returns the decision of a filter with rules or a matcher. A matcher overrides rules.
// One with an input that is not evaluated here counts as allowing.
func decideRBAC(rules *rbacv3.RBAC, m *xdsmatcherv3.Matcher, s *stream, http bool) Decision {
	if m == nil {
		return evaluateRBAC(rules, s, http)
	}
	in := &rbacInputs{stream: s}
	d := Decision{Action: rbacv3.RBAC_DENY.String()}
	var action rbacv3.Action
	if a := compileMatcher(m, 0).evaluate(in, nil); a != nil && a.UnmarshalTo(&action) == nil {
		d.Policy, d.Action = action.GetName(), action.GetAction().String()
		d.Allowed = action.GetAction() != rbacv3.RBAC_DENY
	}
	d.Known, d.Allowed = !in.unknown, d.Allowed || in.unknown
	return d
}

// rbacInputs are the inputs of an RBAC matcher. Envoy joins the URIs of a certificate with commas.
type rbacInputs struct {
	stream  *stream
	unknown bool // the matcher has read an input that is not evaluated here
}

func (r *rbacInputs) input(config *anypb.Any) (value string, ok, known bool) {
	if config.GetTypeUrl() == uriSANURL {
		has := r.stream.tls && r.stream.peer != nil && len(r.stream.peer.URIs) > 0
		if has {
			value = strings.Join(r.stream.peer.URIs, ",")
		}
		return value, has, true
	}
	value, ok, known = r.stream.seen.input(config)
	r.unknown = r.unknown || !known
	return value, ok, known
}
