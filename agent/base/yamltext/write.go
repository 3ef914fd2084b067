package yamltext

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// change inserts text at an offset, and removes the text up to end.
type change struct {
	at, end int
	text    string
}

// writer collects the changes of a file.
type writer struct {
	*File
	changes  []change
	eol      string
	seqShift int // spaces by which lists are indented below their keys
	scalars  map[scalar]string
}

// Text returns the text with the edits. It parses its result: if the edits cannot be written so
// that the values of the documents are right, it returns a fault and no text.
func (f *File) Text() ([]byte, *strict.Fault) {
	w := writer{File: f, eol: "\n", scalars: map[scalar]string{}}
	if i := bytes.IndexByte(f.text, '\n'); i > 0 && f.text[i-1] == '\r' {
		w.eol = "\r\n"
	}
	var edited []int
	roots := maps.Clone(f.roots)
	if f.json != nil {
		roots[0] = f.json
	}
	for _, doc := range slices.Sorted(maps.Keys(roots)) {
		before := len(w.changes)
		w.seqShift = max(w.listIndent(roots[doc]), 0)
		w.collect(roots[doc], 0, false)
		if len(w.changes) > before {
			edited = append(edited, doc)
		}
	}
	if len(edited) == 0 {
		return f.text, nil
	}
	out := w.apply()
	return out, f.verify(out, roots, edited)
}

