package match

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
)

// stringMatch is a compiled StringMatcher. The zero value matches nothing.
type stringMatch struct {
	kind   byte // 'e'xact, 'p'refix, 's'uffix, 'c'ontains, 'r'egex; 0 for nothing
	value  string
	fold   bool
	regexp *regexp.Regexp
}

// matches reports whether a value matches. Like Envoy, it ignores case only for ASCII letters.
func (m *stringMatch) matches(v string) bool {
	if m.kind == 'r' {
		return m.regexp != nil && m.regexp.MatchString(v)
	}
	if m.fold {
		v = LowerASCII(v)
	}
	switch m.kind {
	case 'e':
		return v == m.value
	case 'p':
		return strings.HasPrefix(v, m.value)
	case 's':
		return strings.HasSuffix(v, m.value)
	case 'c':
		return strings.Contains(v, m.value)
	}
	return false
}

// fits is like matches for a value of a request. Since 1.39, Envoy's RE2 reads pattern and value as
// Latin-1, so a dot matches one byte of a character. This matters only beyond ASCII.
func (m *stringMatch) fits(s *stream, v string) bool {
	if m.kind != 'r' || !s.latin1 || isASCII(v) && isASCII(m.value) {
		return m.matches(v)
	}
	re, _, err := syntax.CompileRegex(fromLatin1(m.value))
	return err == nil && re.MatchString(fromLatin1(v))
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// fromLatin1 converts each byte to a character.
func fromLatin1(s string) string {
	out := make([]rune, len(s))
	for i := range len(s) {
		out[i] = rune(s[i])
	}
	return string(out)
}

// text describes the matcher.
func (m *stringMatch) text() string {
	switch m.kind {
	case 'e':
		return fmt.Sprintf("%q", clip.Value(m.value))
	case 'p':
		return fmt.Sprintf("prefix %q", clip.Value(m.value))
	case 's':
		return fmt.Sprintf("suffix %q", clip.Value(m.value))
	case 'c':
		return fmt.Sprintf("containing %q", clip.Value(m.value))
	case 'r':
		return fmt.Sprintf("regex %q", clip.Value(m.value))
	}
	return "nothing"
}

func newStringMatch(kind byte, value string, fold bool) stringMatch {
	m := stringMatch{kind: kind, value: value, fold: fold && kind != 'r'}
	if m.fold {
		m.value = LowerASCII(value)
	}
	if kind == 'r' {
		m.regexp, _, _ = syntax.CompileRegex(value)
	}
	return m
}

// compileString compiles Envoy's StringMatcher. One that cannot be compiled matches nothing.
func compileString(m *matcherv3.StringMatcher) stringMatch {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return newStringMatch('e', p.Exact, m.GetIgnoreCase())
	case *matcherv3.StringMatcher_Prefix:
		return newStringMatch('p', p.Prefix, m.GetIgnoreCase())
	case *matcherv3.StringMatcher_Suffix:
		return newStringMatch('s', p.Suffix, m.GetIgnoreCase())
	case *matcherv3.StringMatcher_Contains:
		return newStringMatch('c', p.Contains, m.GetIgnoreCase())
	case *matcherv3.StringMatcher_SafeRegex:
		return newStringMatch('r', p.SafeRegex.GetRegex(), false)
	}
	return stringMatch{}
}

// compileXDSString compiles a StringMatcher of xds.type.matcher.v3, which has the same wire form as
// Envoy's.
func compileXDSString(m *xdsmatcherv3.StringMatcher) stringMatch {
	var out matcherv3.StringMatcher
	if body, err := proto.Marshal(m); err != nil || proto.Unmarshal(body, &out) != nil {
		return stringMatch{}
	}
	return compileString(&out)
}

// LowerASCII converts ASCII letters to lower case.
func LowerASCII(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for j := i; j < len(b); j++ {
				if b[j] >= 'A' && b[j] <= 'Z' {
					b[j] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}
