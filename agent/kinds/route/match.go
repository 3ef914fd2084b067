package route

import (
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
)

// envoy returns the matches of Envoy that together take what m takes.
func (m *Match) envoy() []*routev3.RouteMatch {
	out := m.Path.envoy()
	for _, e := range out {
		if m.Method != "" {
			e.Headers = append(e.Headers, toolkit.Header(":method", toolkit.Exactly(m.Method)))
		}
		for i := range m.Headers {
			e.Headers = append(e.Headers, m.Headers[i].envoy())
		}
		for i := range m.QueryParams {
			q := &m.QueryParams[i]
			text := toolkit.Exactly(q.Value)
			if q.Type == pattern {
				text = toolkit.Regex(q.Value)
			}
			e.QueryParameters = append(e.QueryParameters, &routev3.QueryParameterMatcher{
				Name: q.Name, QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{StringMatch: text},
			})
		}
	}
	return out
}

// envoy returns a match for each way that a path can be taken. A prefix is two: Envoy's own matcher of whole elements
// cannot be rewritten without a double slash (https://github.com/envoyproxy/envoy/issues/23130).
func (p *PathMatch) envoy() []*routev3.RouteMatch {
	switch {
	case p == nil || p.Type == pathPrefix && p.Value == "/":
		return []*routev3.RouteMatch{{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}}
	case p.Type == pathPrefix:
		path := strings.TrimSuffix(p.Value, "/")
		return []*routev3.RouteMatch{
			{PathSpecifier: &routev3.RouteMatch_Path{Path: path}},
			{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: path + "/"}},
		}
	case p.Type == pattern:
		return []*routev3.RouteMatch{{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: regex(p.Value)}}}
	}
	return []*routev3.RouteMatch{{PathSpecifier: &routev3.RouteMatch_Path{Path: p.Value}}}
}

func (h *HeaderMatch) envoy() *routev3.HeaderMatcher {
	switch h.Type {
	case pattern:
		return toolkit.Header(h.Name, toolkit.Regex(h.Value))
	case prefix:
		return toolkit.Header(h.Name, toolkit.Prefix(h.Value))
	case present, absent:
		return toolkit.HeaderPresent(h.Name, h.Type == present)
	}
	return toolkit.Header(h.Name, toolkit.Exactly(h.Value))
}

func regex(s string) *matcherv3.RegexMatcher { return &matcherv3.RegexMatcher{Regex: s} }
