package config

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const (
	maxPathBytes   = 4096
	MaxSocketBytes = 107 // sun_path of unix(7), without the closing zero
)

// parse sets a key from a node of a config file, or from a scalar without a tag, which comes from a
// variable or flag and is text. It leaves the key as it was when it reports a fault.
func (f field) parse(n *yaml.Node) resource.Faults {
	var v any
	var tag, want, why string
	switch s := n.Value; f.at.Interface().(type) {
	case string:
		tag, want = "!!str", "a text"
		v, why = s, f.checkText(s)
	case bool:
		tag, want = "!!bool", "true or false"
		if v = s == "true"; s != "true" && s != "false" {
			why = fmt.Sprintf("%.64q is neither true nor false", s)
		}
	case int:
		tag, want = "!!int", fmt.Sprintf("a whole number from 0 to %d", f.max())
		i, err := strconv.Atoi(s)
		if v = i; err != nil {
			why = fmt.Sprintf("%.64q is not a whole number; want %s", s, want)
		} else if i < 0 {
			why = fmt.Sprintf("%d is negative; set a value >= 0, at most %d", i, f.max())
		} else if i > f.max() {
			why = fmt.Sprintf("%d is too large; want %s", i, want)
		}
	case fs.FileMode:
		want = `octal permissions like "0660"`
		bits, err := strconv.ParseUint(strings.TrimPrefix(s, "0o"), 8, 32)
		if v = fs.FileMode(bits); err != nil || bits > 0o777 {
			why = fmt.Sprintf(`%.64q is not a set of permissions; want octal digits from "0" to "0777", like "0660"`, s)
		}
	default:
		return f.parseList(n)
	}
	switch loose := n.Tag == ""; {
	case n.Kind == yaml.MappingNode:
		return f.fault(n, "is a mapping; want %s", want)
	case n.Kind == yaml.SequenceNode:
		return f.fault(n, "is a list; want %s", want)
	case !loose && n.ShortTag() == "!!null":
		return f.fault(n, "has no value; give %s or remove the key", want)
	case !loose && tag == "!!str" && n.ShortTag() != tag && !f.isNumber(n):
		return f.fault(n, "%.64s is not a text; write it in quotes", n.Value)
	case why != "":
		return f.fault(n, "%s", why)
	case !loose && tag != "" && tag != "!!str" && n.ShortTag() == "!!str":
		return f.fault(n, "%.64q is a text; want %s, without quotes", n.Value, want)
	}
	f.at.Set(reflect.ValueOf(v))
	return nil
}

func (f field) fault(n *yaml.Node, format string, args ...any) resource.Faults {
	return resource.Faults{{Line: n.Line, Field: f.path, Reason: fmt.Sprintf(format, args...)}}
}

// isNumber says whether a number without quotes is the id of a user or group. Forms that YAML reads
// as another number than the digits say do not count.
func (f field) isNumber(n *yaml.Node) bool {
	switch f.tag.Get("check") {
	case "account", "uidRange", "group":
		i, err := strconv.ParseUint(n.Value, 10, 32)
		return err == nil && strconv.FormatUint(i, 10) == n.Value
	}
	return false
}

func (f field) max() int {
	n, _ := strconv.Atoi(f.tag.Get("max"))
	return n
}

// checkText returns what is wrong with a text, "" when nothing is.
func (f field) checkText(s string) string {
	limit := maxPathBytes
	if f.max() > 0 && !f.item {
		limit = f.max()
	}
	below := f.tag.Get("path")
	switch oneOf := f.tag.Get("oneOf"); {
	case len(s) > limit:
		return fmt.Sprintf("the text has %d bytes; at most %d are allowed", len(s), limit)
	case oneOf != "" && !slices.Contains(strings.Split(oneOf, ","), s):
		return fmt.Sprintf("%.64q is not known; one of %s", s, strings.ReplaceAll(strings.TrimPrefix(oneOf, ","), ",", ", "))
	case s == "" && f.item:
		return "is empty; give a text, or remove the item"
	case below == "":
		if s == "" && !f.has("required") {
			return ""
		}
		return checkText(f.tag.Get("check"), s)
	case s == "" && f.has("required"):
		return "is empty; give a path"
	case strings.ContainsRune(s, 0):
		return "holds a zero byte; give a path without one"
	case below != "." && s != "" && !filepath.IsAbs(s) && !filepath.IsLocal(s):
		return fmt.Sprintf("%q leads out of its directory; give an absolute path or one without ..", s)
	}
	return ""
}

// walkMapping calls set for each key of a mapping and of those in it, and reports keys that v does
// not have.
func walkMapping(n *yaml.Node, v reflect.Value, prefix string,
	set func(f field, n *yaml.Node, line int) resource.Faults) resource.Faults {
	n = follow(n)
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return nil // a section whose keys are all commented out
	}
	keys := keysOf(v, prefix)
	if n.Kind != yaml.MappingNode {
		return field{path: strings.TrimSuffix(prefix, ".")}.fault(n, "is not a mapping of keys; its keys are %s",
			joinKeys(keys, prefix))
	}
	var faults resource.Faults
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], follow(n.Content[i+1])
		key := field{path: prefix + fmt.Sprintf("%.64s", k.Value)}
		at := slices.IndexFunc(keys, func(f field) bool { return f.path == prefix+k.Value })
		switch {
		case seen[key.path]:
			faults = append(faults, key.fault(k, "stands twice; keep one")...)
		case at < 0:
			faults = append(faults, key.fault(k, "is not a key of the config%s", suggest(key.path, keys))...)
		case keys[at].at.Kind() == reflect.Struct:
			faults = append(faults, walkMapping(value, keys[at].at, key.path+".", set)...)
		default:
			faults = append(faults, set(keys[at], value, k.Line)...)
		}
		seen[key.path] = true
	}
	return faults
}

func joinKeys(keys []field, prefix string) string {
	names := make([]string, len(keys))
	for i, f := range keys {
		names[i] = strings.TrimPrefix(f.path, prefix)
	}
	return strings.Join(names, ", ")
}

// suggest names the key that is meant, when one is near.
func suggest(key string, keys []field) string {
	paths := make([]string, len(keys))
	for i := range keys {
		paths[i] = keys[i].path
	}
	if near := strict.Nearest(key, paths); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}
