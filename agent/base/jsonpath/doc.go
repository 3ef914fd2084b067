// Package jsonpath prints what a template finds in a document: text with queries of RFC 9535
// between braces, as kubectl takes it.
package jsonpath

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/theory/jsonpath"
)

// Template is text with queries.
//
//	{.items[*].name}                         values, with spaces between
//	{range .items[*]}{.name}{"\n"}{end}      a part for each value, relative to which its queries are
//	{"\n"}                                   a text
//
// "$" or "@" at the beginning of a query may be left out, and so may the braces around a single
// one.
type Template []step

type step struct {
	text  string
	query *jsonpath.Path // nil: text
	sort  bool           // what it finds has no order of its own
	each  Template       // of a range; nil: the values themselves are printed
}

// Parse reads a template. The error quotes what is wrong.
func Parse(text string) (Template, error) {
	if !strings.Contains(text, "{") {
		text = "{" + text + "}"
	}
	t, rest, err := parseSteps(text, false)
	if err == nil && rest != "" {
		err = errors.New(`"{end}" without a "{range …}"`)
	}
	return t, err
}

// parseSteps reads up to the end, or to the {end} of a range.
func parseSteps(text string, inRange bool) (out Template, rest string, err error) {
	for text != "" {
		before, after, found := strings.Cut(text, "{")
		if before != "" {
			out = append(out, step{text: before})
		}
		if !found {
			text = ""
			break
		}
		n := closing(after)
		if n < 0 {
			return nil, "", fmt.Errorf("%.64q has no closing brace", "{"+after)
		}
		inside := strings.TrimSpace(after[:n])
		text = after[n+1:]
		switch {
		case inside == "end":
			if !inRange {
				return out, "{end}" + text, nil
			}
			return out, text, nil
		case strings.HasPrefix(inside, `"`):
			s, err := strconv.Unquote(inside)
			if err != nil {
				return nil, "", fmt.Errorf("%.64s is no text between quotes", inside)
			}
			out = append(out, step{text: s})
		case strings.HasPrefix(inside, "range "):
			s, err := parseQuery(strings.TrimSpace(strings.TrimPrefix(inside, "range ")))
			if err != nil {
				return nil, "", err
			}
			var each Template
			if each, text, err = parseSteps(text, true); err != nil {
				return nil, "", err
			}
			s.each = append(Template{}, each...)
			out = append(out, s)
		default:
			s, err := parseQuery(inside)
			if err != nil {
				return nil, "", err
			}
			out = append(out, s)
		}
	}
	if inRange {
		return nil, "", errors.New(`a "{range …}" has no "{end}"`)
	}
	return out, "", nil
}

// closing finds the brace that closes, which is not between quotes.
func closing(text string) int {
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
		case c == '"' || c == '\'':
			quote = c
		case c == '}':
			return i
		}
	}
	return -1
}

func parseQuery(text string) (step, error) {
	query := strings.TrimPrefix(strings.TrimPrefix(text, "@"), "$")
	p, err := jsonpath.Parse("$" + query)
	if err != nil {
		return step{}, fmt.Errorf("%.64q: %s", text, strings.TrimPrefix(err.Error(), "jsonpath: "))
	}
	return step{query: p, sort: strings.ContainsAny(query, "*?") || strings.Contains(query, "..")}, nil
}

// Print writes what a template makes of a document, and a line end where it has none.
func (t Template) Print(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	var doc any
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		err = dec.Decode(&doc)
	}
	var b bytes.Buffer
	if err == nil {
		err = t.expand(&b, doc)
	}
	if err != nil {
		return err
	}
	if b.Len() > 0 && !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	_, err = w.Write(b.Bytes())
	return err
}

func (t Template) expand(b *bytes.Buffer, doc any) error {
	for _, s := range t {
		if s.query == nil {
			b.WriteString(s.text)
			continue
		}
		found := s.query.SelectLocated(doc)
		if s.sort {
			found.Sort()
		}
		for i, n := range found {
			if s.each != nil {
				if err := s.each.expand(b, n.Node); err != nil {
					return err
				}
				continue
			}
			if i > 0 {
				b.WriteByte(' ')
			}
			if text, ok := n.Node.(string); ok {
				b.WriteString(text)
				continue
			}
			text, err := json.Marshal(n.Node)
			if err != nil {
				return err
			}
			b.Write(text)
		}
	}
	return nil
}
