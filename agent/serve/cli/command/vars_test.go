package command_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// filled returns a file with the values of --var.
func filled(t testing.TB, content string, vars ...string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var f command.FileFlags
	cmd := &cobra.Command{}
	f.Add(cmd, "")
	args := []string{"-f", path}
	for _, v := range vars {
		args = append(args, "--var="+v)
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	texts, err := f.Read(nil)
	if err != nil {
		return "", err
	}
	return string(texts[0].Data), nil
}

func TestVariables(t *testing.T) {
	for _, c := range []struct {
		content, value string
		want           string // "": the value is refused
	}{
		{"port: {{ x }}\n", "80", "port: 80\n"},
		{"a: {{x}}-{{ x }}\n", "b", "a: b-b\n"},
		{"{{ x }}: 1\n", "k", "k: 1\n"},
		{"a: \"{{ x }}\"\n", "b: c # d", "a: \"b: c # d\"\n"},
		{"a: '{{ x }}'\n", "[b]", "a: '[b]'\n"},
		{"a: |\n  {{ x }}\n  c\n", "b: d", "a: |\n  b: d\n  c\n"},
		{"t: '{{ .Name }}.{{ x }} {{ label \"k\" }}'\n", "m", "t: '{{ .Name }}.m {{ label \"k\" }}'\n"},
		{"# {{ x }}\na: 1\n", "b", "# b\na: 1\n"},
		{"a: 1\n---\nb: {{ x }}\n", "2", "a: 1\n---\nb: 2\n"},
		{"a: {{ x }}\n", "", "a: \n"},
		{"varq0q: {{ x }}\n", "1", "varq0q: 1\n"},
		{"a: http://{{ x }}\n", "h:80/p?q=1&r=2", "a: http://h:80/p?q=1&r=2\n"},

		{"a: {{ x }}\n", "b: c", ""},
		{"a: {{ x }}\n", "b\nc: d", ""},
		{"a: {{ x }}\n", "b\n---\nc: d", ""},
		{"a: {{ x }}\n", "[b]", ""},
		{"a: {{ x }}\n", "{b: c}", ""},
		{"a: {{ x }}\n", "b # c", ""},
		{"a: {{ x }}\n", "*b", ""},
		{"a: {{ x }}\n", "&b c", ""},
		{"a: {{ x }}\n", "!!binary c", ""},
		{"a: {{ x }}\n", " b", ""},
		{"a: {{ x }}\n", `"b"`, ""},
		{"a: \"{{ x }}\"\n", `b", "c`, ""},
		{"a: \"{{ x }}\"\n", `b\n`, ""},
		{"a: '{{ x }}'\n", "b'c", ""},
		{"# {{ x }}\na: 1\n", "b\nc: 1", ""},
		{"a: [{{ x }}\n", "b]", ""},
		{"a: [{{ x }}]\n", "b, c", ""},
		{"a: {b: {{ x }}}\n", "c, d: e", ""},
		{"a: |\n  {{ x }}\n", "b\nc: d", ""},
	} {
		got, err := filled(t, c.content, "x="+c.value)
		switch {
		case c.want == "" && (err == nil || command.ExitCode(err) != command.ExitInvalid ||
			!strings.Contains(err.Error(), "is read as YAML, and not as text")):
			t.Errorf("%q with %q: %v: %q", c.content, c.value, err, got)
		case c.want != "" && (err != nil || got != c.want):
			t.Errorf("%q with %q: %v: %q, want %q", c.content, c.value, err, got, c.want)
		}
	}
	// Without variables, a file is not changed, whatever it contains.
	for _, s := range []string{"a: '{{ x }}'\r\n", "{{", "\xff{{ x }}"} {
		if got, err := filled(t, s); err != nil || got != s {
			t.Errorf("%q without variables: %v: %q", s, err, got)
		}
	}
	for _, c := range []struct {
		content, says string
		code          int
		vars          []string
	}{
		{"a: 1\nb: {{ port }}\n", `a.yaml:2: the variable "port" has no value; give it with --var port=VALUE`, 65,
			[]string{"x=1"}},
		{"a: {{ x }}\n", "--var y: no file has {{ y }}", 64, []string{"x=1", "y=1"}},
		{"a: {{ x }}\n", "--var x is given twice", 64, []string{"x=1", "x=2"}},
		{"a: {{ x }}\n", `--var "x" is invalid; give NAME=VALUE`, 64, []string{"x"}},
		{"a: {{ x }}\n", `--var "=1" is invalid; give NAME=VALUE`, 64, []string{"=1"}},
		{"a: {{ x }}\n", "at most 4096 are allowed", 64, []string{"x=" + strings.Repeat("y", 5000)}},
	} {
		if _, err := filled(t, c.content, c.vars...); err == nil || !strings.Contains(err.Error(), c.says) ||
			command.ExitCode(err) != c.code {
			t.Errorf("%q with %.40q: %v, want %q", c.content, c.vars, err, c.says)
		}
	}
}

// nodes returns the kinds of all nodes of a YAML stream, or "" if it is not valid.
func nodes(content string) string {
	var b strings.Builder
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		b.WriteByte(byte('0' + n.Kind))
		for _, c := range n.Content {
			walk(c)
		}
		b.WriteByte('.')
	}
	for d := yaml.NewDecoder(strings.NewReader(content)); ; {
		var n yaml.Node
		switch err := d.Decode(&n); {
		case errors.Is(err, io.EOF):
			return b.String()
		case err != nil:
			return ""
		}
		walk(&n)
	}
}

// FuzzVariables checks that a value that is accepted adds no nodes: a word in its place gives the
// same ones.
func FuzzVariables(f *testing.F) {
	f.Add("a: {{ x }}\n", "b")
	f.Add("a: [{{ x }}]\n", "b, c")
	f.Add("a: \"{{ x }}\"\n---\nb: '{{ x }}'", "\\")
	f.Fuzz(func(t *testing.T, content, value string) {
		got, err := filled(t, content, "x="+value)
		if err != nil || nodes(got) == "" {
			return
		}
		if word, err := filled(t, content, "x=word"); err == nil && nodes(got) != nodes(word) {
			t.Errorf("%q with %q: %q", content, value, got)
		}
	})
}
