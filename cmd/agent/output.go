package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/base/jsonpath"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// choice is a flag with the values that a command takes; [choice.check] runs before the command.
type choice struct {
	value  *string
	flag   string
	values []string
}

func (c *choice) String() string     { return *c.value }
func (c *choice) Set(s string) error { *c.value = s; return nil }
func (c *choice) Type() string       { return "string" }

func (c *choice) check() error {
	if !slices.Contains(c.values, *c.value) {
		near := ""
		if n := client.Nearest(*c.value, c.values); n != "" {
			near = "; did you mean " + n + "?"
		}
		return usagef("%s %q is not possible; one of %s%s", c.flag, *c.value, strings.Join(c.values, ", "), near)
	}
	return nil
}

// outputFormats are those that every command with -o takes, beside those of its own. Where a
// command has no table or no wide one, these are what it prints for people, and "text" is another
// name for that.
var outputFormats = []string{"table", "wide", "json", "yaml"}

// jsonPath is how the format begins that is a template; see [jsonpath.Template].
const jsonPath = "jsonpath="

// outputValue is the flag -o.
type outputValue struct {
	choice
	first string // what people get
}

// outputFlag adds -o with the formats of a command, the first by default, and returns where the
// format will stand: one of these, "json", "yaml" or a jsonpath.
func outputFlag(cmd *cobra.Command, formats ...string) *string {
	to := new(string)
	o := &outputValue{choice{to, "-o", formats}, formats[0]}
	*to = formats[0]
	shown := slices.Clone(outputFormats)
	for _, f := range formats {
		if !slices.Contains(shown, f) && (f != "text" || slices.Contains(formats, "table")) {
			shown = append(shown, f)
		}
	}
	cmd.Flags().VarP(o, "output", "o", "format: "+strings.Join(shown, ", ")+", "+jsonPath+"…")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(append(slices.Clone(shown), jsonPath),
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return to
}

// check puts the format of the command in the place of another name for it.
func (o *outputValue) check() error {
	switch f := *o.value; {
	case slices.Contains(o.values, f), f == "json", f == "yaml":
		return nil
	case f == "text", f == "table", f == "wide":
		*o.value = o.first
		if i := slices.IndexFunc(o.values, func(v string) bool { return v == "text" || v == "table" }); i >= 0 {
			*o.value = o.values[i]
		}
		return nil
	case strings.HasPrefix(f, jsonPath):
		if _, err := jsonpath.Parse(strings.TrimPrefix(f, jsonPath)); err != nil {
			return usagef("-o %s: %v; write it as kubectl takes it: -o 'jsonpath={.items[*].name}'", jsonPath, err)
		}
		return nil
	}
	shown := slices.Clone(outputFormats)
	for _, v := range o.values {
		if v != "text" && !slices.Contains(shown, v) {
			shown = append(shown, v)
		}
	}
	return usagef("-o %q is not possible; one of %s, %s…", *o.value, strings.Join(shown, ", "), jsonPath)
}

// isDocument says whether a format is one for programs.
func isDocument(format string) bool {
	return format == "json" || format == "yaml" || strings.HasPrefix(format, jsonPath)
}

func choiceFlag(cmd *cobra.Command, c *choice, name, short, usage string) {
	*c.value = c.values[0]
	cmd.Flags().VarP(c, name, short, usage+strings.Join(c.values, ", "))
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(c.values, cobra.ShellCompDirectiveNoFileComp))
}

// printed writes a document where the format is one for programs; else it reports false.
func (a *app) printed(format string, v any) (bool, error) {
	switch format {
	case "json":
		return true, printJSON(a.stdout, v)
	case "yaml":
		return true, printYAML(a.stdout, v)
	}
	if path, ok := strings.CutPrefix(format, jsonPath); ok {
		t, err := jsonpath.Parse(path)
		if err != nil {
			return true, err
		}
		return true, t.Print(a.stdout, v)
	}
	return false, nil
}

// show returns a function that prints an answer: as JSON or YAML, or in any other format by text.
// Where negative, which may be nil, says so, the exit code is that of a negative result.
func show[T any](a *app, format string, text func(T) error, negative func(T) bool) func(T, error) error {
	return func(v T, err error) error {
		if err != nil {
			return err
		}
		ok, err := a.printed(format, v)
		if !ok {
			err = text(v)
		}
		if err == nil && negative != nil && negative(v) {
			err = silent(exitNo)
		}
		return err
	}
}

// printStream writes documents as a stream of YAML.
func printStream(w io.Writer, docs []json.RawMessage) error {
	for i, doc := range docs {
		if i > 0 {
			printLine(w, "---")
		}
		if err := printYAML(w, doc); err != nil {
			return err
		}
	}
	return nil
}

// each returns what f makes of each item.
func each[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, x := range list {
		out[i] = f(x)
	}
	return out
}

// texts returns each item as fmt prints it.
func texts[T any](list []T) []string { return each(list, func(x T) string { return fmt.Sprint(x) }) }

// typeAndName names a resource as commands take it.
func typeAndName(typ, name string) string { return strings.ToLower(typ) + "/" + name }

// printJSON writes a document of the API, indented.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(verbatim(w))
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printYAML writes the same document as YAML, its fields in the same order.
func printYAML(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(escaped(b), &n); err != nil { // JSON is YAML, but for control characters that it may have
		return err
	}
	block(&n)
	enc := yaml.NewEncoder(textWriter{w: verbatim(w)})
	enc.SetIndent(2)
	if err := enc.Encode(&n); err != nil {
		return err
	}
	return enc.Close()
}

// block takes the style of JSON off a document. Texts that readers of YAML 1.1, such as those of
// Kubernetes, take for booleans keep their quotes, and so do those that [textWriter] escapes:
// between quotes, its escapes are those of YAML.
func block(n *yaml.Node) {
	n.Style = 0
	switch strings.ToLower(n.Value) {
	case "y", "yes", "on", "n", "no", "off":
		n.Style = yaml.DoubleQuotedStyle
	}
	if string(escaped([]byte(n.Value))) != n.Value {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		block(c)
	}
}

// table writes rows below capital headers.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, headers ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)}
	t.row(headers...)
	return t
}

// row writes one line; empty cells become "-".
func (t *table) row(cells ...string) {
	for i, c := range cells {
		if c == "" {
			c = "-"
		}
		if i > 0 {
			printf(t, "\t")
		}
		printf(t, "%s", c)
	}
	printLine(t)
}

// age is the time since t in its largest unit: 45s, 3m, 5h, 12d.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := max(time.Since(t), 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
