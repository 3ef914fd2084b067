package text

import (
	"encoding/json"
	"io"
	"strings"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
)

// Table writes aligned rows.
type Table struct{ w *tabwriter.Writer }

// NewTable returns a table. Without headers, it has no header line.
func NewTable(w io.Writer, headers ...string) *Table { return NewTableOf(w, 0, headers...) }

// NewTableOf is [NewTable] with a minimum column width, for rows that are flushed one by one.
func NewTableOf(w io.Writer, least int, headers ...string) *Table {
	t := &Table{tabwriter.NewWriter(w, least, 8, 3, ' ', 0)}
	if len(headers) > 0 {
		t.Row(headers...)
	}
	return t
}

// Row writes one line; empty cells become "-".
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		if c == "" {
			c = "-"
		}
		if i > 0 {
			Printf(t.w, "\t")
		}
		Printf(t.w, "%s", c)
	}
	Println(t.w)
}

// Flush writes the table. [CheckedWriter] records errors.
func (t *Table) Flush() { _ = t.w.Flush() }

// Rows writes a table with one row per item.
func Rows[T any](w io.Writer, list []T, row func(T) []string, headers ...string) {
	t := NewTable(w, headers...)
	for _, x := range list {
		t.Row(row(x)...)
	}
	t.Flush()
}

// YAMLStream writes documents as a YAML stream.
func YAMLStream(w io.Writer, docs []json.RawMessage) error {
	for i, doc := range docs {
		if i > 0 {
			Println(w, "---")
		}
		if err := YAML(w, doc); err != nil {
			return err
		}
	}
	return nil
}

// JSON writes an indented document.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(Verbatim(w))
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// YAML writes a document as YAML, with its fields in the order of the JSON form.
func YAML(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var n yaml.Node
	// JSON is YAML, except for unescaped control characters
	if err := yaml.Unmarshal(escaped(b), &n); err != nil {
		return err
	}
	block(&n)
	enc := yaml.NewEncoder(Writer{W: Verbatim(w)})
	enc.SetIndent(2)
	if err := enc.Encode(&n); err != nil {
		return err
	}
	return enc.Close()
}

// block removes the JSON style from a document. Two kinds of text keep their quotes: those that
// YAML 1.1 readers such as Kubernetes parse as booleans, and those that [Writer] escapes, because
// its escapes are YAML escapes inside quotes.
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
