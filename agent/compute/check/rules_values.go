package check

import (
	"errors"
	"strconv"
	"strings"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/substitution"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// notedRegex is the program size from which a regular expression is recorded: half of Envoy's
// default limit, because RE2's programs differ from those of this package.
const notedRegex = 50

func checkRegex(s *subject, m *matcherv3.RegexMatcher)       { checkPattern(s, m.GetRegex()) }
func checkXDSRegex(s *subject, m *xdsmatcherv3.RegexMatcher) { checkPattern(s, m.GetRegex()) }

func checkPattern(s *subject, pattern string) {
	rule := 57
	if s.inside("envoy.config.rbac.v3.RBAC") {
		rule = 101
	}
	_, size, err := syntax.CompileRegex(pattern)
	if err != nil {
		s.report(rule, finding.Reject, "regex", "%s: RE2 cannot compile it", clip.Value(err.Error()))
		return
	}
	if beyondLatin1(pattern) {
		s.out.uses.add(versioned[`\x{100} and above`])
	}
	if size >= notedRegex {
		s.out.regexes = append(s.out.regexes, sized{s.pointer("regex"), size})
	}
}

// beyondLatin1 reports whether a pattern escapes a character above \xff. Since 1.39, Envoy reads
// patterns as Latin-1 and rejects such an escape.
func beyondLatin1(pattern string) bool {
	for i := 0; i+1 < len(pattern); i++ {
		if pattern[i] != '\\' {
			continue
		}
		if digits, found := strings.CutPrefix(pattern[i+1:], "x{"); found {
			digits, _, _ = strings.Cut(digits, "}")
			if n, err := strconv.ParseUint(digits, 16, 32); err == nil && n > 0xff {
				return true
			}
		}
		i++
	}
	return false
}

// checkHeaderMatcher checks a header matcher.
func checkHeaderMatcher(s *subject, m *routev3.HeaderMatcher) {
	if r := m.GetRangeMatch(); r != nil && r.GetEnd() <= r.GetStart() {
		s.report(70, finding.Warning, "rangeMatch", "[%d, %d) contains no number: the end must be above the start",
			r.GetStart(), r.GetEnd())
	}
	if s.inside("envoy.extensions.filters.network.rbac.v3.RBAC") {
		s.report(100, finding.Reject, "", "the network RBAC filter sees no headers: use the HTTP RBAC filter")
	}
}

// checkHeaderValueOption checks a header to add.
func checkHeaderValueOption(s *subject, m *corev3.HeaderValueOption) {
	name := m.GetHeader().GetKey()
	if (strings.HasPrefix(name, ":") || match.LowerASCII(name) == "host") &&
		!s.inside("envoy.config.core.v3.GrpcService") {
		s.report(68, finding.Reject, "header/key",
			"%q cannot be changed: Envoy reserves pseudo-headers and Host; use a rewrite", clip.Value(name))
	}
	if v := m.GetHeader().GetValue(); strings.Contains(v, "%") {
		checkFormatText(s, 68, v, "header/value")
	}
}

// checkHeaderNames checks headers to remove.
func checkHeaderNames(s *subject, names []string, at string) {
	for i, n := range names {
		if strings.HasPrefix(n, ":") || match.LowerASCII(n) == "host" {
			s.report(68, finding.Reject, finding.Item(at, i), "%q cannot be removed: requests need it", clip.Value(n))
		}
	}
}

// formatterNames lists commands that Envoy knows only if an entry in `formatters` provides them.
var formatterNames = []string{"REQ_WITHOUT_QUERY", "FILE_CONTENT", "SECRET"}

// checkFormatText checks a format string. It accepts all commands of the formatters that are
// configured with it.
func checkFormatText(s *subject, rule int, text, at string, formatters ...*corev3.TypedExtensionConfig) {
	segments, err := substitution.ParseFormat(text)
	for i := range segments {
		checkSegment(s, rule, &segments[i], at)
	}
	var fault *substitution.FormatError
	if !errors.As(err, &fault) {
		return
	}
	severity := finding.Reject
	rest := text[min(fault.Pos, len(text)):]
	for _, n := range formatterNames {
		if strings.HasPrefix(rest, "%"+n) && len(formatters) > 0 {
			severity = finding.Lint // the rest of the format is not checked
		}
	}
	if severity == finding.Lint {
		return
	}
	s.report(rule, severity, at, "%v", fault)
}

// checkOperation checks the format of a span name.
func checkOperation(s *subject, text, at string) {
	_, err := substitution.ParseFormat(text)
	if fault := (*substitution.FormatError)(nil); errors.As(err, &fault) {
		s.reportNewer(50, finding.Reject, at, "%v", fault)
	}
}

// checkRouteTracing checks the span names of a route.
func checkRouteTracing(s *subject, m *routev3.Tracing) {
	checkOperation(s, m.GetOperation(), "operation")
	checkOperation(s, m.GetUpstreamOperation(), "upstreamOperation")
}

// checkManagerTracing checks the span names of an HTTP connection manager.
func checkManagerTracing(s *subject, m *hcmv3.HttpConnectionManager_Tracing) {
	checkOperation(s, m.GetOperation(), "operation")
	checkOperation(s, m.GetUpstreamOperation(), "upstreamOperation")
}

// beyondGrammar reports whether checkSegment may have a finding about a segment.
func beyondGrammar(g substitution.Segment) bool {
	return g.Operator == "CEL" || len(g.Newer()) > 0
}

// checkSegment checks a segment beyond the grammar.
func checkSegment(s *subject, rule int, g *substitution.Segment, at string) {
	for _, f := range g.Newer() {
		s.out.uses.add(versioned[f.Name])
	}
	if g.Operator == "CEL" {
		if why := syntax.CELFault(g.Arg); why != "" {
			s.report(rule, finding.Reject, at, "%q is not a CEL expression: %s", clip.Value(g.Arg), why)
		}
	}
}

// checkFraction checks a fraction.
func checkFraction(s *subject, m *typev3.FractionalPercent) {
	if uint64(m.GetNumerator()) > match.Denominator(m.GetDenominator()) {
		s.report(104, finding.Warning, "numerator", "%d of %d is more than the whole, and Envoy reads it as always",
			m.GetNumerator(), match.Denominator(m.GetDenominator()))
	}
}

// checkFault checks a fault injection filter.
func checkFault(s *subject, m *faultv3.HTTPFault) {
	if c := m.GetUpstreamCluster(); c != "" {
		s.refer(envoy.KindCluster, c, "upstreamCluster", 103, finding.Warning, "the fault applies to no request")
	}
	if code := m.GetAbort().GetHttpStatus(); code != 0 && (code < 200 || code > 599) {
		s.report(103, finding.Reject, "abort/httpStatus", "Envoy cannot answer with status %d: use 200 to 599",
			code)
	}
}
