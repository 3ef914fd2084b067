package syntax

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// MaxRegex is the length in bytes of a regular expression that is compiled here, a bound of this
// package.
const MaxRegex = 16 << 10

// CompileRegex compiles a regular expression so that it matches whole values, as Envoy does with
// RE2, and returns the size of its program. That of RE2 is of the same order, but not the same.
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
		pattern = parsed.String() // one that is not ended would take what is put around it
	}
	re, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	if err != nil {
		return nil, 0, err
	}
	return re, len(prog.Inst), nil
}

// withoutAnyByte replaces \C, any byte, which RE2 knows and package regexp does not, by any
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
