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
)

// outputFlag adds -o with the formats that a command has; the first is the default. The returned function checks the
// value.
func outputFlag(cmd *cobra.Command, formats ...string) func() (string, error) {
	var value string
	cmd.Flags().StringVarP(&value, "output", "o", formats[0], "format: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return func() (string, error) {
		if !slices.Contains(formats, value) {
			return "", usagef("-o %q is not possible; one of %s", value, strings.Join(formats, ", "))
		}
		return value, nil
	}
}

// printJSON writes a document of the API, indented.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
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
	if err := yaml.Unmarshal(b, &n); err != nil { // JSON is YAML
		return err
	}
	block(&n)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&n); err != nil {
		return err
	}
	return enc.Close()
}

// block takes the style of JSON off a document. Texts that readers of YAML 1.1, such as those of Kubernetes, take for
// booleans keep their quotes.
func block(n *yaml.Node) {
	n.Style = 0
	switch strings.ToLower(n.Value) {
	case "y", "yes", "on", "n", "no", "off":
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		block(c)
	}
}

// table writes rows below capital headers.
type table struct {
	w *tabwriter.Writer
}

func newTable(w io.Writer, headers ...string) *table {
	t := &table{w: tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)}
	t.row(headers...)
	return t
}

// row writes one line; empty cells become "-", and what would break the table is quoted.
func (t *table) row(cells ...string) {
	for i, c := range cells {
		if strings.ContainsFunc(c, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			c = fmt.Sprintf("%q", c)
		}
		if c == "" {
			c = "-"
		}
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		fmt.Fprint(t.w, c)
	}
	fmt.Fprintln(t.w)
}

func (t *table) flush() error { return t.w.Flush() }

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

// yamlToJSON converts a document that this program has written.
func yamlToJSON(b []byte) (json.RawMessage, error) {
	var v map[string]any
	if err := yaml.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
