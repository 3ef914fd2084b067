package text

import (
	"encoding/json"
	"io"
	"strings"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
)

// Table writes rows below capital headers.
type Table struct{ w *tabwriter.Writer }

// NewTable returns a table with these headers; without any, it has no line for them.
func NewTable(w io.Writer, headers ...string) *Table { return NewTableOf(w, 0, headers...) }

// NewTableOf is [NewTable] with columns of a least width, for rows that come one by one.
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

// Flush writes the table. An error is kept by the writer; see [CheckedWriter].
func (t *Table) Flush() { _ = t.w.Flush() }

// Rows writes a table with a row for each item of a list.
func Rows[T any](w io.Writer, list []T, row func(T) []string, headers ...string) {
	t := NewTable(w, headers...)
	for _, x := range list {
		t.Row(row(x)...)
	}
	t.Flush()
}

// YAMLStream writes documents as a stream of YAML.
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

// JSON writes a document of the API, indented.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(Verbatim(w))
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// YAML writes the same document as YAML, its fields in the same order.
func YAML(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(escaped(b), &n); err != nil { // JSON is YAML, but for control characters that it may have
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
