package syntax

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// LuaFault returns the first syntax error of a Lua script as LuaJIT reads it, or "". It checks no
// rule about names, except that a goto has a label. A reported fault is certain.
func LuaFault(code string) string {
	p := &luaParser{line: 1, code: code, variadic: true}
	p.next()
	p.block()
	if p.fault == "" && p.token != "" {
		p.unexpected()
	}
	for _, g := range p.gotos {
		if p.fault == "" && !slices.Contains(p.labels, g) {
			p.fault = fmt.Sprintf("goto %q has no label", g)
		}
	}
	return p.fault
}

// luaParser reads a script token by token. After a fault, all tokens are empty.
type luaParser struct {
	code          string // after the token
	line, depth   int
	kind          byte   // of the token: n a name, # a number, s a text, k a keyword or operator
	token         string // "" at the end
	fault         string
	gotos, labels []string
	loops         int  // around the token, in its function
	variadic      bool // the function has "..."
}

// maxLuaDepth is how deep LuaJIT lets a script nest at most.
const maxLuaDepth = 190

var (
	luaKeywords = strings.Fields("and break do else elseif end false for function goto if in local nil not or repeat " +
		"return then true until while")
	luaBinary = strings.Fields("+ - * / % ^ .. < <= > >= == ~= and or")
	// luaOperators are sorted so that a longer operator precedes its beginning.
	luaOperators = strings.Fields("... .. == ~= <= >= :: + - * / % ^ # < > = ( ) { } [ ] ; : , .")
)

func (p *luaParser) fail(format string, args ...any) {
	if p.fault == "" {
		p.fault = fmt.Sprintf(format, args...)
	}
	p.code, p.token, p.kind = "", "", 0
}

func (p *luaParser) unexpected() {
	switch {
	case p.fault != "":
	case p.token == "":
		p.fail("the script ends too early")
	default:
		p.fail("%q in line %d is unexpected", p.token, p.line)
	}
}

// take moves the first n bytes from the code to the token.
func (p *luaParser) take(n int, kind byte) {
	p.kind, p.token, p.code = kind, p.code[:n], p.code[n:]
}

func (p *luaParser) skip(n int) {
	p.line += strings.Count(p.code[:n], "\n")
	p.code = p.code[n:]
}

func (p *luaParser) next() {
	if p.kind == 's' {
		p.line += strings.Count(p.token, "\n")
	}
	for {
		p.skip(len(p.code) - len(strings.TrimLeft(p.code, " \t\r\n\v\f")))
		if !strings.HasPrefix(p.code, "--") {
			break
		}
		n := longBracket(p.code[2:])
		if n > 0 {
			if n += 2; p.code[n-1] != ']' {
				p.fail("a comment in line %d has no end", p.line)
				return
			}
		} else if n = strings.IndexByte(p.code, '\n'); n < 0 {
			n = len(p.code)
		}
		p.skip(n)
	}
	if p.code == "" {
		p.take(0, 0)
		return
	}
	switch c := p.code[0]; {
	case nameByte(c) || c >= 0x80:
		n := 1
		for n < len(p.code) && (nameByte(p.code[n]) || digit(p.code[n]) || p.code[n] >= 0x80) {
			n++
		}
		if p.take(n, 'n'); slices.Contains(luaKeywords, p.token) {
			p.kind = 'k'
		}
	case digit(c) || c == '.' && len(p.code) > 1 && digit(p.code[1]):
		exponent, n := "eE", 1
		if strings.HasPrefix(p.code, "0x") || strings.HasPrefix(p.code, "0X") {
			exponent = "pP"
		}
		for n < len(p.code) && (nameByte(p.code[n]) || digit(p.code[n]) || p.code[n] == '.' ||
			strings.IndexByte("+-", p.code[n]) >= 0 && strings.IndexByte(exponent, p.code[n-1]) >= 0) {
			n++
		}
		if p.take(n, '#'); !luaNumber.MatchString(p.token) {
			p.fail("%q in line %d is not a number", p.token, p.line)
		}
	case longBracket(p.code) > 0:
		n := longBracket(p.code)
		if !strings.HasSuffix(p.code[:n], "]") {
			p.fail("a text in line %d has no end", p.line)
			return
		}
		p.take(n, 's')
	case c == '"' || c == '\'':
		n := 1
		for n < len(p.code) && p.code[n] != c && p.code[n] != '\n' {
			if p.code[n] == '\\' {
				if n++; strings.HasPrefix(p.code[min(n, len(p.code)):], "z") { // skips white space
					n += len(p.code[n+1:]) - len(strings.TrimLeft(p.code[n+1:], " \t\r\n\v\f"))
				}
			}
			n++
		}
		if n >= len(p.code) || p.code[n] == '\n' {
			p.fail("a text in line %d has no end", p.line)
			return
		}
		p.take(n+1, 's')
	default:
		for _, op := range luaOperators {
			if strings.HasPrefix(p.code, op) {
				p.take(len(op), 'k')
				return
			}
		}
		p.fail("%q in line %d is unexpected", p.code[:1], p.line)
	}
}

// accept skips the token if it is this keyword or operator.
func (p *luaParser) accept(token string) bool {
	if p.kind != 'k' || p.token != token {
		return false
	}
	p.next()
	return true
}

func (p *luaParser) expect(token string) {
	if !p.accept(token) {
		if p.token == "" && p.fault == "" {
			p.fail("%s is missing at the end", token)
		}
		p.unexpected()
	}
}

// name skips a name and returns it.
func (p *luaParser) name() (name string) {
	if name = p.token; p.kind != 'n' {
		p.unexpected()
	}
	p.next()
	return name
}

func (p *luaParser) enter() {
	if p.depth++; p.depth > maxLuaDepth {
		p.fail("line %d is nested too deeply", p.line)
	}
}

var luaNumber = regexp.MustCompile(`(?i)^(0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(p[+-]?[0-9]+)?|0b[01]+|` +
	`([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)(i|u?ll)?$`)

func digit(c byte) bool { return c >= '0' && c <= '9' }

// longBracket returns the length of the long-bracket text at the start of s, or 0. An unterminated
// text extends to the end.
func longBracket(s string) int {
	if !strings.HasPrefix(s, "[") {
		return 0
	}
	level := len(s[1:]) - len(strings.TrimLeft(s[1:], "="))
	if len(s) < level+2 || s[level+1] != '[' {
		return 0
	}
	end := "]" + strings.Repeat("=", level) + "]"
	if i := strings.Index(s, end); i >= 0 {
		return i + len(end)
	}
	return len(s)
}
