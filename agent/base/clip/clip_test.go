package clip_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

func TestPrintableText(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"listener a: bad":         "listener a: bad",
		"größe 文字 \\d":            "größe 文字 \\d",
		"\x1b]0;pwned\x07\x1b[2J": `\x1b]0;pwned\a\x1b[2J`,
		"a\nb\r\tc":               `a\nb\r\tc`,
		"\x00\x7f":                `\x00\x7f`,
		"\u009b31m":               `\u009b31m`,
		"\u202egpj.exe\u2066":     `\u202egpj.exe\u2066`,
		"\u2028\u2029\ufeff":      `\u2028\u2029\ufeff`,
		"\xff\xc3(":               `\xff\xc3(`,
		"\ufffd":                  "\ufffd",
	} {
		if got := clip.PrintableText(in, 1000); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
