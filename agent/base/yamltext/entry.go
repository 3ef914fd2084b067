package yamltext

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// entry returns an entry of a collection in block style: a key with its value, or an item of a list
// if name is "". The first line is not indented, and the others by column spaces.
func (w *writer) entry(name string, value *Node, column int) string {
	n := &Node{Kind: Sequence, Items: []*Node{value}}
	if name != "" {
		n = &Node{Kind: Mapping, Keys: []Key{{Name: name, Value: value}}}
	}
	return string(w.appendEntries(nil, n, column))
}

// appendEntries appends the keys of a mapping or the items of a list, which begin at a column.
func (w *writer) appendEntries(b []byte, n *Node, column int) []byte {
	entries := n.Keys
	if n.Kind == Sequence {
		entries = asKeys(n.Items)
	}
	for i, e := range entries {
		if i > 0 {
			b = w.newLine(b, column)
		}
		if n.Kind == Sequence {
			b = append(b, '-')
		} else {
			b = append(w.appendScalar(b, tagString, e.Name), ':')
		}
		switch v := e.Value; {
		case v.Kind == Scalar && v.Tag == tagString && literal(v.Value):
			b = w.appendLiteral(b, v.Value, column+2)
		case v.Kind == Scalar:
			b = w.appendScalar(append(b, ' '), v.Tag, v.Value)
		case v.Kind == Mapping && len(v.Keys) == 0:
			b = append(b, " {}"...)
		case v.Kind == Sequence && len(v.Items) == 0:
			b = append(b, " []"...)
		case n.Kind == Sequence: // the first entry of the item follows the dash
			b = w.appendEntries(append(b, ' '), v, column+2)
		case v.Kind == Sequence && w.seqShift == 0:
			b = w.appendEntries(w.newLine(b, column), v, column)
		default:
			b = w.appendEntries(w.newLine(b, column+2), v, column+2)
		}
	}
	return b
}

func (w *writer) newLine(b []byte, column int) []byte {
	b = append(b, w.eol...)
	for range column {
		b = append(b, ' ')
	}
	return b
}

// literal reports whether a text is written as lines.
func literal(s string) bool {
	if !strings.Contains(s, "\n") || strings.HasPrefix(s, "\n") || strings.HasSuffix(s, "\n\n") ||
		strings.HasPrefix(s, " ") || strings.Contains(s, " \n") || strings.HasSuffix(s, " ") {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') })
}

func (w *writer) appendLiteral(b []byte, s string, column int) []byte {
	b = append(b, " |"...)
	text, final := strings.CutSuffix(s, "\n")
	if !final {
		b = append(b, '-')
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" {
			b = append(b, w.eol...)
		} else {
			b = append(w.newLine(b, column), line...)
		}
	}
	return b
}

// scalar is a value for the encoder.
type scalar struct{ tag, value string }

// appendScalar appends a scalar on one line. The library decides about quotes, except for the
// texts that never need them. Encoding is slow, so each value is encoded once.
func (w *writer) appendScalar(b []byte, tag, value string) []byte {
	switch {
	case tag == tagInt || tag == tagBool || tag == tagString && simple(value):
		return append(b, value...)
	case tag == tagNull:
		return append(b, "null"...)
	case tag == tagString && strings.Contains(value, "\n"):
		return appendString(b, value)
	}
	text, ok := w.scalars[scalar{tag, value}]
	if !ok {
		text = encode(tag, value)
		w.scalars[scalar{tag, value}] = text
	}
	return append(b, text...)
}

func encode(tag, value string) string {
	n := yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
	if tag == tagString && oldBoolean(value) {
		n.Style = yaml.DoubleQuotedStyle
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	_ = enc.Encode(&n) // a buffer accepts everything, and a scalar with a value always encodes
	_ = enc.Close()
	return strings.TrimRight(b.String(), "\n")
}

// simple reports whether a text is a string in YAML without quotes: it begins with a letter, a
// slash, or a reference such as $(NAME), has only unreserved characters, and is no other value.
func simple(s string) bool {
	if s == "" || !letter(s[0]) && s[0] != '/' && s[0] != '$' || oldBoolean(s) ||
		slices.Contains([]string{"true", "false", "null"}, strings.ToLower(s)) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !letter(c) && (c < '0' || c > '9') && strings.IndexByte("-_./$()", c) < 0 {
			return false
		}
	}
	return true
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// oldBoolean reports whether YAML 1.1, which the API server uses, reads a plain scalar as a
// boolean.
func oldBoolean(s string) bool {
	return slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, strings.ToLower(s))
}
