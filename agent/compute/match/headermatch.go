package match

//lint:file-ignore SA1019 fields that Envoy still reads are evaluated

import (
	"fmt"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// headerMatch is a compiled HeaderMatcher.
type headerMatch struct {
	name     string
	value    stringMatch
	kind     byte // 'v'alue, 'r'ange, 'p'resence
	from, to int64
	present  bool
	invert   bool
	asEmpty  bool // treat a missing header as empty
}

func compileHeader(m *routev3.HeaderMatcher) headerMatch {
	h := headerMatch{name: m.GetName(), kind: 'v', invert: m.GetInvertMatch(), asEmpty: m.GetTreatMissingHeaderAsEmpty()}
	switch s := m.GetHeaderMatchSpecifier().(type) {
	case *routev3.HeaderMatcher_StringMatch:
		h.value = compileString(s.StringMatch)
	case *routev3.HeaderMatcher_ExactMatch:
		h.value = newStringMatch('e', s.ExactMatch, false)
	case *routev3.HeaderMatcher_PrefixMatch:
		h.value = newStringMatch('p', s.PrefixMatch, false)
	case *routev3.HeaderMatcher_SuffixMatch:
		h.value = newStringMatch('s', s.SuffixMatch, false)
	case *routev3.HeaderMatcher_ContainsMatch:
		h.value = newStringMatch('c', s.ContainsMatch, false)
	case *routev3.HeaderMatcher_SafeRegexMatch:
		h.value = newStringMatch('r', s.SafeRegexMatch.GetRegex(), false)
	case *routev3.HeaderMatcher_RangeMatch:
		h.kind, h.from, h.to = 'r', s.RangeMatch.GetStart(), s.RangeMatch.GetEnd()
	case *routev3.HeaderMatcher_PresentMatch:
		h.kind, h.present = 'p', s.PresentMatch
	default: // no specifier means presence
		h.kind, h.present = 'p', true
	}
	return h
}

// matches evaluates the matcher. A missing header matches no value, inverted or not.
func (h *headerMatch) matches(s *stream) bool {
	v, ok := s.header(h.name)
	if !ok && h.asEmpty {
		ok = true
	}
	if h.kind == 'p' {
		return (ok == h.present) != h.invert
	}
	if !ok {
		return false
	}
	if h.kind == 'r' {
		n, err := strconv.ParseInt(v, 10, 64)
		return (err == nil && n >= h.from && n < h.to) != h.invert
	}
	return h.value.fits(s, v) != h.invert
}

// text describes the matcher.
func (h *headerMatch) text() string {
	not := ""
	if h.invert {
		not = "not "
	}
	switch h.kind {
	case 'p':
		if h.present != h.invert {
			return fmt.Sprintf("header %s present", clip.Value(h.name))
		}
		return fmt.Sprintf("header %s missing", clip.Value(h.name))
	case 'r':
		return fmt.Sprintf("header %s %sin [%d, %d)", clip.Value(h.name), not, h.from, h.to)
	}
	return fmt.Sprintf("header %s %s%s", clip.Value(h.name), not, h.value.text())
}
