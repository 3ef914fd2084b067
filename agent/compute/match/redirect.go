package match

import (
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/nearside-mesh/nearside/agent/compute/syntax"
)

// redirectTo returns the Location of a redirect. A default port of the old scheme is removed.
func redirectTo(a *routev3.RedirectAction, m *routev3.RouteMatch, s *stream) string {
	scheme := s.scheme
	if a.GetHttpsRedirect() {
		scheme = "https"
	} else if a.GetSchemeRedirect() != "" {
		scheme = a.GetSchemeRedirect()
	}
	host, port := s.host, ""
	if i := portStart(host); i >= 0 {
		host, port = host[:i], host[i+1:]
	}
	if port == "80" && s.scheme == "http" || port == "443" && s.scheme == "https" {
		if scheme != s.scheme {
			port = ""
		}
	}
	if h := a.GetHostRedirect(); h != "" {
		host = h
	}
	if p := a.GetPortRedirect(); p != 0 {
		port = strconv.FormatUint(uint64(p), 10)
	}
	if port != "" {
		host += ":" + port
	}
	path := withoutQuery(s.path)
	query := s.path[len(path):]
	if a.GetStripQuery() {
		query = ""
	}
	switch p := a.GetPathRewriteSpecifier().(type) {
	case *routev3.RedirectAction_PathRedirect:
		path = p.PathRedirect
		if strings.Contains(path, "?") {
			query = ""
		}
	case *routev3.RedirectAction_PrefixRewrite:
		path = p.PrefixRewrite + strings.TrimPrefix(path, matchedPrefix(m, path))
	case *routev3.RedirectAction_RegexRewrite:
		path = syntax.Rewrite(path, p.RegexRewrite.GetPattern().GetRegex(), p.RegexRewrite.GetSubstitution())
	}
	return scheme + "://" + host + path + query
}

// matchedPrefix returns the part of the path that a route matched, for rewriting.
func matchedPrefix(m *routev3.RouteMatch, path string) string {
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		return p.Prefix
	case *routev3.RouteMatch_PathSeparatedPrefix:
		return p.PathSeparatedPrefix
	}
	return path
}
