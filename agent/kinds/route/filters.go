package route

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// apply changes a route as a filter says. The action is the route's own, whatever a redirect has put in its place; of
// is the match that the route was made of.
func (f *filter) apply(out *routev3.Route, action *routev3.RouteAction, of *Match) {
	switch {
	case f.RequestHeaderModifier != nil:
		add, remove := f.RequestHeaderModifier.envoy()
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, add...)
		out.RequestHeadersToRemove = append(out.RequestHeadersToRemove, remove...)
	case f.ResponseHeaderModifier != nil:
		add, remove := f.ResponseHeaderModifier.envoy()
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, add...)
		out.ResponseHeadersToRemove = append(out.ResponseHeadersToRemove, remove...)
	case f.RequestRedirect != nil:
		out.Action = &routev3.Route_Redirect{Redirect: f.RequestRedirect.envoy(out.Match, of)}
	case f.URLRewrite != nil:
		f.URLRewrite.apply(action, out.Match, of)
	case f.RequestMirror != nil && f.mirror != "":
		action.RequestMirrorPolicies = append(action.RequestMirrorPolicies, &routev3.RouteAction_RequestMirrorPolicy{
			Cluster: f.mirror, RuntimeFraction: fraction(f.RequestMirror.Percentage),
		})
	}
}

func (m *HeaderModifier) envoy() (add []*corev3.HeaderValueOption, remove []string) {
	add = make([]*corev3.HeaderValueOption, 0, len(m.Set)+len(m.Add))
	for _, h := range m.Set {
		add = append(add, HeaderOption(h.Name, h.Value, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))
	}
	for _, h := range m.Add {
		add = append(add, HeaderOption(h.Name, h.Value, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD))
	}
	return add, m.Remove
}

// HeaderOption changes a header.
func HeaderOption(name, value string, how corev3.HeaderValueOption_HeaderAppendAction) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, Value: value}, AppendAction: how}
}

func (r *Redirect) envoy(m *routev3.RouteMatch, of *Match) *routev3.RedirectAction {
	out := &routev3.RedirectAction{HostRedirect: toolkit.Or(r.Hostname, ""), PortRedirect: toolkit.Or(r.Port, 0)}
	if r.Scheme != "" {
		out.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: r.Scheme}
	}
	out.ResponseCode, _ = redirectCode(toolkit.Or(r.StatusCode, 302))
	switch whole, part := r.Path.envoy(m, of); {
	case whole != nil:
		out.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: whole}
	case part != "":
		out.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: part}
	}
	return out
}

func redirectCode(status int) (routev3.RedirectAction_RedirectResponseCode, bool) {
	switch status {
	case 301:
		return routev3.RedirectAction_MOVED_PERMANENTLY, true
	case 302:
		return routev3.RedirectAction_FOUND, true
	case 303:
		return routev3.RedirectAction_SEE_OTHER, true
	case 307:
		return routev3.RedirectAction_TEMPORARY_REDIRECT, true
	case 308:
		return routev3.RedirectAction_PERMANENT_REDIRECT, true
	}
	return 0, false
}

func (r *Rewrite) apply(action *routev3.RouteAction, m *routev3.RouteMatch, of *Match) {
	if r.Hostname != nil {
		action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: *r.Hostname}
	}
	if r.Path != nil { // both at once, as Envoy takes one of them: the last filter decides
		action.RegexRewrite, action.PrefixRewrite = r.Path.envoy(m, of)
	}
}

// envoy returns what takes the place of the path: of the whole path, or of the prefix by which it was matched. A path
// that is the prefix is whole.
func (p *PathRewrite) envoy(m *routev3.RouteMatch, of *Match) (whole *matcherv3.RegexMatchAndSubstitute, part string) {
	switch {
	case p == nil:
	case p.Type == replaceFullPath && p.ReplaceFullPath != nil:
		return instead(*p.ReplaceFullPath), ""
	case p.Type == replacePrefixMatch && p.ReplacePrefixMatch != nil && of.Path != nil && of.Path.Type == pathPrefix:
		if m.GetPath() != "" {
			return instead(*p.ReplacePrefixMatch), ""
		}
		return nil, *p.ReplacePrefixMatch
	}
	return nil, ""
}

// instead replaces all of a path.
func instead(path string) *matcherv3.RegexMatchAndSubstitute {
	return &matcherv3.RegexMatchAndSubstitute{Pattern: regex(".*"), Substitution: literal(path)}
}

// fraction is a share of the requests, nil for all.
func fraction(p *resource.Decimal) *corev3.RuntimeFractionalPercent {
	if p == nil {
		return nil
	}
	return &corev3.RuntimeFractionalPercent{DefaultValue: toolkit.Fraction(p)}
}