// apply returns the text with the changes.
func (w *writer) apply() []byte {
	slices.SortStableFunc(w.changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	size := len(w.text)
	for _, c := range w.changes {
		size += len(c.text)
	}
	out := make([]byte, 0, size)
	from := 0
	for _, c := range w.changes {
		out = append(append(out, w.text[from:c.at]...), c.text...)
		from = c.end
	}
	return append(out, w.text[from:]...)
}

// verify compares the values of a new text with the edited trees.
func (f *File) verify(text []byte, roots map[int]*Node, edited []int) *strict.Fault {
	after, fault := Parse(text)
	if fault == nil && after.Len() != f.Len() {
		fault = &strict.Fault{Reason: "the number of documents differs"}
	}
	for _, doc := range edited {
		if fault != nil {
			break
		}
		var root *Node
		if root, fault = after.Root(doc); fault == nil && !equal(roots[doc], root) {
			field, line := difference(roots[doc], root, "")
			return &strict.Fault{Field: field, Line: max(line, roots[doc].Line), Reason: "the insertion would also change " +
				"this value, which has an anchor or a form that cannot be edited: write it in block style, without anchors"}
		}
	}
	if fault != nil {
		return &strict.Fault{Line: roots[edited[0]].Line, Reason: "the form of this document cannot be edited (" +
			fault.Reason + "): write its metadata and spec in block style, without anchors"}
	}
	return nil
}

// difference returns the path and line of the first value that differs.
func difference(want, got *Node, path string) (string, int) {
	switch {
	case want.Kind != got.Kind || len(want.Items) != len(got.Items) || len(want.index()) != len(got.index()):
		return path, want.Line
	case want.Kind == Mapping:
		other := got.index()
		for _, k := range want.Keys {
			if v := other[k.Name]; v == nil || !equal(k.Value, v) {
				below := strings.TrimPrefix(path+"."+k.Name, ".")
				if v == nil {
					return below, max(k.Value.Line, want.Line)
				}
				field, line := difference(k.Value, v, below)
				return field, max(line, want.Line)
			}
		}
	}
	for i, it := range want.Items {
		if !equal(it, got.Items[i]) {
			field, line := difference(it, got.Items[i], fmt.Sprintf("%s[%d]", path, i))
			return field, max(line, want.Line)
		}
	}
	return path, want.Line
}

// listIndent returns by how much the first list of a tree is indented below its key, or -1 without
// a list.
func (w *writer) listIndent(n *Node) int {
	if n.flow || n.shared != "" || n.at < 0 {
		return -1
	}
	for _, k := range n.Keys {
		v := k.Value
		if k.at >= 0 && v.Kind == Sequence && v.tail != nil && !v.flow && v.shared == "" {
			return w.column(w.dash(v)) - w.column(k.at)
		}
		if shift := w.listIndent(v); shift >= 0 {
			return shift
		}
	}
	for _, it := range n.Items {
		if shift := w.listIndent(it); shift >= 0 {
			return shift
		}
	}
	return -1
}

// dash returns the offset of the first dash of a list in block style.
func (w *writer) dash(n *Node) int { return w.skipProperties(n.at) }

// collect collects the changes of n and the nodes below it. parent is the column of the collection
// that has n, and inFlow whether it is in flow style.
func (w *writer) collect(n *Node, parent int, inFlow bool) {
	if n.at < 0 || n.shared != "" {
		return
	}
	column := parent
	switch {
	case n.replaced:
		w.replace(n, inFlow)
		return
	case n.Kind == Scalar:
		return
	case n.bare:
		w.fill(n, parent)
		return
	case n.flow:
		column = w.lineIndent(n.at)
		w.insertFlow(n)
	case n.Kind == Mapping && n.first >= 0:
		column = w.column(n.first)
		w.insertKeys(n, column)
	case n.Kind == Sequence && n.tail != nil:
		at := w.dash(n)
		column = w.column(at)
		w.insertBlock(at, n.inserted())
		if after := n.appended(); len(after) > 0 {
			text := ""
			for _, v := range after {
				text += w.eol + strings.Repeat(" ", column) + w.entry("", v, column)
			}
			end := w.lineEnd(w.end(n.tail, column+1))
			w.changes = append(w.changes, change{end, end, text})
		}
	}
	for _, k := range n.Keys {
		if k.at >= 0 {
			w.collect(k.Value, column, n.flow)
		}
	}
	for _, it := range n.Items {
		w.collect(it, column, n.flow)
	}
}

// inserted returns the keys or items before the first one of the text.
func (n *Node) inserted() []Key {
	if n.Kind == Mapping {
		return n.Keys[:n.leading]
	}
	out := make([]Key, 0, n.leading)
	for _, it := range n.Items[:n.leading] {
		out = append(out, Key{Value: it})
	}
	return out
}

// appended returns the items after the last one of the text.
func (n *Node) appended() []*Node {
	first := len(n.Items)
	for first > n.leading && n.Items[first-1].at < 0 {
		first--
	}
	return n.Items[first:]
}

// insertBlock inserts entries before the first one of a block collection, and before the comments
// directly above it.
func (w *writer) insertBlock(at int, entries []Key) {
	if len(entries) == 0 {
		return
	}
	column := w.column(at)
	at = w.commentsAbove(at, column)
	text := ""
	for _, e := range entries {
		text += w.entry(e.Name, e.Value, column) + w.eol + strings.Repeat(" ", column)
	}
	w.changes = append(w.changes, change{at, at, text})
}

// insertKeys inserts the keys of a block mapping before its first one. If that one follows the dash
// of a list, and has its value in the same line, they are inserted after this line, which stays
// whole.
func (w *writer) insertKeys(n *Node, column int) {
	end := w.lineEnd(n.first)
	var first *Node
	if len(n.Keys) > n.leading && n.Keys[n.leading].at == n.first {
		first = n.Keys[n.leading].Value
	}
	if w.lineIndent(n.first) == column || first == nil || first.Kind != Scalar || first.bare || first.style == block ||
		first.at > end || w.end(first, column+1) > end {
		w.insertBlock(n.first, n.inserted())
		return
	}
	text := ""
	for _, e := range n.inserted() {
		text += w.eol + strings.Repeat(" ", column) + w.entry(e.Name, e.Value, column)
	}
	if text != "" {
		w.changes = append(w.changes, change{end, end, text})
	}
}

// commentsAbove returns the offset of the first comment of the lines directly above the entry at an
// offset, if they have the same column.
func (w *writer) commentsAbove(at, column int) int {
	for {
		start := w.lineStart(at)
		if len(bytes.TrimLeft(w.text[start:at], " ")) > 0 || start == w.lines[0] {
			return at
		}
		above := w.lineStart(start - 1)
		if spaces, blank := w.indent(above); blank || spaces != column || w.text[above+spaces] != '#' {
			return at
		}
		at = above + column
	}
}

// fill writes the entries of a mapping or list that has no text yet, on lines after its key.
func (w *writer) fill(n *Node, parent int) {
	column := parent + 2
	if n.Kind == Sequence {
		column = parent + w.seqShift
	}
	entries := n.Keys
	for _, it := range n.Items {
		entries = append(entries, Key{Value: it})
	}
	text := ""
	for _, e := range entries {
		text += w.eol + strings.Repeat(" ", column) + w.entry(e.Name, e.Value, column)
	}
	at := w.lineEnd(n.at)
	w.changes = append(w.changes, change{at, at, text})
}

// lineIndent returns the number of spaces at the start of the line of an offset.
func (w *writer) lineIndent(at int) int {
	spaces, _ := w.indent(w.lineStart(at))
	return spaces
}

// insertFlow inserts entries in flow style, as JSON. Entries are on lines of their own if the first
// one of the text is.
func (w *writer) insertFlow(n *Node) {
	open := w.skipProperties(n.at)
	if n.tail == nil {
		if entries := append(n.inserted(), asKeys(n.appended())...); len(entries) > 0 {
			indent := strings.Repeat(" ", w.lineIndent(open))
			if w.json == nil {
				indent += "  " // lines of YAML are indented below their key
			}
			w.changes = append(w.changes, change{open + 1, open + 1, w.flow(entries, ", ", indent, !w.oneLine())})
		}
		return
	}
	first := n.first
	if n.Kind == Sequence {
		first = n.Items[n.leading].at
	}
	before := w.text[w.lineStart(first):first]
	ownLine := len(bytes.TrimLeft(before, " \t")) == 0
	separator := ", "
	if ownLine {
		separator = "," + w.eol + string(before)
	}
	if entries := n.inserted(); len(entries) > 0 {
		w.changes = append(w.changes, change{first, first, w.flow(entries, separator, string(before), ownLine) + separator})
	}
	if after := n.appended(); len(after) > 0 {
		at := w.flowEnd(w.skipProperties(n.tail.at))
		w.changes = append(w.changes, change{at, at, separator + w.flow(asKeys(after), separator, string(before), ownLine)})
	}
}

func asKeys(items []*Node) []Key {
	out := make([]Key, len(items))
	for i, it := range items {
		out[i].Value = it
	}
	return out
}

// oneLine reports whether the whole text is on one line.
func (w *writer) oneLine() bool { return bytes.IndexByte(bytes.TrimRight(w.text, "\r\n"), '\n') < 0 }

// flow returns entries of a collection in flow style.
func (w *writer) flow(entries []Key, separator, indent string, lines bool) string {
	var out []byte
	for i, e := range entries {
		if i > 0 {
			out = append(out, separator...)
		}
		if e.Name != "" {
			out = append(appendString(out, e.Name), ": "...)
		}
		json := e.Value.appendJSON(nil, indent, lines)
		out = append(out, bytes.ReplaceAll(json, []byte("\n"), []byte(w.eol))...)
	}
	return string(out)
}

// replace replaces the text of a scalar.
func (w *writer) replace(n *Node, inFlow bool) {
	at := w.skipProperties(n.at)
	end := at
	switch {
	case n.style == quoted:
		end = w.quotedEnd(at)
	case inFlow:
		end = w.flowEnd(at)
	default:
		end = len(bytes.TrimRight(w.text[:w.commentStart(at)], " \t"))
	}
	w.changes = append(w.changes, change{at, end, string(n.appendJSON(nil, "", false))})
}
