package syntax

import (
	"fmt"
	"strings"
)

// LuaFault returns a fault in the blocks and brackets of a Lua script, or "". It checks nothing
// else, so a reported fault is certain.
func LuaFault(code string) string {
	var open []string // open blocks, by their closing word
	line := 1
	for at := 0; at < len(code); {
		rest := code[at:]
		switch c := rest[0]; {
		case c == '\n':
			line++
			at++
		case strings.HasPrefix(rest, "--"):
			n := longBracket(rest[2:])
			if n > 0 {
				n += 2
			} else if n = strings.IndexByte(rest, '\n'); n < 0 {
				n = len(rest)
			}
			line += strings.Count(rest[:n], "\n")
			at += n
		case c == '[' && longBracket(rest) > 0:
			n := longBracket(rest)
			line += strings.Count(rest[:n], "\n")
			at += n
		case c == '"' || c == '\'':
			n := 1
			for n < len(rest) && rest[n] != c && rest[n] != '\n' {
				if rest[n] == '\\' {
					n++
				}
				n++
			}
			if n >= len(rest) || rest[n] == '\n' {
				return fmt.Sprintf("a text in line %d has no end", line)
			}
			at += n + 1
		case strings.IndexByte("([{", c) >= 0:
			open = append(open, map[byte]string{'(': ")", '[': "]", '{': "}"}[c])
			at++
		case strings.IndexByte(")]}", c) >= 0:
			if len(open) == 0 || open[len(open)-1] != string(c) {
				return fmt.Sprintf("%c in line %d closes nothing", c, line)
			}
			open = open[:len(open)-1]
			at++
		case nameByte(c):
			n := 0
			for n < len(rest) && (nameByte(rest[n]) || rest[n] >= '0' && rest[n] <= '9') {
				n++
			}
			at += n
			switch word := rest[:n]; word {
			case "function", "do", "if":
				open = append(open, "end")
			case "repeat":
				open = append(open, "until")
			case "end", "until":
				if len(open) == 0 || open[len(open)-1] != word {
					return fmt.Sprintf("%s in line %d closes nothing", word, line)
				}
				open = open[:len(open)-1]
			}
		default:
			at++
		}
	}
	if len(open) > 0 {
		return fmt.Sprintf("%s is missing at the end", open[len(open)-1])
	}
	return ""
}

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
