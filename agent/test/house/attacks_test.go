package house

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	securityPage  = "docs/security.md"
	attacksBegin  = "## Attacks as tests"
	attackDefault = "agent/test/trusttest TestAttacksOnEnforcingPool"
)

// attackSpan matches a test in the list of attacks: the package, the function, and the case, or the
// case after an ellipsis.
var attackSpan = regexp.MustCompile("`(?:([a-z/]+) (Test\\w+)|\u2026)(?:/([^`]+))?`")

// missingAttacks lists tests in the list of attacks of a page that do not exist, and the number of
// tests there.
func missingAttacks(fsys fs.FS, page string) (missing []string, total int) {
	_, list, _ := strings.Cut(page, attacksBegin)
	sources := map[string]string{}
	of := func(pkg string) string {
		if text, ok := sources[pkg]; ok {
			return text
		}
		files, _ := fs.Glob(fsys, path.Join(pkg, "*_test.go"))
		text := ""
		for _, f := range files {
			b, _ := fs.ReadFile(fsys, f)
			text += string(b)
		}
		sources[pkg] = text
		return text
	}
	for _, m := range attackSpan.FindAllStringSubmatch(list, -1) {
		pkg, function, name := m[1], m[2], m[3]
		if function == "" && name == "" {
			continue // the explanation of the ellipsis
		}
		if function == "" {
			pkg, function, _ = strings.Cut(attackDefault, " ")
		}
		total++
		text := of(pkg)
		if !strings.Contains(text, "\nfunc "+function+"(") || name != "" && !strings.Contains(text, strconv.Quote(name)) {
			missing = append(missing, m[0])
		}
	}
	return missing, total
}

// TestAttacksExist checks that each test in the list of attacks in docs/security.md exists.
func TestAttacksExist(t *testing.T) {
	page, err := os.ReadFile(path.Join(root, securityPage))
	if err != nil {
		t.Fatal(err)
	}
	missing, total := missingAttacks(os.DirFS(root), string(page))
	for _, m := range missing {
		t.Errorf("%s: there is no test %s: correct its package, function, or case", securityPage, m)
	}
	if total < 40 {
		t.Errorf("%s lists only %d tests under %q", securityPage, total, attacksBegin)
	}
}

// TestMissingAttacks checks that a function or a case that does not exist is found.
func TestMissingAttacks(t *testing.T) {
	fsys := archiveFS(t, "-- agent/a_test.go --\npackage a\n\nfunc TestA(t *testing.T) { x := \"case one\" }\n")
	missing, total := missingAttacks(fsys, "`agent TestGone`\n"+attacksBegin+"\n`agent TestA`, `agent TestA/case one`, "+
		"`agent TestA/case two`, `agent TestB`, `dns TestA`, `\u2026/case one`, `\u2026`\n")
	if total != 6 || strings.Join(missing, " ") != "`agent TestA/case two` `agent TestB` `dns TestA` `\u2026/case one`" {
		t.Errorf("%d tests, missing %q", total, missing)
	}
}
