package strict

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// sameJSON compares the JSON reader with encoding/json: both must reject a text or return the same
// nodes.
func sameJSON(t *testing.T, text string, lim Limits, budget int) (valid bool) {
	t.Helper()
	got, used, line := parseJSON([]byte(text), 3, lim, budget)
	want, wantUsed, wantLine := parseAnyJSON([]byte(text), 3, lim, budget)
	if !reflect.DeepEqual(got, want) || used != wantUsed || line != wantLine {
		t.Errorf("%q within %d: %+v to %d in line %d, want %+v to %d in line %d", text, budget, got, used, line, want,
			wantUsed, wantLine)
	}
	return got != nil
}

func TestJSON(t *testing.T) {
	lim := Limits{}.WithDefaults()
	for text, valid := range map[string]bool{
		`{}`: true, `[]`: true, `{"a":[1,-2,0,{"b":null}],"c":true,"d":false,"e":""}`: true,
		" {\n \"a\" :\n [ 1 ,\n2 ] }\n{}": true, `{"a":1} {"b":2}`: true, `123456789012345678`: true, `{"a":1,"a":2}`: true,
		`{"a":"\u0041\"\\\n"}`: true, `{"ä\u00e4":"ö"}`: true, `{"a":1.5}`: true, `[1e3,-1E-3,1.5e+300,-0,-0.0]`: true,
		`[12345678901234567890,1234567890123456789012]`: true, "[\"\x7f\"]": true, `["\ud83d\ude00"]`: true,
		`[01]`: false, `[1.]`: false, `[.5]`: false, `[1e]`: false, `[1e400]`: false, `[+1]`: false, `["\ud800"]`: false,
		"[\"\xff\"]": false, `["\x"]`: false, `["\`: false, "[\"\ufffd\"]": false, "[\"\\\n\"]": false,
		`[1,]`: false, `{"a":}`: false, `{"a" 1}`: false, `{a:1}`: false, `[1 2]`: false, `{"a":1`: false, `tru`: false,
		"[\"a\nb\"]": false, `[-]`: false, ``: false, `{"a":1]`: false, `[1x]`: false,
	} {
		if got := sameJSON(t, text, lim, 100); got != valid {
			t.Errorf("%q: valid %v", text, got)
		}
	}
	deep := strings.Repeat("[", 64) + strings.Repeat("]", 64)
	if !sameJSON(t, deep, lim, 100) || sameJSON(t, "["+deep+"]", lim, 100) || sameJSON(t, "[1,2,3]", lim, 3) ||
		!sameJSON(t, "[1,2,3]", lim, 4) {
		t.Error("the bounds of depth and number are others")
	}
}

func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,-2,0,{"b":null}],"c":true}`, " {\n\"a\" :\n[ 1 ,\n2 ] }\n{}",
		`[1e3,"\n\u00e4ö"]`, `{"type":"Mesh","name":"default"}`, `[-0.5e-3, 12345678901234567890]`,
	} {
		f.Add(text, 50)
	}
	f.Fuzz(func(t *testing.T, text string, budget int) {
		// At the top level, encoding/json reads "00" as two numbers. Documents are objects or
		// lists.
		if top := strings.TrimLeft(text, " \t\r\n"); top != "" && (top[0] == '{' || top[0] == '[') {
			sameJSON(t, text, Limits{Depth: 5}, budget)
		}
	})
}

// jsonParser parses JSON with encoding/json for comparison.
type jsonParser struct {
	src    []byte
	dec    *json.Decoder
	pos    int // position up to which lines are counted
	line   int
	depth  int
	limit  int // of depth
	budget int // remaining nodes
}

// parseAnyJSON is parseJSON implemented with encoding/json.
func parseAnyJSON(src []byte, line int, lim Limits, budget int) (n *Node, used int, lastLine int) {
	p := jsonParser{src: src, dec: json.NewDecoder(bytes.NewReader(src)), line: line, limit: lim.Depth, budget: budget}
	p.dec.UseNumber()
	if n = p.value(p.token()); n == nil {
		return nil, 0, line
	}
	return n, p.pos, p.line
}

// token returns the next token, or nil at the end or for invalid JSON. Null is a separate value.
func (p *jsonParser) token() json.Token {
	t, err := p.dec.Token()
	end := int(p.dec.InputOffset())
	p.line += bytes.Count(p.src[p.pos:end], []byte("\n"))
	if p.pos = end; err != nil {
		return nil
	}
	if t == nil {
		return Null
	}
	return t
}

func (p *jsonParser) value(t json.Token) *Node {
	p.budget--
	p.depth++
	defer func() { p.depth-- }()
	if p.budget < 0 || p.depth > p.limit {
		return nil
	}
	n := &Node{Line: p.line, Size: 1}
	switch t := t.(type) {
	case json.Delim:
		return p.collection(n, t)
	case string:
		// A replacement character may represent invalid UTF-8.
		n.Kind, n.Text = String, t
		if strings.ContainsRune(t, utf8.RuneError) {
			return nil
		}
	case bool:
		n.Kind, n.Text = Bool, strconv.FormatBool(t)
	case Kind:
		n.Kind = t
	case json.Number:
		return p.number(n, string(t))
	default:
		return nil
	}
	return n
}

func (p *jsonParser) collection(n *Node, open json.Delim) *Node {
	n.Kind = List
	if open == '{' {
		n.Kind = Mapping
	}
	for {
		t := p.token()
		if t == json.Delim('}') || t == json.Delim(']') {
			return n
		}
		key, line := "", p.line
		if n.Kind == Mapping {
			var ok bool
			if key, ok = t.(string); !ok || strings.ContainsRune(key, utf8.RuneError) {
				return nil
			}
			t = p.token()
		}
		v := p.value(t)
		if v == nil {
			return nil
		}
		if n.Kind == Mapping {
			n.Pairs = append(n.Pairs, Pair{Key: key, Line: line, Value: v})
		} else {
			n.Items = append(n.Items, v)
		}
		n.Size += v.Size
	}
}

func (p *jsonParser) number(n *Node, text string) *Node {
	if n.setInt(text) {
		return n
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil { // out of range
		return nil
	}
	n.setFloat(f)
	return n
}
