package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
)

var (
	// variable matches {{ NAME }}. A template of a HostnameGenerator has a dot before the name or more
	// than one word, so it stays.
	variable = regexp.MustCompile(`\{\{[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*\}\}`)
	varName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// maxVar bounds the value of a variable, in bytes.
const maxVar = 4096

// variables are the values of --var, and which of them occur in a file.
type variables struct {
	assigned []string
	used     map[string]bool
}

// values parses the flags.
func (v *variables) values() (map[string]string, error) {
	out := map[string]string{}
	for _, s := range v.assigned {
		name, value, ok := strings.Cut(s, "=")
		switch _, twice := out[name]; {
		case !ok || !varName.MatchString(name):
			return nil, Usagef("--var %.64q is invalid; give NAME=VALUE, where NAME has letters, digits, and _", s)
		case twice:
			return nil, Usagef("--var %s is given twice", name)
		case len(value) > maxVar:
			return nil, Usagef("--var %s: the value has %d bytes; at most %d are allowed", name, len(value), maxVar)
		}
		out[name] = value
	}
	return out, nil
}

// fill replaces {{ NAME }} in files. Without --var, files are not changed.
func (v *variables) fill(texts []offline.Text) error {
	values, err := v.values()
	if err != nil || len(values) == 0 {
		return err
	}
	if v.used == nil {
		v.used = map[string]bool{}
	}
	for i := range texts {
		if texts[i].Data, err = v.fillOne(texts[i].Data, values); err != nil {
			return Exit(ExitInvalid, fmt.Errorf("%s:%w", texts[i].Name, err))
		}
	}
	return nil
}

// unused returns an error for a variable that no file has.
func (v *variables) unused() error {
	values, err := v.values()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !v.used[name] {
			return Usagef("--var %s: no file has {{ %s }}; correct the name", name, name)
		}
	}
	return nil
}

// fillOne replaces the variables of one file. A value may only become text of the scalars that name
// its variable: it must not add fields, end a scalar, or be read as a quote, a comment, or an
// escape. The error begins with the line.
func (v *variables) fillOne(content []byte, values map[string]string) ([]byte, error) {
	for _, at := range variable.FindAllSubmatchIndex(content, -1) {
		name := string(content[at[2]:at[3]])
		if _, ok := values[name]; !ok {
			return nil, fmt.Errorf("%d: the variable %q has no value; give it with --var %s=VALUE",
				1+bytes.Count(content[:at[0]], []byte("\n")), name, name)
		}
		v.used[name] = true
	}
	marks, fill := placeholders(content, values)
	filled := replace(content, values)
	want, wantErr := documents(replace(content, marks))
	got, gotErr := documents(filled)
	switch {
	case wantErr != nil && gotErr != nil:
		return filled, nil // the decoder reports the fault
	case wantErr != nil || gotErr != nil || len(want) != len(got):
		return nil, errors.New(changes(1, "a variable", nil))
	}
	for i := range want {
		if n := differs(want[i], got[i], fill); n != nil {
			return nil, errors.New(changes(n.Line, "its variable", n))
		}
	}
	return filled, nil
}

// changes returns the error for a value that is more than text.
func changes(line int, what string, n *yaml.Node) string {
	at := ""
	if n != nil && n.Kind == yaml.ScalarNode {
		at = fmt.Sprintf(" in %.64q", n.Value)
	}
	return fmt.Sprintf("%d: the value of %s%s is read as YAML, and not as text; write quotes around {{ NAME }} in the "+
		"file, or give a value without quotes, backslashes, and line breaks", line, what, at)
}

// placeholders returns a word for each variable that occurs nowhere in the content, and a replacer
// from the words to the values.
func placeholders(content []byte, values map[string]string) (map[string]string, *strings.Replacer) {
	prefix := "var"
	for bytes.Contains(content, []byte(prefix)) {
		prefix += "x"
	}
	marks := map[string]string{}
	var pairs []string
	for i, name := range slices.Sorted(maps.Keys(values)) {
		marks[name] = fmt.Sprintf("%sq%dq", prefix, i)
		pairs = append(pairs, marks[name], values[name])
	}
	return marks, strings.NewReplacer(pairs...)
}

func replace(content []byte, values map[string]string) []byte {
	return variable.ReplaceAllFunc(content, func(match []byte) []byte {
		return []byte(values[string(variable.FindSubmatch(match)[1])])
	})
}

// documents parses a YAML stream.
func documents(content []byte) (out []*yaml.Node, err error) {
	d := yaml.NewDecoder(bytes.NewReader(content))
	for {
		n := &yaml.Node{}
		switch err := d.Decode(n); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		out = append(out, n)
	}
}

// differs returns the first node of want that got does not have with the values in its text.
func differs(want, got *yaml.Node, fill *strings.Replacer) *yaml.Node {
	if want.Kind != got.Kind || len(want.Content) != len(got.Content) || want.Anchor != got.Anchor ||
		fill.Replace(want.Value) != got.Value || (want.Style^got.Style)&yaml.TaggedStyle != 0 {
		return got
	}
	for i := range want.Content {
		if n := differs(want.Content[i], got.Content[i], fill); n != nil {
			return n
		}
	}
	return nil
}
