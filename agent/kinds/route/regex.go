package route

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// CheckSubstitution checks what takes the place of a match of a pattern, in the syntax of RE2: \0 is the match, \1 its
// first group, \\ a backslash.
func CheckSubstitution(v *resource.Validator, pattern, s string) {
	if strings.ContainsAny(s, "\x00\r\n") {
		v.Faultf("%q has a line break or a NUL, which is not allowed", s)
		return
	}
	groups := -1 // not known: the pattern is reported by itself
	if re, err := regexp.Compile(pattern); err == nil {
		groups = re.NumSubexp()
	}
	if reason := substitutionFault(s, groups); reason != "" {
		v.Faultf("%q: %s", s, reason)
	}
}

// substitutionFault says what is wrong with a substitution for a pattern with a number of groups, "" when nothing is.
func substitutionFault(s string, groups int) string {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		i++
		switch {
		case i == len(s):
			return `it ends in a single \: write \\ for a backslash`
		case s[i] == '\\':
		case s[i] < '0' || s[i] > '9':
			return fmt.Sprintf(`\%c is neither a group, \0 to \9, nor a backslash, \\`, s[i])
		case groups >= 0 && int(s[i]-'0') > groups:
			return fmt.Sprintf(`\%c is a group that the pattern does not have: it has %d`, s[i], groups)
		}
	}
	return ""
}

// literal writes a text as a substitution that stands for itself.
func literal(s string) string { return strings.ReplaceAll(s, `\`, `\\`) }
