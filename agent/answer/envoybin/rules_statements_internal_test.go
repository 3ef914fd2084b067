package envoybin

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// statement is a statement of the check that reports that Envoy would reject a resource.
type statement struct {
	at      string
	rule    int // -1: a variable
	newer   bool
	pointer []string // parts of the pointers of its findings
	message *regexp.Regexp
	format  string
}

func (s *statement) String() string { return fmt.Sprintf("%s, rule %d: %s", s.at, s.rule, s.format) }

// reports reports whether the statement can be the one of a finding.
func (s *statement) reports(f finding.Finding) bool {
	for _, field := range s.pointer {
		if !strings.Contains(f.Pointer, field) {
			return false
		}
	}
	return (s.rule < 0 || s.rule == f.Rule) && s.message.MatchString(f.Message)
}

var verb = regexp.MustCompile(`%[a-z]`)

// statements returns the statements of the rules.
func statements(t *testing.T) []*statement {
	files, err := filepath.Glob("../../compute/check/rules_*.go")
	if err != nil || len(files) == 0 {
		t.Fatal("no rules:", err)
	}
	var out []*statement
	for _, file := range files {
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			f, is := call.Fun.(*ast.SelectorExpr)
			if !is {
				return true
			}
			for i, arg := range call.Args {
				if x, is := arg.(*ast.SelectorExpr); !is || x.Sel.Name != "Reject" {
					continue
				}
				s := &statement{rule: -1, newer: f.Sel.Name == "reportNewer",
					at: fmt.Sprintf("%s:%d", filepath.Base(file), set.Position(call.Pos()).Line)}
				if x, is := call.Args[i-1].(*ast.BasicLit); is {
					s.rule, _ = strconv.Atoi(x.Value)
				}
				text, pointer := i+2, i+1
				if f.Sel.Name == "refer" {
					text, pointer = i+1, i-2
				}
				if s.format = strings.Join(literals(call.Args[text]), ""); s.format == "" {
					s.format = "%v"
				}
				s.pointer = literals(call.Args[pointer])
				s.message = regexp.MustCompile(verb.ReplaceAllString(regexp.QuoteMeta(s.format), ".*") + "$")
				out = append(out, s)
			}
			return true
		})
	}
	return out
}

// literals returns the texts in an expression.
func literals(x ast.Expr) (out []string) {
	ast.Inspect(x, func(n ast.Node) bool {
		if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil {
				out = append(out, text)
			}
		}
		return true
	})
	return out
}
