package cli

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// eachCommand calls fn with every visible command below root, root included.
func eachCommand(fn func(cmd *cobra.Command, path []string)) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		fn(cmd, strings.Fields(cmd.CommandPath())[1:])
		for _, c := range cmd.Commands() {
			if !c.Hidden && c.Name() != "help" {
				walk(c)
			}
		}
	}
	walk(Root(&command.Env{}))
}

// helpOf returns the help of a command on a terminal with some columns.
func helpOf(t *testing.T, path []string, columns int) string {
	t.Helper()
	var out, errs bytes.Buffer
	env := []string{fmt.Sprintf("COLUMNS=%d", columns)}
	if code := Main(command.Program{}, append(path, "--help"), nil, &out, &errs, env); code != command.ExitOK ||
		errs.Len() > 0 {
		t.Errorf("%v --help: exit code %d, %s", path, code, errs.String())
	}
	return out.String()
}

func TestHelpFitsTerminals(t *testing.T) {
	eachCommand(func(_ *cobra.Command, path []string) {
		for _, columns := range []int{80, 100} {
			for line := range strings.Lines(helpOf(t, path, columns)) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
					t.Errorf("%v --help at %d columns has a line of %d: %s", path, columns, n, line)
				}
			}
		}
		if wide := helpOf(t, path, 500); wide != helpOf(t, path, maxHelpWidth) {
			t.Errorf("%v --help exceeds %d columns on a wide terminal", path, maxHelpWidth)
		}
	})
}

func TestHelpGroupsCommands(t *testing.T) {
	root := Root(&command.Env{})
	for _, c := range root.Commands() {
		if c.GroupID == "" {
			t.Errorf("%s has no group", c.Name())
		}
	}
	for _, g := range commandGroups {
		for _, name := range strings.Fields(g.commands) {
			if c, _, err := root.Find([]string{name}); err != nil || c.GroupID != g.title {
				t.Errorf("group %q lists %s, which is no command: %v", g.title, name, err)
			}
		}
	}
	help := helpOf(t, nil, 100)
	for _, g := range commandGroups {
		if !strings.Contains(help, "\n"+g.title+"\n  ") {
			t.Errorf("the help has no group %q:\n%s", g.title, help)
		}
	}
}

// The help of -o lists its default among the formats.
func TestHelpListsDefaultFormat(t *testing.T) {
	eachCommand(func(cmd *cobra.Command, path []string) {
		f := cmd.Flags().Lookup("output")
		if f == nil {
			return
		}
		formats := strings.Split(strings.TrimPrefix(f.Usage, "format: "), ", ")
		if f.DefValue == "" || formats[0] != f.DefValue {
			t.Errorf("%v: -o has the default %q and lists %v", path, f.DefValue, formats)
		}
	})
}

func TestVersionNamesRelease(t *testing.T) {
	source, err := os.ReadFile("../../../cmd/agent/main.go")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^var version = "(.*)"$`).FindSubmatch(source)
	if m == nil {
		t.Fatal("cmd/agent/main.go does not declare the version in the form that the Makefile reads")
	}
	p := command.Program{Version: string(m[1])}
	for _, c := range []struct{ args, want string }{
		{"version", "nearside " + p.Version + " ("}, {"--version", p.Version},
		{"version -o json", `"version": "` + p.Version + `"`}, {"version -o json", `"go": "go1.`},
	} {
		var out, errs bytes.Buffer
		if code := Main(p, strings.Fields(c.args), nil, &out, &errs, nil); code != command.ExitOK ||
			!strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit code %d, want %q: %s%s", c.args, code, c.want, out.String(), errs.String())
		}
	}
	for file, pattern := range map[string]string{
		"CHANGELOG.md":                          `(?m)^## (\d\S*) - \d{4}-\d\d-\d\d$`,
		"packaging/kubernetes/chart/Chart.yaml": `(?m)^appVersion: (\S+)$`,
	} {
		text, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(pattern).FindSubmatch(text); m == nil || string(m[1]) != p.Version {
			t.Errorf("%s has the version %q, the program %s", file, m, p.Version)
		}
	}
}
