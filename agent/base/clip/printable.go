package clip

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Printable returns s with everything escaped that a terminal or a reader of lines would act upon
// instead of showing it: control characters, line ends among them, characters that are invisible or
// turn the direction of the text (Unicode's categories C and Z, spaces aside), and bytes that are
// not UTF-8. The escapes are those of Go: \n, \x1b, \u202e.
//
// Text without such characters stays as it is, backslashes too, so that Printable of its own result
// changes nothing. The result is one line of valid UTF-8. It is for people and cannot be turned
// back.
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

// unprintable returns where the first character is that has to be escaped; negative: nowhere.
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
