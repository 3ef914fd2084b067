//lint:file-ignore SA1019 Envoy still accepts source_ip, and a patch may set it

package check

//lint:file-ignore SA1019 fields that Envoy still reads are checked

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"github.com/nearside-mesh/nearside/agent/model/finding"
)

func checkNetworkRBAC(s *subject, m *netrbacv3.RBAC) {
	bothForms(s, m.GetRules() != nil && m.GetMatcher() != nil, m.GetShadowRules() != nil && m.GetShadowMatcher() != nil)
}

func checkHTTPRBAC(s *subject, m *httprbacv3.RBAC) {
	bothForms(s, m.GetRules() != nil && m.GetMatcher() != nil, m.GetShadowRules() != nil && m.GetShadowMatcher() != nil)
}

func bothForms(s *subject, enforced, shadow bool) {
	if enforced {
		s.report(102, finding.Warning, "rules", "the matcher overrides the rules: keep one of them")
	}
	if shadow {
		s.report(102, finding.Warning,
			"shadowRules", "the shadow matcher overrides the shadow rules: keep one of them")
	}
}

// checkPermission checks one permission. The walk checks nested permissions.
func checkPermission(s *subject, m *rbacv3.Permission) {
	switch r := m.GetRule().(type) {
	case *rbacv3.Permission_DestinationIp:
		checkRange(s, 101, r.DestinationIp, "destinationIp")
	case *rbacv3.Permission_DestinationPortRange:
		if r.DestinationPortRange.GetEnd() > 1<<16 {
			s.report(101, finding.Reject, "destinationPortRange/end",
				"%d is above the last port: a range must not end above 65536", r.DestinationPortRange.GetEnd())
		}
		if r.DestinationPortRange.GetEnd() <= r.DestinationPortRange.GetStart() {
			s.report(101, finding.Reject, "destinationPortRange", "[%d, %d) contains no port: the end must be above the start",
				r.DestinationPortRange.GetStart(), r.DestinationPortRange.GetEnd())
		}
	}
}

// checkPrincipal checks one principal. The walk checks nested principals.
func checkPrincipal(s *subject, m *rbacv3.Principal) {
	switch r := m.GetIdentifier().(type) {
	case *rbacv3.Principal_SourceIp:
		checkRange(s, 101, r.SourceIp, "sourceIp")
	case *rbacv3.Principal_DirectRemoteIp:
		checkRange(s, 101, r.DirectRemoteIp, "directRemoteIp")
	case *rbacv3.Principal_RemoteIp:
		checkRange(s, 101, r.RemoteIp, "remoteIp")
	}
}

func checkRBACPolicy(s *subject, m *rbacv3.Policy) {
	if c := m.GetCondition(); c != nil && c.GetExprKind() == nil {
		s.report(101, finding.Reject, "condition", "the condition is empty: give an expression")
	}
}
