package main

import (
	"errors"
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

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// hinted finds command lines in the text of a message, up to the next punctuation.
var hinted = regexp.MustCompile(`\bnearside ([a-z][a-z-]*[^;,:&|()"'` + "`" + `\n]*)`)

// texts returns the string literals of a file, with those that + joins as one.
func texts(file *ast.File) (out []string) {
	var value func(e ast.Expr) (string, bool)
	value = func(e ast.Expr) (string, bool) {
		switch e := e.(type) {
		case *ast.BasicLit:
			s, err := strconv.Unquote(e.Value)
			return s, err == nil && e.Kind == token.STRING
		case *ast.BinaryExpr:
			x, ok := value(e.X)
			y, also := value(e.Y)
			if !ok {
				x = "NAME"
			}
			if !also {
				y = "NAME"
			}
			return x + y, ok || also
		}
		return "", false
	}
	ast.Inspect(file, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		s, ok := value(e)
		if ok {
			out = append(out, s)
		}
		return !ok
	})
	return out
}

// suggested checks a command line in a message: the command, its subcommand, and its flags. Words
// after it may be prose. A sentence about nearside names no command.
func suggested(root *cobra.Command, line string) (found bool, err error) {
	words := strings.Fields(line)
	find := func(in *cobra.Command, word string) *cobra.Command {
		i := slices.IndexFunc(in.Commands(), func(c *cobra.Command) bool { return c.Name() == strings.TrimRight(word, ".") })
		if i < 0 {
			return nil
		}
		return in.Commands()[i]
	}
	cmd := find(root, words[0])
	if cmd == nil {
		return false, nil
	}
	for _, w := range words[1:] {
		name, isFlag := strings.CutPrefix(w, "--")
		name, _, _ = strings.Cut(strings.TrimRight(name, "."), "=")
		sub := find(cmd, w)
		switch {
		case sub != nil:
			cmd = sub
		case w == "NAME" && cmd.HasSubCommands():
			return true, nil // one of several subcommands
		case isFlag && name != "help" && cmd.Flags().Lookup(name) == nil && root.PersistentFlags().Lookup(name) == nil:
			return true, errors.New("it has no flag --" + name)
		}
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if len(words) > 1 && len(names) > 0 {
		if near := strict.Nearest(words[1], names); near != "" && words[1] != near+"s" { // others are prose
			return true, errors.New("it has no subcommand " + words[1])
		}
	}
	return true, nil
}

// TestSuggestedCommands checks every command line that a message of the program suggests.
func TestSuggestedCommands(t *testing.T) {
	root := cli.Root(&command.Env{})
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"testdata", "test", "dist", "bin"}, d.Name()) ||
			strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, s := range texts(file) {
			for _, m := range hinted.FindAllStringSubmatch(s, -1) {
				is, err := suggested(root, m[1])
				if is {
					found++
				}
				if err != nil {
					t.Errorf("%s: nearside %s: %v", path, m[1], err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 300 {
		t.Errorf("only %d commands were found in messages: has their form changed?", found)
	}
	for _, c := range api.ProblemClasses {
		if strings.HasPrefix(c.Command, "nearside ") {
			if err := accepts(c.Command); err != nil {
				t.Errorf("%s: %s: %v", c.Name, c.Command, err)
			}
		}
	}
	for line, wrong := range map[string]bool{"get TYPE lists": false, "wait dp/web --for=gone": false,
		"get TYPE --colour": true, "inspect dataplan web": true, "serves xDS": false, "trust shew": true} {
		if _, err := suggested(root, line); (err != nil) != wrong {
			t.Errorf("nearside %s: %v", line, err)
		}
	}
}
