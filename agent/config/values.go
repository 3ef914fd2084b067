package config

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/clip"
)

// value is the typed place of one key. parse takes a node of a config file, or a scalar without a tag from a variable
// or flag, and leaves the place as it was when it reports a problem.
type value interface {
	parse(n *yaml.Node) []problem
	node() *yaml.Node
	schema() map[string]any
}

// problem is one thing wrong with a value; at is the path below the key, "[0].name".
type problem struct {
	line   int
	at     string
	reason string
}

func wrong(n *yaml.Node, format string, args ...any) []problem {
	return []problem{{line: n.Line, reason: fmt.Sprintf(format, args...)}}
}

// loose reports whether a node comes from a variable or flag, where everything is text.
func loose(n *yaml.Node) bool { return n.Tag == "" }

// scalar returns the text of a scalar.
func scalar(n *yaml.Node, want string) (string, []problem) {
	switch {
	case n.Kind == yaml.MappingNode:
		return "", wrong(n, "is a mapping; want %s", want)
	case n.Kind == yaml.SequenceNode:
		return "", wrong(n, "is a list; want %s", want)
	case n.ShortTag() == "!!null" && !loose(n):
		return "", wrong(n, "has no value; give %s or remove the key", want)
	}
	return n.Value, nil
}

func scalarNode(tag, v string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: v}
}

// text is a string.
type text struct {
	p     *string
	check func(string) string // what is wrong, "" when nothing
	oneOf []string
	max   int // bytes; 0: 4096
}

func (t text) parse(n *yaml.Node) []problem {
	s, ps := scalar(n, "a text")
	if ps != nil {
		return ps
	}
	if tag := n.ShortTag(); !loose(n) && tag != "!!str" {
		return wrong(n, "%s is not a text; write it in quotes", s)
	}
	limit := t.max
	if limit == 0 {
		limit = maxPathBytes
	}
	if len(s) > limit {
		return wrong(n, "the text has %d bytes; at most %d are allowed", len(s), limit)
	}
	if t.oneOf != nil && !slices.Contains(t.oneOf, s) {
		return wrong(n, "%q is not known; one of %s", s, strings.Join(t.oneOf, ", "))
	}
	if t.check != nil {
		if why := t.check(s); why != "" {
			return wrong(n, "%s", why)
		}
	}
	*t.p = s
	return nil
}

func (t text) node() *yaml.Node { return scalarNode("!!str", *t.p) }

func (t text) schema() map[string]any {
	s := map[string]any{"type": "string"}
	if t.oneOf != nil {
		s["enum"] = t.oneOf
	}
	if t.max > 0 {
		s["maxLength"] = t.max
	}
	return s
}

const (
	maxPathBytes   = 4096
	MaxSocketBytes = 107 // sun_path of unix(7), without the closing zero
)

// pathText is a path of the file system. A relative one lies below *below, or where it was written when below is nil.
type pathText struct {
	p        *string
	below    *string
	required bool
	socket   bool
}

func (t pathText) parse(n *yaml.Node) []problem {
	return text{p: t.p, check: func(s string) string {
		switch {
		case s == "" && t.required:
			return "is empty; give a path"
		case strings.ContainsRune(s, 0):
			return "holds a zero byte; give a path without one"
		case !filepath.IsAbs(s) && s != "" && t.below != nil && !filepath.IsLocal(s):
			return fmt.Sprintf("%q leads out of its directory; give an absolute path or one without ..", s)
		}
		return ""
	}}.parse(n)
}

// resolve makes the path absolute. base is where it was written.
func (t pathText) resolve(base string) {
	switch {
	case *t.p == "":
	case filepath.IsAbs(*t.p):
		*t.p = filepath.Clean(*t.p)
	case t.below != nil:
		*t.p = filepath.Join(*t.below, *t.p)
	default:
		*t.p = filepath.Join(base, *t.p)
	}
}

func (t pathText) node() *yaml.Node { return scalarNode("!!str", *t.p) }

func (t pathText) schema() map[string]any {
	s := map[string]any{"type": "string", "maxLength": maxPathBytes}
	if t.required {
		s["minLength"] = 1
	}
	return s
}

// mode is a set of permission bits, written octal with or without quotes.
type mode struct{ p *fs.FileMode }

func (m mode) parse(n *yaml.Node) []problem {
	s, ps := scalar(n, `octal permissions like "0660"`)
	if ps != nil {
		return ps
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(s, "0o"), 8, 32)
	if err != nil || v > 0o777 {
		return wrong(n, `%q is not a set of permissions; want octal digits from "0" to "0777", like "0660"`, clip.Value(s))
	}
	*m.p = fs.FileMode(v)
	return nil
}

func (m mode) node() *yaml.Node { return scalarNode("!!str", fmt.Sprintf("%04o", *m.p)) }

func (mode) schema() map[string]any {
	return map[string]any{"type": "string", "pattern": "^(0o)?[0-7]{1,4}$"}
}

// integer is a whole number from 0 to max.
type integer struct {
	p   *int
	max int
}

func (i integer) parse(n *yaml.Node) []problem {
	want := fmt.Sprintf("a whole number from 0 to %d", i.max)
	s, ps := scalar(n, want)
	if ps != nil {
		return ps
	}
	if !loose(n) && n.ShortTag() == "!!str" {
		return wrong(n, "%q is a text; want %s, without quotes", clip.Value(s), want)
	}
	v, err := strconv.Atoi(s)
	switch {
	case err != nil:
		return wrong(n, "%q is not a whole number; want %s", clip.Value(s), want)
	case v < 0:
		return wrong(n, "%d is negative; set a value >= 0, at most %d", v, i.max)
	case v > i.max:
		return wrong(n, "%d is too large; want %s", v, want)
	}
	*i.p = v
	return nil
}

func (i integer) node() *yaml.Node { return scalarNode("!!int", strconv.Itoa(*i.p)) }

func (i integer) schema() map[string]any {
	return map[string]any{"type": "integer", "minimum": 0, "maximum": i.max}
}

// boolean is true or false.
type boolean struct{ p *bool }

func (b boolean) parse(n *yaml.Node) []problem {
	s, ps := scalar(n, "true or false")
	if ps != nil {
		return ps
	}
	if !loose(n) && n.ShortTag() != "!!bool" || s != "true" && s != "false" {
		return wrong(n, "%q is neither true nor false", clip.Value(s))
	}
	*b.p = s == "true"
	return nil
}

func (b boolean) node() *yaml.Node { return scalarNode("!!bool", strconv.FormatBool(*b.p)) }

func (boolean) schema() map[string]any { return map[string]any{"type": "boolean"} }
