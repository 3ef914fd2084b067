package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
	"testing"
	"unicode/utf8"
)

// Limits of files, lines, and packages. The lines of a package are those of its product files.
const (
	maxLines        = 400  // lines of a file
	maxColumns      = 120  // columns of a code line; a tab counts as one
	maxComment      = 100  // columns of a comment line
	maxPackageFiles = 40   // files of a package, without tests
	maxPackageLines = 5000 // lines of a package, without tests
)

// ruleLength limits the length of files, including tests.
func ruleLength(t *tree) []breach {
	var out []breach
	t.each(func(_ *pkg, f *file) {
		if f.lines > maxLines {
			out = append(out, breach{f.name, fmt.Sprintf("%d lines, at most %d are allowed: find the second idea in the "+
				"file and give it a file", f.lines, maxLines)})
		}
	})
	return out
}

// ruleColumns limits the length of lines. Struct tags, imports, and lines in raw strings are
// exempt.
func ruleColumns(t *tree) []breach {
	var out []breach
	t.each(func(_ *pkg, f *file) {
		exempt := exemptLines(f)
		n := 0
		for line := range strings.Lines(string(f.src)) {
			n++
			line = strings.TrimSuffix(line, "\n")
			limit := maxColumns
			if strings.HasPrefix(strings.TrimSpace(line), "// ") {
				limit = maxComment
			}
			if w := utf8.RuneCountInString(line); w > limit && !exempt[n] && !unbreakable(line, limit) {
				out = append(out, breach{fmt.Sprintf("%s:%d", f.name, n),
					fmt.Sprintf("%d columns, at most %d are allowed: break the line", w, limit)})
			}
		}
	})
	return out
}

// exemptLines returns the lines of a file that contain a struct tag or are inside a raw string.
func exemptLines(f *file) map[int]bool {
	out := map[int]bool{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ImportSpec); ok {
			out[f.fset.Position(spec.Pos()).Line] = true
		}
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || !strings.HasPrefix(lit.Value, "`") {
			return true
		}
		for l := f.fset.Position(lit.Pos()).Line; l <= f.fset.Position(lit.End()).Line; l++ {
			out[l] = true
		}
		return true
	})
	return out
}

// unbreakable reports whether a comment contains no space to break it at, for example a long link.
func unbreakable(line string, limit int) bool {
	text := strings.TrimSpace(line)
	if !strings.HasPrefix(text, "//") {
		return false
	}
	_, text, _ = strings.Cut(text, " ")
	return !strings.Contains(strings.TrimSpace(text), " ") || strings.HasPrefix(line, "//go:")
}

// ruleSize limits the size of packages.
func ruleSize(t *tree) []breach {
	var out []breach
	for _, p := range t.pkgs {
		files, lines := 0, 0
		for _, f := range p.files {
			if !f.test {
				files, lines = files+1, lines+f.lines
			}
		}
		if files > maxPackageFiles || lines > maxPackageLines {
			out = append(out, breach{p.dir, fmt.Sprintf("%d files with %d lines, at most %d with %d are allowed: "+
				"find the second subject of the package and give it a package",
				files, lines, maxPackageFiles, maxPackageLines)})
		}
	}
	return out
}

// TestSizeOfLines checks that the lines of a package count, except those of its tests.
func TestSizeOfLines(t *testing.T) {
	of := func(lines int, test bool) *tree {
		return &tree{pkgs: []*pkg{{dir: "gossip", files: []*file{{lines: maxPackageLines}, {lines: lines, test: test}}}}}
	}
	if got := ruleSize(of(1, false)); len(got) != 1 {
		t.Errorf("one line too many: %v", got)
	}
	if got := ruleSize(of(1, true)); len(got) != 0 {
		t.Errorf("lines of a test count: %v", got)
	}
}
