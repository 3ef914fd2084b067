package syntax

import (
	"slices"
	"strings"
)

// block reads statements until a word that ends a block.
func (p *luaParser) block() {
	p.enter()
	defer func() { p.depth-- }()
	for p.token != "" {
		if p.kind == 'k' && slices.Contains([]string{"end", "else", "elseif", "until"}, p.token) {
			return
		}
		if p.accept("return") {
			if p.token != "" && !(p.kind == 'k' && slices.Contains([]string{"end", "else", "elseif", "until", ";"}, p.token)) {
				p.expressions()
			}
			for p.accept(";") {
			}
			return
		}
		p.statement()
	}
}

func (p *luaParser) statement() {
	switch {
	case p.accept(";"):
	case p.token == "break" && p.loops > 0:
		p.next()
	case p.accept("goto"):
		p.gotos = append(p.gotos, p.name())
	case p.accept("do"):
		p.block()
		p.expect("end")
	case p.accept("while"):
		p.expression()
		p.body("do")
	case p.accept("repeat"):
		p.loops++
		p.block()
		p.loops--
		p.expect("until")
		p.expression()
	case p.accept("if"):
		p.expression()
		p.expect("then")
		for p.block(); p.accept("elseif"); p.block() {
			p.expression()
			p.expect("then")
		}
		if p.accept("else") {
			p.block()
		}
		p.expect("end")
	case p.accept("for"):
		p.name()
		if p.accept("=") {
			p.expression()
			p.expect(",")
			if p.expression(); p.accept(",") {
				p.expression()
			}
		} else {
			for p.accept(",") {
				p.name()
			}
			p.expect("in")
			p.expressions()
		}
		p.body("do")
	case p.accept("function"):
		p.name()
		for p.accept(".") {
			p.name()
		}
		if p.accept(":") {
			p.name()
		}
		p.function()
	case p.accept("local"):
		if p.accept("function") {
			p.name()
			p.function()
			return
		}
		for p.name(); p.accept(","); {
			p.name()
		}
		if p.accept("=") {
			p.expressions()
		}
	case p.accept("::"):
		p.labels = append(p.labels, p.name())
		p.expect("::")
	default:
		p.assignment()
	}
}

// assignment reads an assignment or a call.
func (p *luaParser) assignment() {
	call, target := p.prefixed()
	if call {
		return
	}
	for target && p.accept(",") {
		_, target = p.prefixed()
	}
	if !target {
		p.unexpected()
	}
	p.expect("=")
	p.expressions()
}

func (p *luaParser) body(word string) {
	p.expect(word)
	p.loops++
	p.block()
	p.loops--
	p.expect("end")
}

func (p *luaParser) function() {
	loops, variadic := p.loops, p.variadic
	defer func() { p.loops, p.variadic = loops, variadic }()
	p.loops, p.variadic = 0, false
	p.expect("(")
	for !p.accept(")") && p.fault == "" {
		if p.accept("...") {
			p.variadic = true
			p.expect(")")
			break
		}
		if p.name(); p.token != ")" {
			if p.expect(","); p.token == ")" {
				p.unexpected()
			}
		}
	}
	p.block()
	p.expect("end")
}

func (p *luaParser) expressions() {
	for p.expression(); p.accept(","); {
		p.expression()
	}
}

func (p *luaParser) expression() {
	p.enter()
	defer func() { p.depth-- }()
	for {
		for p.accept("-") || p.accept("not") || p.accept("#") {
		}
		p.operand()
		if p.kind != 'k' || !slices.Contains(luaBinary, p.token) {
			return
		}
		p.next()
	}
}

func (p *luaParser) operand() {
	switch {
	case p.kind == '#', p.kind == 's':
		p.next()
	case p.accept("nil"), p.accept("true"), p.accept("false"), p.variadic && p.accept("..."):
	case p.accept("function"):
		p.function()
	case p.token == "{":
		p.table()
	default:
		p.prefixed()
	}
}

// prefixed reads a name or an expression in parentheses with its suffixes. It returns whether the
// last suffix is a call, and whether the result can be assigned.
func (p *luaParser) prefixed() (call, target bool) {
	if p.accept("(") {
		p.expression()
		p.expect(")")
	} else {
		p.name()
		target = true
	}
	for p.fault == "" {
		switch {
		case p.accept("."):
			p.name()
			call, target = false, true
		case p.accept("["):
			p.expression()
			p.expect("]")
			call, target = false, true
		case p.token == ":" || p.token == "(" || p.token == "{" || p.kind == 's':
			if p.accept(":") {
				p.name()
			}
			p.arguments()
			call, target = true, false
		default:
			return call, target
		}
	}
	return call, target
}

func (p *luaParser) arguments() {
	switch {
	case p.kind == 's':
		p.next()
	case p.token == "{":
		p.table()
	default:
		p.expect("(")
		if !p.accept(")") {
			p.expressions()
			p.expect(")")
		}
	}
}

func (p *luaParser) table() {
	p.enter()
	defer func() { p.depth-- }()
	p.expect("{")
	for !p.accept("}") && p.fault == "" {
		if p.accept("[") {
			p.expression()
			p.expect("]")
			p.expect("=")
			p.expression()
		} else {
			if rest := strings.TrimLeft(p.code, " \t\r\n"); p.kind == 'n' && strings.HasPrefix(rest, "=") &&
				!strings.HasPrefix(rest, "==") {
				p.next()
				p.next()
			}
			p.expression()
		}
		if !p.accept(",") && !p.accept(";") && p.token != "}" {
			p.unexpected()
		}
	}
}
