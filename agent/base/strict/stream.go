package strict

import (
	"bytes"
	"cmp"
	"fmt"
	"unicode/utf8"
)

// Limits limits what the parser accepts. Zero fields mean the defaults.
type Limits struct {
	// FileBytes is the maximum size of a stream, checked before parsing. Default 16 MiB.
	FileBytes int
	// DocumentBytes is the maximum size of a document's text and of the resource's canonical JSON,
	// which aliases can make larger than the text. Default 1 MiB.
	DocumentBytes int
	// Documents is the maximum number of documents in a stream. Default 100,000.
	Documents int
	// Depth is the maximum nesting depth. Default 64.
	Depth int
	// Nodes is the maximum number of values in a stream with YAML aliases expanded. One document
	// may use a sixteenth of it. Default 4,000,000.
	Nodes int
	// WrittenNumbers retains the original text of numbers in YAML.
	WrittenNumbers bool
}

// WithDefaults returns the limits with defaults for zero fields.
func (l Limits) WithDefaults() Limits {
	return Limits{
		FileBytes:      cmp.Or(max(l.FileBytes, 0), 16<<20),
		DocumentBytes:  cmp.Or(max(l.DocumentBytes, 0), 1<<20),
		Documents:      cmp.Or(max(l.Documents, 0), 100_000),
		Depth:          cmp.Or(max(l.Depth, 0), 64),
		Nodes:          cmp.Or(max(l.Nodes, 0), 4_000_000),
		WrittenNumbers: l.WrittenNumbers,
	}
}

// DocumentShare is the divisor of [Limits.Nodes] that gives the limit of one document.
const DocumentShare = 16

// DocumentNodes returns the maximum number of nodes of a document.
func (l Limits) DocumentNodes() int { return l.Nodes / DocumentShare }

// Chunk is the text of one document of a stream, or of several JSON documents without markers
// between them.
type Chunk struct {
	text []byte
	line int // line of the first byte in the stream, 1-based
}

// Split splits a stream at YAML document markers. A marker cannot be part of a value (YAML 1.2.2,
// rule c-forbidden), so an invalid document does not affect the others. Chunks without content are
// skipped.
func Split(data []byte, yield func(Chunk) bool) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	line, start, startLine := 1, 0, 1
	content := false // whether the chunk contains more than comments, directives, and white space
	flush := func(end int) bool {
		ok := true
		if content {
			ok = yield(Chunk{data[start:end], startLine})
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
			start, startLine = pos, line // the marker's line may contain content
			content = hasContent(l[3:])
		case marker(l, "..."):
			if !flush(pos) {
				return
			}
			start, startLine = end, line+1
		case !content && l[0] == '%': // directives belong to the next document; the core schema ignores them
			start, startLine = end, line+1
		case !content:
			content = hasContent(l)
		}
		pos = end
	}
	flush(len(data))
}

func marker(line []byte, m string) bool {
	return len(line) >= 3 && string(line[:3]) == m &&
		(len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0)
}

func hasContent(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#'
}

// Document is a parsed document of a stream, or the fault that prevents parsing.
type Document struct {
	Index int   // 1-based; 0 for a fault of the whole stream
	Root  *Node // nil if Fault is set, and for an empty document
	Fault *Fault
}

// Stream yields the documents of a stream in order. A fault of the whole stream has index 0 and
// ends the iteration.
func Stream(data []byte, lim Limits, yield func(Document) bool) {
	if len(data) > lim.FileBytes {
		yield(Document{Fault: &Fault{Reason: fmt.Sprintf(
			"the file has %d bytes, but only %d are allowed; split it", len(data), lim.FileBytes)}})
		return
	}
	index, nodes := 0, lim.Nodes
	emit := func(d Document) bool {
		index++
		if index > lim.Documents {
			yield(Document{Fault: &Fault{Reason: fmt.Sprintf("more than %d documents; split the file", lim.Documents)}})
			return false
		}
		if d.Root != nil {
			nodes -= d.Root.Size
		}
		d.Index = index
		return yield(d)
	}
	Split(data, func(c Chunk) bool {
		budget := min(nodes, lim.DocumentNodes())
		if budget <= 0 {
			yield(Document{Fault: &Fault{Line: c.line, Reason: fmt.Sprintf(
				"the file has too many values with aliases expanded (at most %d); split it", lim.Nodes)}})
			return false
		}
		return c.Parse(lim, func() int { return min(nodes, budget) }, emit)
	})
}

// One parses a text with a single document. It returns nil for an empty text.
func One(text []byte, lim Limits) (root *Node, fault *Fault) {
	Stream(text, lim, func(d Document) bool {
		switch {
		case d.Fault != nil:
			fault = d.Fault
		case d.Index > 1:
			fault = &Fault{Reason: "only one document is allowed; the second one begins here"}
			if d.Root != nil {
				fault.Line = d.Root.Line
			}
		default:
			root = d.Root
		}
		return fault == nil
	})
	if fault != nil {
		return nil, fault
	}
	return root, nil
}

// Parse yields the documents of a chunk. budget returns the maximum number of nodes of the next
// document.
func (c Chunk) Parse(lim Limits, budget func() int, yield func(Document) bool) bool {
	text, line := c.text, c.line
	if marker(text, "---") {
		text = text[3:]
	}
	// JSON values may follow each other without a separator, as in the output of jq and loggers.
	for isJSON(text) {
		n, used, last := parseJSON(text, line, lim, budget())
		if n == nil || used > lim.DocumentBytes {
			break
		}
		if !yield(Document{Root: n}) {
			return false
		}
		text, line = text[used:], last
		if !hasContent(text) {
			return true
		}
	}
	if len(text) == len(c.text)-3 { // nothing was parsed: the marker may be followed by an anchor or a block scalar
		text = c.text
	}
	return yield(parseChunk(text, line, lim, budget()))
}

func isJSON(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && text[0] == '{'
}

func parseChunk(text []byte, line int, lim Limits, budget int) Document {
	if len(text) > lim.DocumentBytes {
		return Document{Fault: &Fault{Line: line, Reason: fmt.Sprintf(
			"the document has %d bytes, but only %d are allowed", len(text), lim.DocumentBytes)}}
	}
	if !utf8.Valid(text) {
		for i := 0; i < len(text); {
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 {
				return Document{Fault: &Fault{
					Line:   line + bytes.Count(text[:i], []byte("\n")),
					Reason: fmt.Sprintf("byte 0x%02x is not UTF-8; save the file as UTF-8", text[i]),
				}}
			}
			i += size
		}
	}
	n, err := parseYAML(text, line, lim, budget)
	return Document{Root: n, Fault: err}
}
