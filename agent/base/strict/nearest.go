package strict

import (
	"slices"
	"strings"
)

// Nearest returns the known name that is most similar to a misspelled one, or that has the same
// words in another order ("matchAppend" for "appendMatch"); "" if none is similar.
func Nearest(name string, names []string) string {
	if len(name) > 64 {
		return ""
	}
	best, bestDist := "", 1+max(1, len(name)/3)
	for _, n := range names {
		if d := editDistance(strings.ToLower(name), strings.ToLower(n)); d < bestDist {
			best, bestDist = n, d
		}
	}
	if words := wordsOf(name); best == "" && len(words) > 1 {
		if i := slices.IndexFunc(names, func(n string) bool { return slices.Equal(wordsOf(n), words) }); i >= 0 {
			best = names[i]
		}
	}
	return best
}

// wordsOf returns the sorted words of a name in camel case, in lower case.
func wordsOf(name string) []string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	words := strings.FieldsFunc(strings.ToLower(b.String()), func(r rune) bool { return strings.ContainsRune(" -_.", r) })
	slices.Sort(words)
	return words
}

// editDistance returns the number of insertions, deletions, substitutions, and swaps of neighbors
// between two names (optimal string alignment).
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := last[j-1]
			if a[i-1] != b[j-1] {
				cost++
			}
			row[j] = min(cost, row[j-1]+1, last[j]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
