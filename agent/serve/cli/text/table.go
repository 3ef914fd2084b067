package text

import (
	"io"
	"text/tabwriter"
)

// Table writes rows below capital headers.
type Table struct{ *tabwriter.Writer }

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
			Printf(t, "\t")
		}
		Printf(t, "%s", c)
	}
	Println(t)
}
