package yamltext

import (
	"encoding/json"
	"sort"
	"strconv"
	"strings"
)

// jsonParser builds the tree of a JSON document with the offsets of its values. YAML's parser does
// not accept all JSON, such as pairs of surrogates.
type jsonParser struct {
	file *File
	dec  *json.Decoder
}

// value returns the next value, or nil if the text is invalid.
func (p *jsonParser) value(depth int) *Node {
	at := p.next()
	tok, err := p.dec.Token()
	if err != nil || depth > maxDepth {
		return nil
	}
	n := &Node{Line: p.file.lineOf(at), at: at, first: -1, flow: true}
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '{' {
			n.Kind = Mapping
			return p.object(n, depth)
		}
		n.Kind = Sequence
		for p.dec.More() {
			item := p.value(depth + 1)
			if item == nil {
				return nil
			}
			n.add(item)
		}
		if _, err := p.dec.Token(); err != nil {
			return nil
		}
	case string:
		n.Tag, n.Value, n.style = tagString, tok, quoted
	case json.Number:
		n.Tag, n.Value = tagInt, tok.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = tagFloat
		}
	case bool:
		n.Tag, n.Value = tagBool, strconv.FormatBool(tok)
	case nil:
		n.Tag = tagNull
	}
	return n
}

func (p *jsonParser) object(n *Node, depth int) *Node {
	for p.dec.More() {
		at := p.next()
		key, err := p.dec.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return nil
		}
		v := p.value(depth + 1)
		if v == nil {
			return nil
		}
		if n.first < 0 {
			n.first = at
		}
		n.Keys, n.tail = append(n.Keys, Key{Name: name, Value: v, at: at, line: p.file.lineOf(at)}), v
	}
	if _, err := p.dec.Token(); err != nil {
		return nil
	}
	return n
}

// next returns the offset of the next token.
func (p *jsonParser) next() int {
	at := int(p.dec.InputOffset())
	for at < len(p.file.text) && strings.IndexByte(" \t\r\n,:", p.file.text[at]) >= 0 {
		at++
	}
	return at
}

// lineOf returns the line of an offset.
func (f *File) lineOf(at int) int {
	return max(sort.Search(len(f.lines), func(i int) bool { return f.lines[i] > at }), 1)
}

// JSON returns a value as JSON, in the order of the text.
func (n *Node) JSON() []byte { return n.appendJSON(nil, "", false) }

// appendJSON appends a value as JSON. With indent, each entry begins a line after this prefix.
func (n *Node) appendJSON(b []byte, indent string, lines bool) []byte {
	inner := indent + "  "
	separate := func(i int) {
		switch {
		case i > 0 && lines:
			b = append(b, ",\n"+inner...)
		case i > 0:
			b = append(b, ", "...)
		case lines:
			b = append(b, "\n"+inner...)
		}
	}
	end := func(count int) {
		if lines && count > 0 {
			b = append(b, "\n"+indent...)
		}
	}
	switch n.Kind {
	case Mapping:
		b = append(b, '{')
		for i, k := range n.Keys {
			separate(i)
			b = append(appendString(b, k.Name), ": "...)
			b = k.Value.appendJSON(b, inner, lines)
		}
		end(len(n.Keys))
		return append(b, '}')
	case Sequence:
		b = append(b, '[')
		for i, it := range n.Items {
			separate(i)
			b = it.appendJSON(b, inner, lines)
		}
		end(len(n.Items))
		return append(b, ']')
	}
	switch {
	case n.Tag == tagNull:
		return append(b, "null"...)
	case n.Tag == tagBool, (n.Tag == tagInt || n.Tag == tagFloat) && json.Valid([]byte(n.Value)):
		return append(b, n.Value...)
	case n.Tag == tagInt:
		if i, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64); err == nil {
			return strconv.AppendInt(b, i, 10)
		}
	case n.Tag == tagFloat:
		if f, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64); err == nil {
			if text, err := json.Marshal(f); err == nil {
				return append(b, text...)
			}
		}
	}
	return appendString(b, n.Value)
}

// appendString appends a JSON string without the escapes for HTML.
func appendString(b []byte, s string) []byte {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return append(b, strings.TrimSuffix(out.String(), "\n")...)
}
