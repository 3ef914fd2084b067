package clip_test

import (
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		`a "regex" of \d+`:             `a "regex" of \d+`,
		"größe – 東京 ✓":                 "größe – 東京 ✓",
		"no\u00a0break":                "no\u00a0break",
		"\ufffd":                       "\ufffd",
		"one\ntwo\r\tthree":            `one\ntwo\r\tthree`,
		"\x1b[2J\x1b]0;title\a":        `\x1b[2J\x1b]0;title\a`,
		"\x00\x7f":                     `\x00\x7f`,
		"\u009b31m":                    `\u009b31m`,
		"user\u202etxt.exe\u202c":      `user\u202etxt.exe\u202c`,
		"\u2066a\u2069\u200e\u200f":    `\u2066a\u2069\u200e\u200f`,
		"a\u2028b\u2029c\u0085d":       `a\u2028b\u2029c\u0085d`,
		"\ufeffbom zero\u200bwidth":    `\ufeffbom zero\u200bwidth`,
		"tag\U000e0041":                `tag\U000e0041`,
		"cut \xe2\x80":                 `cut \xe2\x80`,
		"\xff\xfe":                     `\xff\xfe`,
		"\xed\xa0\x80 is no character": `\xed\xa0\x80 is no character`,
	} {
		if got := clip.Printable(in); got != want {
			t.Errorf("Printable(%+q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[2J", "a\nb", "\xff", "\u202e", "\ufffd", "é\u0301", "\\x1b", "\U0010ffff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := clip.Printable(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		clean := utf8.ValidString(s)
		for _, r := range s {
			clean = clean && strconv.IsGraphic(r)
		}
		for _, r := range got {
			if !strconv.IsGraphic(r) {
				t.Fatalf("%q has %U", got, r)
			}
		}
		if clean && got != s {
			t.Fatalf("%q became %q", s, got)
		}
		if twice := clip.Printable(got); twice != got {
			t.Fatalf("%q became %q at the second time", got, twice)
		}
	})
}
