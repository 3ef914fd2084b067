package remedytest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// removals lists the remedies of the module that suggest to remove something.
const removals = "testdata/removals.txt"

const root = "../../.."

var (
	removal = regexp.MustCompile(`(^|[;:,(]|\bor|\band) (remove|omit|delete|drop|leave out) `)
	widens  = regexp.MustCompile(`(remove|omit|delete|drop|leave out) [^;:,]* to (apply|reach|select|allow|permit|let)\b`)
)

// TestRemovals compares the remedies in the sources that suggest to remove something with the list.
// A person checked each listed one: following it must not widen who may connect, who may write, or
// what may leave. No remedy may say that a removal makes a policy apply to more.
func TestRemovals(t *testing.T) {
	found := map[string]bool{}
	for _, folder := range []string{"accesslog", "agent", "cmd", "dns", "gossip", "rotation"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, text := range texts(t, path) {
				if widens.MatchString(text) {
					t.Errorf("%s: %q suggests to widen something", path, text)
				}
				if removal.MatchString(text) {
					found[strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), root+"/")+": "+text] = true
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var list []string
	for line := range found {
		list = append(list, line)
	}
	slices.Sort(list)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(removals, []byte(strings.Join(list, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(removals)
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range list {
		if !slices.Contains(known, line) {
			t.Errorf("a remedy is not in %s: check that following it widens nothing, and add it with UPDATE_GOLDEN=1:\n%s",
				removals, line)
		}
	}
	for _, line := range known {
		if !found[line] {
			t.Errorf("%s has a remedy that is not in the sources; remove it with UPDATE_GOLDEN=1:\n%s", removals, line)
		}
	}
}

// texts returns the string literals of a file. Literals that are joined by + are one text.
func texts(t *testing.T, path string) (out []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if text := joined(n); text != "" {
				out = append(out, text)
				return false
			}
		case *ast.BasicLit:
			if text := joined(n); text != "" {
				out = append(out, text)
			}
		}
		return true
	})
	return out
}

// joined returns the text of a literal or of literals that are joined by +. Other operands count as
// a %s.
func joined(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value) // the parser accepted it
			return strings.Join(strings.Fields(text), " ")
		}
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return ""
		}
		x, y := joined(e.X), joined(e.Y)
		if x == "" && y == "" {
			return ""
		}
		return strings.TrimSpace(or(x) + " " + or(y))
	}
	return ""
}

func or(text string) string {
	if text == "" {
		return "%s"
	}
	return text
}
