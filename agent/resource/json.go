package resource

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonParser reads JSON (RFC 8259) into nodes. Machines write JSON, and reading it directly is several times faster
// than reading it as the YAML that it also is. What it cannot read is left to the YAML parser and its messages.
type jsonParser struct {
	src    []byte
	pos    int
	line   int
	depth  int
	limit  int // of depth
	budget int // nodes
}

// parseJSON reads one value at the start of src. It returns nil when src does not begin with valid JSON within the
// limits, else the value and the number of bytes and lines it took.
func parseJSON(src []byte, line int, lim Limits, budget int) (n *node, used int, lastLine int) {
	p := jsonParser{src: src, line: line, limit: lim.Depth, budget: budget}
	p.space()
	n = p.value()
	if n == nil {
		return nil, 0, line
	}
	return n, p.pos, p.line
}

func (p *jsonParser) space() {
	for p.pos < len(p.src) {
		switch p.src[p.pos] {
		case '\n':
			p.line++
		case ' ', '\t', '\r':
		default:
			return
		}
		p.pos++
	}
}

// next skips white space and returns the byte there, 0 at the end.
func (p *jsonParser) next() byte {
	p.space()
	if p.pos == len(p.src) {
		return 0
	}
	return p.src[p.pos]
}

func (p *jsonParser) value() *node {
	p.budget--
	p.depth++
	defer func() { p.depth-- }()
	if p.budget < 0 || p.depth > p.limit {
		return nil
	}
	n := &node{line: p.line, size: 1}
	switch c := p.next(); {
	case c == '{':
		return p.mapping(n)
	case c == '[':
		return p.list(n)
	case c == '"':
		n.kind = nodeString
		s, ok := p.str()
		if !ok {
			return nil
		}
		n.text = s
	case c == 't':
		return p.word(n, "true", nodeBool)
	case c == 'f':
		return p.word(n, "false", nodeBool)
	case c == 'n':
		return p.word(n, "null", nodeNull)
	case c == '-' || c >= '0' && c <= '9':
		return p.number(n)
	default:
		return nil
	}
	return n
}

func (p *jsonParser) word(n *node, w string, k nodeKind) *node {
	if len(p.src)-p.pos < len(w) || string(p.src[p.pos:p.pos+len(w)]) != w {
		return nil
	}
	p.pos += len(w)
	n.kind = k
	if k != nodeNull {
		n.text = w
	}
	return n
}

func (p *jsonParser) mapping(n *node) *node {
	n.kind = nodeMapping
	n.line = p.line
	p.pos++
	if p.next() == '}' {
		p.pos++
		return n
	}
	for {
		if p.next() != '"' {
			return nil
		}
		line := p.line
		key, ok := p.str()
		if !ok || p.next() != ':' {
			return nil
		}
		p.pos++
		p.space()
		v := p.value()
		if v == nil {
			return nil
		}
		n.pairs = append(n.pairs, pair{key: key, line: line, value: v})
		n.size += v.size
		switch p.next() {
		case ',':
			p.pos++
		case '}':
			p.pos++
			return n
		default:
			return nil
		}
	}
}

func (p *jsonParser) list(n *node) *node {
	n.kind = nodeList
	n.line = p.line
	p.pos++
	if p.next() == ']' {
		p.pos++
		return n
	}
	for {
		p.space()
		v := p.value()
		if v == nil {
			return nil
		}
		n.items = append(n.items, v)
		n.size += v.size
		switch p.next() {
		case ',':
			p.pos++
		case ']':
			p.pos++
			return n
		default:
			return nil
		}
	}
}

func (p *jsonParser) number(n *node) *node {
	start := p.pos
	digits := func() bool {
		from := p.pos
		for p.pos < len(p.src) && p.src[p.pos] >= '0' && p.src[p.pos] <= '9' {
			p.pos++
		}
		return p.pos > from
	}
	is := func(c byte) bool { return p.pos < len(p.src) && p.src[p.pos] == c }
	if is('-') {
		p.pos++
	}
	if is('0') {
		p.pos++
	} else if !digits() {
		return nil
	}
	whole := true
	if is('.') {
		whole = false
		p.pos++
		if !digits() {
			return nil
		}
	}
	if is('e') || is('E') {
		whole = false
		p.pos++
		if is('+') || is('-') {
			p.pos++
		}
		if !digits() {
			return nil
		}
	}
	text := string(p.src[start:p.pos])
	if whole {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			n.kind, n.text = nodeInt, strconv.FormatInt(i, 10)
			return n
		}
		if u, err := strconv.ParseUint(text, 10, 64); err == nil {
			n.kind, n.text = nodeInt, strconv.FormatUint(u, 10)
			return n
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil { // out of range
		return nil
	}
	n.setFloat(f)
	return n
}

func (p *jsonParser) str() (string, bool) {
	p.pos++
	start := p.pos
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == '"':
			s := p.src[start:p.pos]
			p.pos++
			return string(s), utf8.Valid(s)
		case c == '\\':
			return p.escaped(start)
		case c < 0x20:
			return "", false
		}
		p.pos++
	}
	return "", false
}

// escaped reads the rest of a string that has escapes.
func (p *jsonParser) escaped(start int) (string, bool) {
	out := append([]byte(nil), p.src[start:p.pos]...)
	for p.pos < len(p.src) {
		c := p.src[p.pos]
		p.pos++
		switch {
		case c == '"':
			return string(out), utf8.Valid(out)
		case c < 0x20:
			return "", false
		case c != '\\':
			out = append(out, c)
			continue
		}
		if p.pos == len(p.src) {
			return "", false
		}
		e := p.src[p.pos]
		p.pos++
		switch e {
		case '"', '\\', '/':
			out = append(out, e)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := p.hex4()
			if utf16.IsSurrogate(r) {
				if p.pos+1 >= len(p.src) || p.src[p.pos] != '\\' || p.src[p.pos+1] != 'u' {
					return "", false
				}
				p.pos += 2
				r = utf16.DecodeRune(r, p.hex4())
				if r == utf8.RuneError {
					return "", false
				}
			}
			if r < 0 {
				return "", false
			}
			out = utf8.AppendRune(out, r)
		default:
			return "", false
		}
	}
	return "", false
}

// hex4 reads four hex digits, -1 when they are not there.
func (p *jsonParser) hex4() rune {
	if len(p.src)-p.pos < 4 {
		return -1
	}
	u, err := strconv.ParseUint(string(p.src[p.pos:p.pos+4]), 16, 32)
	if err != nil {
		return -1
	}
	p.pos += 4
	return rune(u)
}
