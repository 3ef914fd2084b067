package clip

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Printable escapes the characters of s that a terminal or a line reader would interpret: control
// characters including line ends, invisible characters, characters that change the text direction
// (Unicode categories C and Z, except for the space), and bytes that are not UTF-8. The escapes are
// those of Go: \n, \x1b, \u202e.
//
// Other text, including backslashes, is unchanged, so Printable is idempotent. The result is one
// line of valid UTF-8. It is for display; the escapes are ambiguous.
func Printable(s string) string {
	at := unprintable(s)
	if at < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	for at >= 0 {
		b.WriteString(s[:at])
		_, size := utf8.DecodeRuneInString(s[at:])
		quoted := strconv.Quote(s[at : at+size])
		b.WriteString(quoted[1 : len(quoted)-1])
		s = s[at+size:]
		at = unprintable(s)
	}
	b.WriteString(s)
	return b.String()
}

// unprintable returns the index of the first character to escape, or a negative number if there is
// none.
func unprintable(s string) int {
	for i, r := range s {
		if r >= ' ' && r < 0x7f {
			continue
		}
		if !strconv.IsGraphic(r) {
			return i
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return i
			}
		}
	}
	return -1
}
