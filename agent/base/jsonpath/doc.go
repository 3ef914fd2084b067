// Package jsonpath prints values of a document by a template: text with RFC 9535 queries in braces,
// as in kubectl.
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

// Template is text with queries:
//
//	{.items[*].name}                         values, separated by spaces
//	{range .items[*]}{.name}{"\n"}{end}      repeated for each value; queries inside are relative to it
//	{"\n"}                                   text
//
// "$" or "@" at the beginning of a query is optional, and so are the braces around a single query.
type Template []step

type step struct {
	text  string
	query *jsonpath.Path // nil: text
	sort  bool           // the order of results is not defined by the query
	each  Template       // body of a range; nil: print the values
}

// Parse parses a template. The error quotes the invalid part.
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

// parseSteps parses up to the end, or to the {end} of a range.
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
				return nil, "", fmt.Errorf("%.64s is not a quoted string", inside)
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

// closing returns the index of the closing brace outside quotes, or -1.
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

// Print writes the expansion of a template with a document, followed by a line end if it has none.
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
