package strict

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonReader parses JSON (RFC 8259) into nodes. Programs send JSON, and this reader is several
// times faster than the YAML parser, which also accepts JSON. The YAML parser handles input that
// this reader rejects and reports its errors.
type jsonReader struct {
	src          []byte
	pos, line    int
	depth, limit int
	budget       int    // remaining number of nodes
	spare        []Node // preallocated nodes
}

// JSON parses a JSON document that the program itself has encoded. It returns nil if the document
// is invalid.
func JSON(doc []byte) *Node {
	const deep = 1000
	n, _, _ := parseJSON(doc, 1, Limits{Depth: deep}, len(doc))
	return n
}

// parseJSON parses one value at the start of src. It returns the value, its length in bytes, and
// the last line, or nil if src does not begin with valid JSON within the limits.
func parseJSON(src []byte, line int, lim Limits, budget int) (n *Node, used int, lastLine int) {
	r := jsonReader{src: src, line: line, limit: lim.Depth, budget: budget}
	if n = r.value(); n == nil {
		return nil, 0, line
	}
	return n, r.pos, r.line
}

// next skips white space and returns the next character, or 0 at the end.
func (r *jsonReader) next() byte {
	for ; r.pos < len(r.src); r.pos++ {
		switch c := r.src[r.pos]; c {
		case '\n':
			r.line++
		case ' ', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

// node returns a new node for one value. Nodes are allocated in batches.
func (r *jsonReader) node() *Node {
	if len(r.spare) == 0 {
		r.spare = make([]Node, 16)
	}
	n := &r.spare[0]
	r.spare = r.spare[1:]
	n.Line, n.Size = r.line, 1
	return n
}

func (r *jsonReader) value() *Node {
	c := r.next()
	r.budget--
	r.depth++
	if r.budget < 0 || r.depth > r.limit {
		return nil
	}
	n := r.node()
	ok := false
	switch {
	case c == '{' || c == '[':
		ok = r.collection(n, c)
	case c == '"':
		n.Kind = String
		n.Text, ok = r.text()
	case c == '-' || '0' <= c && c <= '9':
		ok = r.number(n)
	case c == 't':
		n.Kind, n.Text, ok = Bool, "true", r.word("true")
	case c == 'f':
		n.Kind, n.Text, ok = Bool, "false", r.word("false")
	case c == 'n':
		n.Kind, ok = Null, r.word("null")
	}
	r.depth--
	if !ok {
		return nil
	}
	return n
}

func (r *jsonReader) word(w string) bool {
	if !bytes.HasPrefix(r.src[r.pos:], []byte(w)) {
		return false
	}
	r.pos += len(w)
	return true
}

// text parses a string. It rejects strings with a replacement character, which may represent
// invalid UTF-8, so that the YAML parser handles them.
func (r *jsonReader) text() (string, bool) {
	start, ascii := r.pos+1, true
	for i := start; i < len(r.src); i++ {
		switch c := r.src[i]; {
		case c == '"':
			r.pos = i + 1
			if text := string(r.src[start:i]); ascii || utf8.ValidString(text) && !strings.ContainsRune(text, utf8.RuneError) {
				return text, true
			}
			return "", false
		case c == '\\':
			return r.escaped(start, i)
		case c < ' ':
			return "", false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return "", false
}

// escaped parses a string that begins at start and has an escape at i.
func (r *jsonReader) escaped(start, i int) (text string, ok bool) {
	for ; i < len(r.src) && r.src[i] != '"'; i++ {
		if r.src[i] == '\\' {
			i++
		}
	}
	if i >= len(r.src) || json.Unmarshal(r.src[start-1:i+1], &text) != nil {
		return "", false
	}
	r.pos = i + 1
	return text, !strings.ContainsRune(text, utf8.RuneError)
}

// digits skips digits and returns their number.
func (r *jsonReader) digits() int {
	start := r.pos
	for r.pos < len(r.src) && '0' <= r.src[r.pos] && r.src[r.pos] <= '9' {
		r.pos++
	}
	return r.pos - start
}

// skip skips one character if it is a or b.
func (r *jsonReader) skip(a, b byte) bool {
	if r.pos < len(r.src) && (r.src[r.pos] == a || r.src[r.pos] == b) {
		r.pos++
		return true
	}
	return false
}

func (r *jsonReader) number(n *Node) bool {
	start := r.pos
	r.skip('-', '-')
	first := r.pos
	digits := r.digits()
	if digits == 0 || digits > 1 && r.src[first] == '0' {
		return false
	}
	whole := true
	if r.skip('.', '.') {
		whole = false
		if r.digits() == 0 {
			return false
		}
	}
	if r.skip('e', 'E') {
		whole = false
		r.skip('+', '-')
		if r.digits() == 0 {
			return false
		}
	}
	text := string(r.src[start:r.pos])
	if whole && digits <= 18 && (digits > 1 || text != "-0") { // canonical already
		n.Kind, n.Text = Int, text
		return true
	}
	if n.setInt(text) {
		return true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil { // out of range
		return false
	}
	n.setFloat(f)
	return true
}

func (r *jsonReader) collection(n *Node, open byte) bool {
	n.Kind = List
	end := byte(']')
	if open == '{' {
		n.Kind, end = Mapping, '}'
	}
	r.pos++
	if r.next() == end {
		r.pos++
		return true
	}
	for {
		key, line := "", r.line
		if n.Kind == Mapping {
			var ok bool
			if r.next() != '"' {
				return false
			}
			line = r.line
			if key, ok = r.text(); !ok || r.next() != ':' {
				return false
			}
			r.pos++
		}
		v := r.value()
		if v == nil {
			return false
		}
		if n.Kind == Mapping {
			n.Pairs = append(n.Pairs, Pair{Key: key, Line: line, Value: v})
		} else {
			n.Items = append(n.Items, v)
		}
		n.Size += v.Size
		switch r.next() {
		case ',':
			r.pos++
		case end:
			r.pos++
			return true
		default:
			return false
		}
	}
}
