package yamltext

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// The parser reports where nodes begin. These functions find where they end.

// skipSpace returns the offset of the next token: after white space, line breaks, and comments.
func (f *File) skipSpace(at int) int {
	for at < len(f.text) {
		switch c := f.text[at]; {
		case c == ' ' || c == '\t':
			at++
		case breakAt(f.text, at) > 0:
			at += breakAt(f.text, at)
		case c == '#':
			at = f.lineEnd(at)
		default:
			return at
		}
	}
	return at
}

// skipProperties returns the offset after the anchor and the tag of a node.
func (f *File) skipProperties(at int) int {
	for at < len(f.text) && (f.text[at] == '&' || f.text[at] == '!') {
		for at < len(f.text) && f.text[at] != ' ' && f.text[at] != '\t' && breakAt(f.text, at) == 0 {
			at++
		}
		at = f.skipSpace(at)
	}
	return at
}

// lineStart returns the offset at which the line of an offset begins.
func (f *File) lineStart(at int) int {
	return f.lines[max(f.lineOf(at)-1, 0)]
}

// lineEnd returns the offset of the line break after an offset, or of the end of the text.
func (f *File) lineEnd(at int) int {
	for at < len(f.text) && breakAt(f.text, at) == 0 {
		at++
	}
	return at
}

// nextLine returns the offset after the line break at an offset.
func (f *File) nextLine(at int) int {
	if at >= len(f.text) {
		return at
	}
	return at + breakAt(f.text, at)
}

// column returns the number of characters before an offset in its line.
func (f *File) column(at int) int { return utf8.RuneCount(f.text[f.lineStart(at):at]) }

// indent returns the number of spaces at the start of a line, and whether the line has only white
// space.
func (f *File) indent(start int) (spaces int, blank bool) {
	line := f.text[start:f.lineEnd(start)]
	rest := bytes.TrimLeft(line, " ")
	return len(line) - len(rest), len(bytes.TrimLeft(rest, "\t")) == 0
}

// end returns the offset after the last byte of a node in block style. Its lines after the first
// one are indented by at least least spaces, except inside quotes and brackets.
func (f *File) end(n *Node, least int) int {
	at := n.at
	switch {
	case n.style == aliased:
		return at + len(bytes.TrimRight(f.text[at:f.commentStart(at)], " \t"))
	case n.bare:
		return at
	}
	at = f.skipProperties(at)
	switch {
	case at >= len(f.text):
		return at
	case n.Kind != Scalar && f.text[at] == bracketOf(n.Kind) && n.flow:
		return f.flowEnd(at)
	case n.tail != nil && n.Kind == Mapping:
		return f.end(n.tail, f.column(n.first)+1)
	case n.tail != nil:
		return f.end(n.tail, f.column(at)+1)
	case n.style == quoted:
		return f.quotedEnd(at)
	case n.style == block:
		return f.blockScalarEnd(at, least)
	}
	return f.plainEnd(at, least)
}

func bracketOf(k Kind) byte {
	if k == Mapping {
		return '{'
	}
	return '['
}

// commentStart returns the offset of the comment in the line of an offset, or of the line's end.
func (f *File) commentStart(at int) int {
	end := f.lineEnd(at)
	for i := at + 1; i < end; i++ {
		if f.text[i] == '#' && (f.text[i-1] == ' ' || f.text[i-1] == '\t') {
			return i
		}
	}
	return end
}

// quotedEnd returns the offset after a quoted scalar.
func (f *File) quotedEnd(at int) int {
	quote := f.text[at]
	for at++; at < len(f.text); at++ {
		switch {
		case f.text[at] == '\\' && quote == '"':
			at++
		case f.text[at] == quote && quote == '\'' && at+1 < len(f.text) && f.text[at+1] == '\'':
			at++
		case f.text[at] == quote:
			return at + 1
		}
	}
	return len(f.text)
}

// flowEnd returns the offset after a value in flow style: a collection, or a scalar inside one.
func (f *File) flowEnd(at int) int {
	depth := 0
	for first := true; at < len(f.text); first = false {
		c := f.text[at]
		switch {
		case (c == '"' || c == '\'') && (first || f.tokenStart(at)):
			at = f.quotedEnd(at)
		case c == '#' && !first && strings.IndexByte(" \t\r\n", f.text[at-1]) >= 0:
			at = f.lineEnd(at)
			continue
		case c == '{' || c == '[':
			depth++
			at++
		case c == '}' || c == ']':
			if depth == 0 {
				return f.trimmed(at)
			}
			depth--
			at++
		case c == ',' && depth == 0:
			return f.trimmed(at)
		default:
			at++
			continue
		}
		if depth == 0 && c != '#' {
			return at
		}
	}
	return len(f.text)
}

// tokenStart reports whether a token of a flow collection begins at an offset.
func (f *File) tokenStart(at int) bool {
	before := bytes.TrimRight(f.text[:at], " \t\r\n")
	return len(before) > 0 && strings.IndexByte("[{,:", before[len(before)-1]) >= 0
}

// trimmed returns the offset after the last character before an offset.
func (f *File) trimmed(at int) int { return len(bytes.TrimRight(f.text[:at], " \t\r\n")) }

// plainEnd returns the offset after a plain scalar.
func (f *File) plainEnd(at, least int) int {
	end := f.commentStart(at)
	last := len(bytes.TrimRight(f.text[:end], " \t"))
	for end == f.lineEnd(end) { // no comment, which ends the scalar
		next := f.nextLine(end)
		if next >= len(f.text) {
			break
		}
		spaces, blank := f.indent(next)
		if !blank && (spaces < least || f.text[next+spaces] == '#') {
			break
		}
		end = f.lineEnd(next)
		if !blank {
			end = f.commentStart(next + spaces)
			last = len(bytes.TrimRight(f.text[:end], " \t"))
		}
		if next == end && end >= len(f.text) {
			break
		}
	}
	return last
}

// blockScalarEnd returns the offset at the end of the last line of a literal or folded scalar. With
// the indicator +, empty lines at the end belong to it.
func (f *File) blockScalarEnd(at, least int) int {
	end := f.lineEnd(at)
	all := bytes.IndexByte(f.text[at:f.commentStart(at)], '+') >= 0
	last := end
	for end < len(f.text) {
		next := f.nextLine(end)
		if next >= len(f.text) {
			break
		}
		spaces, blank := f.indent(next)
		if !blank && spaces < least {
			break
		}
		end = f.lineEnd(next)
		if all || !blank {
			last = end
		}
	}
	return last
}
