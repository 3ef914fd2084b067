package match

import (
	"fmt"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// routeMatch is a compiled RouteMatch.
type routeMatch struct {
	kind          byte // 'p'refix, e'x'act path, 'r'egex, path 's'eparated prefix, 'c'onnect; 0 for others
	path          string
	regex         stringMatch
	caseSensitive bool
	headers       []headerMatch
	source        *routev3.RouteMatch
}

func compileRouteMatch(m *routev3.RouteMatch) routeMatch {
	out := routeMatch{source: m, caseSensitive: m.GetCaseSensitive() == nil || m.GetCaseSensitive().GetValue()}
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		out.kind, out.path = 'p', p.Prefix
	case *routev3.RouteMatch_Path:
		out.kind, out.path = 'x', p.Path
	case *routev3.RouteMatch_SafeRegex:
		out.kind, out.regex = 'r', newStringMatch('r', p.SafeRegex.GetRegex(), false)
	case *routev3.RouteMatch_PathSeparatedPrefix:
		out.kind, out.path = 's', p.PathSeparatedPrefix
	case *routev3.RouteMatch_ConnectMatcher_:
		out.kind = 'c'
	}
	if !out.caseSensitive {
		out.path = LowerASCII(out.path)
	}
	for _, h := range m.GetHeaders() {
		out.headers = append(out.headers, compileHeader(h))
	}
	return out
}

// matches reports whether a request matches, or the reason why not.
func (m *routeMatch) matches(s *stream) (truth, string) {
	if t, why := m.matchesPath(s); t != yes {
		return t, why
	}
	for i := range m.headers {
		if !m.headers[i].matches(s) {
			return no, "wants " + m.headers[i].text()
		}
	}
	for _, q := range m.source.GetQueryParameters() {
		v, ok := queryValue(s.path, q.GetName())
		switch p := q.GetQueryParameterMatchSpecifier().(type) {
		case *routev3.QueryParameterMatcher_StringMatch:
			if want := compileString(p.StringMatch); !ok || !want.fits(s, v) {
				return no, fmt.Sprintf("wants query parameter %s %s", clip.Value(q.GetName()), want.text())
			}
		case *routev3.QueryParameterMatcher_PresentMatch:
			if ok != p.PresentMatch {
				return no, fmt.Sprintf("wants query parameter %s present: %v", clip.Value(q.GetName()), p.PresentMatch)
			}
		default:
			if !ok {
				return no, fmt.Sprintf("wants query parameter %s", clip.Value(q.GetName()))
			}
		}
	}
	return m.matchesRest(s)
}

func (m *routeMatch) matchesPath(s *stream) (truth, string) {
	path := withoutQuery(s.path)
	folded := path
	if !m.caseSensitive {
		folded = LowerASCII(path)
	}
	connect := s.method == methodConnect
	if connect && m.kind != 'c' {
		return no, "takes no CONNECT" // CONNECT has no path
	}
	switch m.kind {
	case 'p':
		if strings.HasPrefix(folded, m.path) {
			return yes, ""
		}
		return no, fmt.Sprintf("wants path prefix %s", clip.Value(m.path))
	case 'x':
		if folded == m.path {
			return yes, ""
		}
		return no, fmt.Sprintf("wants path %s", clip.Value(m.path))
	case 'r':
		if m.regex.fits(s, path) {
			return yes, ""
		}
		return no, fmt.Sprintf("wants path %s", m.regex.text())
	case 's':
		if strings.HasPrefix(folded, m.path) && (len(folded) == len(m.path) || folded[len(m.path)] == '/') {
			return yes, ""
		}
		return no, fmt.Sprintf("wants path %s or one below it", clip.Value(m.path))
	case 'c':
		return truthOf(connect), "wants CONNECT"
	}
	return unknown, "its way of matching paths is not evaluated here"
}

// matchesRest evaluates rarely used criteria.
func (m *routeMatch) matchesRest(s *stream) (truth, string) {
	if m.source.GetGrpc() != nil {
		ct, _ := s.header("content-type")
		if ct != "application/grpc" && !strings.HasPrefix(ct, "application/grpc+") {
			return no, "wants gRPC"
		}
	}
	if f := m.source.GetRuntimeFraction(); f != nil && !inFraction(f.GetDefaultValue(), s.roll) {
		return no, "matches only a fraction of requests, and this one is not in it"
	}
	if t := m.source.GetTlsContext(); t != nil {
		shown := s.peer != nil
		if p := t.GetPresented(); p != nil && p.GetValue() != shown {
			return no, fmt.Sprintf("wants a client certificate: %v", p.GetValue())
		}
		if v := t.GetValidated(); v != nil && v.GetValue() != shown {
			return no, fmt.Sprintf("wants a validated client certificate: %v", v.GetValue())
		}
	}
	for _, c := range m.source.GetCookies() {
		v, ok := cookie(s, c.GetName())
		if want := compileString(c.GetStringMatch()); !ok || want.fits(s, v) == c.GetInvertMatch() {
			return no, fmt.Sprintf("wants cookie %s", clip.Value(c.GetName()))
		}
	}
	unset := false
	for _, f := range m.source.GetFilterState() {
		want := compileString(f.GetStringMatch())
		ok := slices.Contains(s.seen.nameKeys, f.GetKey())
		if unset = unset || !ok; ok && !want.fits(s, s.seen.ServerName) {
			return no, fmt.Sprintf("wants filter state %s %s", clip.Value(f.GetKey()), want.text())
		}
	}
	if len(m.source.GetDynamicMetadata()) > 0 || unset {
		return unknown, "depends on what filters have set, which is not evaluated here"
	}
	return yes, ""
}

// cookie returns the value of a cookie in the request.
func cookie(s *stream, name string) (string, bool) {
	all, _ := s.header("cookie")
	for pair := range strings.SplitSeq(all, ";") {
		k, v, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if k == name {
			return strings.Trim(v, `"`), true
		}
	}
	return "", false
}

// inFraction reports whether a random number is within a fraction. A numerator above the
// denominator means always.
func inFraction(f *typev3.FractionalPercent, roll uint64) bool {
	return roll%Denominator(f.GetDenominator()) < uint64(f.GetNumerator())
}

func Denominator(d typev3.FractionalPercent_DenominatorType) uint64 {
	switch d {
	case typev3.FractionalPercent_TEN_THOUSAND:
		return 10_000
	case typev3.FractionalPercent_MILLION:
		return 1_000_000
	}
	return 100
}
