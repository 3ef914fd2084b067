// Package plural writes counts with the correct form of the noun.
package plural

import (
	"fmt"
	"strings"
)

// Count returns a count with its noun: "1 file", "2 files", "3 proxies". The noun is singular, and
// its plural ends in s, or in ies after a consonant and y.
func Count(n int, noun string) string {
	switch stem, y := strings.CutSuffix(noun, "y"); {
	case n == 1:
	case y && !strings.ContainsAny(stem[max(len(stem)-1, 0):], "aeiou"):
		noun = stem + "ies"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Form returns one if n is 1, and otherwise many, a format with a %d for n.
func Form(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}
