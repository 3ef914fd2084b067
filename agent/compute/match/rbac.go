package match

import (
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
)

// Decision is the decision of RBAC rules about a connection or request.
type Decision struct {
	Allowed bool
	// Known is false if the decision depends on conditions that this package does not evaluate, such
	// as metadata or CEL. Allowed is then the decision if none of them match.
	Known  bool
	Policy string // the matching policy, or ""
	Action string // of the rules: ALLOW, DENY, or LOG
}

// EvaluateRBAC returns the decision of rules about a connection, or about a request on it if req is
// not nil. tls reports that this proxy terminates the connection's TLS; otherwise clients are not
// authenticated. Policies are tried by name, and the first match decides. Nil rules allow
// everything.
func EvaluateRBAC(rules *rbacv3.RBAC, seen *Seen, peer *Peer, tls bool, req *Request) Decision {
	if req == nil {
		req = &Request{}
		return evaluateRBAC(rules, newStream(req, seen, peer, tls), false)
	}
	return evaluateRBAC(rules, newStream(req, seen, peer, tls), true)
}

func evaluateRBAC(rules *rbacv3.RBAC, s *stream, http bool) Decision {
	if rules == nil {
		return Decision{Allowed: true, Known: true}
	}
	e := &rbac{stream: s, http: http}
	d := Decision{Known: true, Action: rules.GetAction().String()}
	fits := no
	names := make([]string, 0, len(rules.GetPolicies()))
	for n := range rules.GetPolicies() {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		t := e.policy(rules.GetPolicies()[n])
		if t == unknown {
			d.Known = false
		}
		if t == yes {
			d.Policy, fits = n, yes
			break
		}
	}
	switch rules.GetAction() {
	case rbacv3.RBAC_ALLOW:
		d.Allowed = fits == yes
	case rbacv3.RBAC_DENY:
		d.Allowed = fits != yes
	default:
		d.Allowed, d.Known = true, true
	}
	if fits == yes {
		d.Known = true
	}
	return d
}

// rbac evaluates policies for one connection or request.
type rbac struct {
	stream *stream
	http   bool // there is a request
	depth  int
}

// policy matches if a permission, a principal, and the condition match.
func (e *rbac) policy(p *rbacv3.Policy) truth {
	t := min(anyOf(p.GetPermissions(), e.permission), anyOf(p.GetPrincipals(), e.principal))
	if p.GetCondition() != nil || p.GetCheckedCondition() != nil {
		t = min(t, unknown)
	}
	return t
}

// nested evaluates a nested rule up to the maximum depth.
func (e *rbac) nested(eval func() truth) truth {
	if e.depth >= MaxNesting {
		return unknown
	}
	e.depth++
	defer func() { e.depth-- }()
	return eval()
}

func (e *rbac) permission(p *rbacv3.Permission) truth {
	seen := e.stream.seen
	switch r := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return truthOf(r.Any)
	case *rbacv3.Permission_AndRules:
		return e.nested(func() truth { return allOf(r.AndRules.GetRules(), e.permission) })
	case *rbacv3.Permission_OrRules:
		return e.nested(func() truth { return anyOf(r.OrRules.GetRules(), e.permission) })
	case *rbacv3.Permission_NotRule:
		return e.nested(func() truth { return e.permission(r.NotRule).not() })
	case *rbacv3.Permission_DestinationIp:
		return inRange(r.DestinationIp, seen.Dst.Addr())
	case *rbacv3.Permission_DestinationPort:
		return truthOf(r.DestinationPort == uint32(seen.Dst.Port()))
	case *rbacv3.Permission_DestinationPortRange:
		port := int32(seen.Dst.Port())
		return truthOf(port >= r.DestinationPortRange.GetStart() && port < r.DestinationPortRange.GetEnd())
	case *rbacv3.Permission_RequestedServerName:
		m := compileString(r.RequestedServerName)
		return truthOf(m.matches(seen.ServerName))
	case *rbacv3.Permission_Header:
		h := compileHeader(r.Header)
		return e.onRequest(h.matches)
	case *rbacv3.Permission_UrlPath:
		return e.path(r.UrlPath)
	}
	return unknown // metadata, matchers of extensions, URI templates
}

func (e *rbac) principal(p *rbacv3.Principal) truth {
	seen := e.stream.seen
	switch r := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return truthOf(r.Any)
	case *rbacv3.Principal_AndIds:
		return e.nested(func() truth { return allOf(r.AndIds.GetIds(), e.principal) })
	case *rbacv3.Principal_OrIds:
		return e.nested(func() truth { return anyOf(r.OrIds.GetIds(), e.principal) })
	case *rbacv3.Principal_NotId:
		return e.nested(func() truth { return e.principal(r.NotId).not() })
	case *rbacv3.Principal_Authenticated_:
		return e.authenticated(r.Authenticated.GetPrincipalName())
	case *rbacv3.Principal_SourceIp:
		//lint:ignore SA1019 Envoy still reads it
		return inRange(r.SourceIp, seen.Src.Addr())
	case *rbacv3.Principal_DirectRemoteIp:
		return inRange(r.DirectRemoteIp, seen.Direct.Addr())
	case *rbacv3.Principal_RemoteIp:
		return inRange(r.RemoteIp, seen.Src.Addr())
	case *rbacv3.Principal_Header:
		h := compileHeader(r.Header)
		return e.onRequest(h.matches)
	case *rbacv3.Principal_UrlPath:
		return e.path(r.UrlPath)
	}
	return unknown // metadata, filter state, extensions
}

// authenticated evaluates a principal name: a URI SAN, or else a DNS SAN, or else the subject must
// match. Without TLS nothing matches; without a name, TLS is sufficient.
func (e *rbac) authenticated(name *matcherv3.StringMatcher) truth {
	if !e.stream.tls {
		return no
	}
	if name == nil {
		return yes
	}
	m := compileString(name)
	if e.stream.peer == nil {
		return truthOf(m.matches(""))
	}
	return truthOf(slices.ContainsFunc(e.stream.peer.URIs, m.matches) ||
		slices.ContainsFunc(e.stream.peer.DNS, m.matches) || m.matches(e.stream.peer.Subject))
}

// onRequest evaluates a rule about a request. It does not match without one.
func (e *rbac) onRequest(fits func(*stream) bool) truth {
	return truthOf(e.http && fits(e.stream))
}

func (e *rbac) path(p *matcherv3.PathMatcher) truth {
	m := compileString(p.GetPath())
	return e.onRequest(func(s *stream) bool { return m.fits(s, withoutQuery(s.path)) })
}

func inRange(r *corev3.CidrRange, a netip.Addr) truth {
	p, err := syntax.ParseRange(r)
	return truthOf(err == nil && p.Contains(a))
}

// text describes the decision.
func (d Decision) text() string {
	var b strings.Builder
	switch {
	case d.Allowed:
		b.WriteString("allow")
	default:
		b.WriteString("deny")
	}
	switch {
	case d.Policy != "":
		b.WriteString(": policy " + clip.Value(d.Policy) + " fits")
	case d.Action == "ALLOW":
		b.WriteString(": no policy fits")
	case d.Action == "":
		b.WriteString(": no rules")
	}
	if !d.Known {
		b.WriteString("; it depends on conditions that are not evaluated here")
	}
	return b.String()
}
