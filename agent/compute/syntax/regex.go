package syntax

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// MaxRegex is the maximum length in bytes of a regular expression that this package compiles.
const MaxRegex = 16 << 10

// CompileRegex compiles a regular expression to match whole values, as Envoy does with RE2, and
// returns its program size. The size in RE2 is similar, but not equal.
func CompileRegex(pattern string) (*regexp.Regexp, int, error) {
	if len(pattern) > MaxRegex {
		return nil, 0, fmt.Errorf("the regular expression has %d bytes, at most %d are allowed", len(pattern), MaxRegex)
	}
	if strings.Contains(pattern, `\C`) {
		pattern = withoutAnyByte(pattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, 0, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, 0, err
	}
	if strings.Contains(pattern, `\Q`) {
		pattern = parsed.String() // an unterminated pattern would include the text around it
	}
	re, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	if err != nil {
		return nil, 0, err
	}
	return re, len(prog.Inst), nil
}

// withoutAnyByte replaces \C, which matches any byte in RE2 and which package regexp lacks, by any
// character.
func withoutAnyByte(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch {
		case strings.HasPrefix(pattern[i:], `\C`):
			b.WriteString("(?s:.)")
			i++
		case pattern[i] == '\\' && i+1 < len(pattern):
			b.WriteString(pattern[i : i+2])
			i++
		default:
			b.WriteByte(pattern[i])
		}
	}
	return b.String()
}
