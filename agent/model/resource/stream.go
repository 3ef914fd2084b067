package resource

import (
	"bytes"
	"cmp"
	"fmt"
	"unicode/utf8"
)

// documentShare is the part of a stream's node budget that one document may use.
const documentShare = 16

// chunk is the text of one document of a stream.
type chunk struct {
	text []byte
	line int // of its first byte in the stream, 1-based
}

// split cuts a stream at the document markers of YAML. Markers cannot stand inside a value (YAML
// 1.2.2, rule c-forbidden), so one broken document does not take the others with it. Chunks without
// content are left out.
func split(data []byte, yield func(chunk) bool) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	line, start, startLine := 1, 0, 1
	content := false // whether the chunk has more than comments, directives and white space
	flush := func(end int) bool {
		ok := true
		if content {
			ok = yield(chunk{data[start:end], startLine})
		}
		content = false
		return ok
	}
	for pos := 0; pos < len(data); line++ {
		end := bytes.IndexByte(data[pos:], '\n')
		if end < 0 {
			end = len(data)
		} else {
			end += pos + 1
		}
		l := data[pos:end]
		switch {
		case marker(l, "---"):
			if !flush(pos) {
				return
			}
			start, startLine = pos, line // the marker's own line may hold content
			content = hasContent(l[3:])
		case marker(l, "..."):
			if !flush(pos) {
				return
			}
			start, startLine = end, line+1
		case !content && l[0] == '%': // a directive belongs to the next marker; the core schema needs none
			start, startLine = end, line+1
		case !content:
			content = hasContent(l)
		}
		pos = end
	}
	flush(len(data))
}

func marker(line []byte, m string) bool {
	return len(line) >= 3 && string(line[:3]) == m && (len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0)
}

func hasContent(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#'
}

// document is one parsed document of a stream, or the reason why there is none.
type document struct {
	index int
	root  *node // nil when err is set
	err   *Fault
}

// parseStream yields the documents of a stream in order. A fault that concerns the stream as a
// whole is yielded with index 0 and ends it.
func parseStream(data []byte, lim Limits, yield func(document) bool) {
	if len(data) > lim.FileBytes {
		yield(document{err: &Fault{Reason: fmt.Sprintf("%d bytes are more than the %d that one file may have; split it",
			len(data), lim.FileBytes)}})
		return
	}
	index, nodes := 0, lim.Nodes
	emit := func(d document) bool {
		index++
		if index > lim.Documents {
			yield(document{err: &Fault{Reason: fmt.Sprintf("more than %d documents; split the file", lim.Documents)}})
			return false
		}
		if d.root != nil {
			nodes -= d.root.size
		}
		d.index = index
		return yield(d)
	}
	split(data, func(c chunk) bool {
		budget := min(nodes, lim.Nodes/documentShare)
		if budget <= 0 {
			yield(document{err: &Fault{Line: c.line,
				Reason: fmt.Sprintf("the file has too many values, aliases expanded (at most %d); split it", lim.Nodes)}})
			return false
		}
		return c.parse(lim, func() int { return min(nodes, budget) }, emit)
	})
}

// parse yields the documents of a chunk, each within the number of nodes that budget returns before
// it.
func (c chunk) parse(lim Limits, budget func() int, yield func(document) bool) bool {
	text, line := c.text, c.line
	if marker(text, "---") {
		text = text[3:]
	}
	// JSON values may follow each other with nothing but white space between them, as jq and loggers
	// write them.
	for isJSON(text) {
		n, used, last := parseJSON(text, line, lim, budget())
		if n == nil || used > lim.DocumentBytes {
			break
		}
		if !yield(document{root: n}) {
			return false
		}
		text, line = text[used:], last
		if !hasContent(text) {
			return true
		}
	}
	if len(text) == len(c.text)-3 { // nothing was taken: the marker may carry an anchor or a block scalar
		text = c.text
	}
	return yield(parseChunk(text, line, lim, budget()))
}

func isJSON(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && text[0] == '{'
}

func parseChunk(text []byte, line int, lim Limits, budget int) document {
	if len(text) > lim.DocumentBytes {
		return document{err: &Fault{Line: line,
			Reason: fmt.Sprintf("%d bytes are more than the %d that one document may have", len(text), lim.DocumentBytes)}}
	}
	if !utf8.Valid(text) {
		for i := 0; i < len(text); {
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 {
				return document{err: &Fault{
					Line:   line + bytes.Count(text[:i], []byte("\n")),
					Reason: fmt.Sprintf("byte 0x%02x is not UTF-8; save the file as UTF-8", text[i]),
				}}
			}
			i += size
		}
	}
	n, err := parseYAML(text, line, lim, budget)
	return document{root: n, err: err}
}

// Limits bounds what decoding accepts. Zero fields mean the defaults.
type Limits struct {
	// FileBytes is the size of a whole stream, checked before anything is parsed. Default 16 MiB.
	FileBytes int
	// DocumentBytes is the size of one document: of its text and of the resource's canonical JSON,
	// which aliases can make larger than the text. Default 1 MiB.
	DocumentBytes int
	// Documents in a stream. Default 100,000.
	Documents int
	// Depth of nesting. Default 64.
	Depth int
	// Nodes is the number of values in a stream with YAML aliases expanded; one document may use a
	// sixteenth of it. Default 4,000,000.
	Nodes int
}

func (l Limits) withDefaults() Limits {
	return Limits{
		FileBytes:     cmp.Or(max(l.FileBytes, 0), 16<<20),
		DocumentBytes: cmp.Or(max(l.DocumentBytes, 0), 1<<20),
		Documents:     cmp.Or(max(l.Documents, 0), 100_000),
		Depth:         cmp.Or(max(l.Depth, 0), 64),
		Nodes:         cmp.Or(max(l.Nodes, 0), 4_000_000),
	}
}

// Embedded reads a value that stands as text in a field of a document: one YAML or JSON document
// within the default limits. It returns the value as canonical JSON. Where the text cannot be read
// that is a fault at this path, with the line in the text, and the result is nil.
func (v *Validator) Embedded(text string) []byte {
	lim := Limits{}.withDefaults()
	var root *node
	before, n := len(*v.sink), 0
	parseStream([]byte(text), lim, func(doc document) bool {
		n++
		switch {
		case doc.err != nil && doc.err.Line > 0:
			v.Faultf("line %d of the text: %s", doc.err.Line, doc.err.Reason)
		case doc.err != nil:
			v.Faultf("the text: %s", doc.err.Reason)
		case root == nil:
			root = doc.root
		}
		return n < 2
	})
	switch {
	case len(*v.sink) > before:
		return nil
	case n > 1:
		v.Faultf("the text holds several documents: give one")
		return nil
	case root == nil || root.kind == nodeNull:
		v.Faultf("the text is empty")
		return nil
	}
	d := &decoder{lim: lim}
	d.check(root, 1)
	for _, f := range d.faults {
		at := &Validator{path: joined(v.path, f.Field), sink: v.sink}
		at.Faultf("line %d of the text: %s", f.Line, f.Reason)
	}
	if len(d.faults) > 0 {
		return nil
	}
	return canonical(root)
}
