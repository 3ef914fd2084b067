package syntax

import (
	"fmt"
	"strings"
)

// CELFault returns the syntax error in a Common Expression Language expression, or "". It does not
// check names and types.
func CELFault(text string) string {
	p := &celParser{text: text}
	p.expression(0)
	if p.fault == "" && p.peek() != 0 {
		p.fail()
	}
	return p.fault
}

// maxCELDepth is the maximum nesting of expressions.
const maxCELDepth = 32

// celParser parses one expression. It stops at the first fault.
type celParser struct {
	text  string
	at    int
	fault string
}

func (p *celParser) fail() {
	if p.fault == "" {
		p.fault = fmt.Sprintf("syntax error at byte %d", p.at)
	}
	p.at = len(p.text)
}

// peek returns the next byte that is not a space, or 0 at the end.
func (p *celParser) peek() byte {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n\f", p.text[p.at]) >= 0 {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

// take consumes a text if it is next.
func (p *celParser) take(s string) bool {
	if p.peek(); strings.HasPrefix(p.text[p.at:], s) {
		p.at += len(s)
		return true
	}
	return false
}

// word consumes a name, or returns "".
func (p *celParser) word() string {
	p.peek()
	from := p.at
	for p.at < len(p.text) && (nameByte(p.text[p.at]) || p.at > from && p.text[p.at] >= '0' && p.text[p.at] <= '9') {
		p.at++
	}
	return p.text[from:p.at]
}

func nameByte(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// celOperators lists the binary operators, longer ones first.
var celOperators = []string{"&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%"}

func (p *celParser) expression(depth int) {
	for p.fault == "" {
		p.unary(depth)
		if !p.operator() {
			break
		}
	}
	if p.take("?") {
		p.expression(depth + 1)
		if !p.take(":") {
			p.fail()
		}
		p.expression(depth + 1)
	}
}

func (p *celParser) operator() bool {
	for _, o := range celOperators {
		if p.take(o) {
			return true
		}
	}
	from := p.at
	if p.word() == "in" {
		return true
	}
	p.at = from
	return false
}

func (p *celParser) unary(depth int) {
	if depth > maxCELDepth {
		p.fail()
		return
	}
	for p.take("!") || p.take("-") {
	}
	c := p.peek()
	switch {
	case c == '(':
		p.at++
		p.expression(depth + 1)
		p.expect(")")
	case c == '[':
		p.at++
		p.list("]", false, depth)
	case c == '{':
		p.at++
		p.list("}", true, depth)
	case c == '"' || c == '\'':
		p.quoted()
	case c >= '0' && c <= '9':
		p.number()
	case c == '.' || nameByte(c):
		if c == '.' {
			p.at++
		}
		w := p.word()
		if w == "" || w == "in" {
			p.fail()
		} else if n := p.next(); (n == '"' || n == '\'') && strings.Trim(strings.ToLower(w), "rb") == "" {
			p.quoted()
		}
	default:
		p.fail()
	}
	p.members(depth)
}

// next returns the next byte, or 0 at the end.
func (p *celParser) next() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *celParser) members(depth int) {
	for p.fault == "" {
		switch {
		case p.take("."):
			p.take("?")
			if p.word() == "" {
				p.fail()
			}
		case p.take("("):
			p.list(")", false, depth)
		case p.take("["):
			p.take("?")
			p.expression(depth + 1)
			p.expect("]")
		case p.take("{"):
			p.list("}", true, depth)
		default:
			return
		}
	}
}

// list consumes the items between brackets, with keys for a map.
func (p *celParser) list(end string, keys bool, depth int) {
	for p.fault == "" && !p.take(end) {
		p.expression(depth + 1)
		if keys {
			p.expect(":")
			p.expression(depth + 1)
		}
		if !p.take(",") {
			p.expect(end)
			return
		}
	}
}

func (p *celParser) expect(s string) {
	if !p.take(s) {
		p.fail()
	}
}

func (p *celParser) number() {
	for c := p.next(); nameByte(c) || c >= '0' && c <= '9' || c == '.'; c = p.next() {
		p.at++
	}
}

func (p *celParser) quoted() {
	quote := p.next()
	for p.at++; p.at < len(p.text) && p.text[p.at] != quote; p.at++ {
		if p.text[p.at] == '\\' {
			p.at++
		}
	}
	if p.at >= len(p.text) {
		p.at = len(p.text)
		p.fail()
		return
	}
	p.at++
}
