package resource

import "bytes"

// plainJSON reads the JSON that machines write most: without escapes, and with ASCII alone. It
// makes the nodes that [jsonParser] makes, in far less time, and gives up at anything else, what is
// no JSON among it.
type plainJSON struct {
	src          []byte
	pos, line    int
	depth, limit int
	budget       int
	spare        []node // to hand out
}

// parsePlainJSON reads the JSON value at the beginning of src, as parseJSON does; nil for what it
// leaves to that.
func parsePlainJSON(src []byte, line int, lim Limits, budget int) (n *node, used int, lastLine int) {
	p := plainJSON{src: src, line: line, limit: lim.Depth, budget: budget}
	if n = p.value(); n == nil {
		return nil, 0, line
	}
	return n, p.pos, p.line
}

// next skips white space and returns the character behind it, 0 at the end.
func (p *plainJSON) next() byte {
	for ; p.pos < len(p.src); p.pos++ {
		switch c := p.src[p.pos]; c {
		case '\n':
			p.line++
		case ' ', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

// node returns a node of one value. They are made by the dozen.
func (p *plainJSON) node() *node {
	if len(p.spare) == 0 {
		p.spare = make([]node, 16)
	}
	n := &p.spare[0]
	p.spare = p.spare[1:]
	n.line, n.size = p.line, 1
	return n
}

func (p *plainJSON) value() *node {
	c := p.next()
	p.budget--
	p.depth++
	if p.budget < 0 || p.depth > p.limit {
		return nil
	}
	n := p.node()
	ok := false
	switch {
	case c == '{' || c == '[':
		ok = p.collection(n, c)
	case c == '"':
		n.kind = nodeString
		n.text, ok = p.text()
	case c == '-' || '0' <= c && c <= '9':
		ok = p.number(n)
	case c == 't':
		n.kind, n.text, ok = nodeBool, "true", p.word("true")
	case c == 'f':
		n.kind, n.text, ok = nodeBool, "false", p.word("false")
	case c == 'n':
		n.kind, ok = nodeNull, p.word("null")
	}
	p.depth--
	if !ok {
		return nil
	}
	return n
}

func (p *plainJSON) word(w string) bool {
	if !bytes.HasPrefix(p.src[p.pos:], []byte(w)) {
		return false
	}
	p.pos += len(w)
	return true
}

// text reads a string.
func (p *plainJSON) text() (string, bool) {
	start := p.pos + 1
	for i := start; i < len(p.src); i++ {
		switch c := p.src[i]; {
		case c == '"':
			p.pos = i + 1
			return string(p.src[start:i]), true
		case c < ' ' || c >= 0x7f || c == '\\':
			return "", false
		}
	}
	return "", false
}

// number reads a whole number of at most 18 digits.
func (p *plainJSON) number(n *node) bool {
	start := p.pos
	if p.src[p.pos] == '-' {
		p.pos++
	}
	first := p.pos
	for p.pos < len(p.src) && '0' <= p.src[p.pos] && p.src[p.pos] <= '9' {
		p.pos++
	}
	digits := p.pos - first
	if digits == 0 || digits > 18 || digits > 1 && p.src[first] == '0' || first > start && p.src[first] == '0' {
		return false
	}
	if p.pos < len(p.src) && bytes.IndexByte([]byte(".eE"), p.src[p.pos]) >= 0 {
		return false
	}
	n.kind, n.text = nodeInt, string(p.src[start:p.pos])
	return true
}

func (p *plainJSON) collection(n *node, open byte) bool {
	n.kind = nodeList
	end := byte(']')
	if open == '{' {
		n.kind, end = nodeMapping, '}'
	}
	p.pos++
	if p.next() == end {
		p.pos++
		return true
	}
	for {
		key, line := "", p.line
		if n.kind == nodeMapping {
			var ok bool
			if p.next() != '"' {
				return false
			}
			line = p.line
			if key, ok = p.text(); !ok || p.next() != ':' {
				return false
			}
			p.pos++
		}
		v := p.value()
		if v == nil {
			return false
		}
		if n.kind == nodeMapping {
			n.pairs = append(n.pairs, pair{key: key, line: line, value: v})
		} else {
			n.items = append(n.items, v)
		}
		n.size += v.size
		switch p.next() {
		case ',':
			p.pos++
		case end:
			p.pos++
			return true
		default:
			return false
		}
	}
}
