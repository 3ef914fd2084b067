package config

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

const (
	maxPathBytes   = 4096
	MaxSocketBytes = 107 // sun_path of unix(7) without the terminating zero
)

// limits of config files. Numbers keep their text, because modes are octal and IDs are strings.
var limits = strict.Limits{FileBytes: maxConfigBytes, Nodes: maxConfigNodes * strict.DocumentShare,
	WrittenNumbers: true}.WithDefaults()

// newDecoder returns a decoder that applies the tags of keys.
func newDecoder() strict.Decoder {
	return strict.New(limits, strict.Types{}, strict.Hooks{Unknown: unknownKey, Before: beforeKey, After: checkKey})
}

// unknownKey reports an unknown key and suggests a similar one.
func unknownKey(d *strict.Decoder, p *strict.Pair, known []string) string {
	above, plain := strings.CutSuffix(d.Path(), p.Key)
	if !plain { // a quoted key
		above = above[:strings.LastIndexByte(above, '[')] + "."
	}
	paths := make([]string, len(known))
	for i := range known {
		paths[i] = above + known[i]
	}
	const reason = "is not a key of the config"
	if near := suggest(above+p.Key, paths); near != "" {
		return reason + near
	}
	for i := range p.Value.Pairs {
		if near := suggestSuffix(above + p.Key + "." + p.Value.Pairs[i].Key); near != "" {
			return reason + near
		}
	}
	return reason + suggestSuffix(above+p.Key)
}

// suggest suggests a similar key, if there is one.
func suggest(key string, keys []string) string {
	if near := strict.Nearest(key, keys); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

// suggestSuffix suggests a key or section of the config that is the end of an unknown one:
// auditLog for apiServer.auditLog. It suggests nothing for items of lists.
func suggestSuffix(key string) string {
	if strings.ContainsAny(key, "[]") {
		return ""
	}
	for _, f := range defaults("").fields() {
		for path := f.path; path != ""; path = path[:max(0, strings.LastIndexByte(path, '.'))] {
			if strings.HasSuffix(key, "."+path) {
				return fmt.Sprintf("; did you mean %s?", path)
			}
		}
	}
	return ""
}

var modeType, textsType = reflect.TypeFor[fs.FileMode](), reflect.TypeFor[[]string]()

// beforeKey returns the node from which to decode a key.
func beforeKey(d *strict.Decoder, f *strict.Field, n *strict.Node, t reflect.Type) *strict.Node {
	as := func(kind strict.Kind, text string) *strict.Node {
		return &strict.Node{Kind: kind, Line: n.Line, Text: text}
	}
	text, listed := f.Tag.Lookup("text")
	switch {
	case n.Kind == strict.Null && t.Kind() != reflect.Struct && t.Kind() != reflect.Slice:
		d.Faultf(n.Line, "has no value; set one")
	case n.Kind == strict.Int && t.Kind() == reflect.String && isNumber(f.Check, n.Text):
		return as(strict.String, n.Text)
	case t == modeType && (n.Kind == strict.Int || n.Kind == strict.String):
		bits, err := strconv.ParseUint(strings.TrimPrefix(n.Text, "0o"), 8, 32)
		if err == nil && bits <= 0o777 {
			return as(strict.Int, strconv.FormatUint(bits, 10))
		}
		d.Faultf(n.Line, `%.64q is not a set of permissions; want octal digits from "0" to "0777", like "0660"`, n.Text)
	case t == modeType:
		d.WrongType(n, `a text with octal permissions like "0660"`)
	case listed && n.Kind == strict.String:
		if why := checkTag(itemTag(t, text), n.Text, false); why != "" {
			d.Faultf(n.Line, "%s", why)
			return nil
		}
		return &strict.Node{Kind: strict.List, Line: n.Line, Items: []*strict.Node{nest(text, n)}}
	case listed && n.Kind < strict.List && n.Kind != strict.Null:
		d.WrongType(n, "a string")
	case t == textsType && n.Kind == strict.List:
		return numbersAsTexts(f.Check, n)
	case t.Kind() == reflect.Slice && n.Kind != strict.List && n.Kind != strict.Null:
		d.Faultf(n.Line, "is not a list; write %s, or [] for none", listForm(f))
	default:
		return n
	}
	return nil
}

// listForm returns an example of a list.
func listForm(f *strict.Field) string {
	if example := f.Tag.Get("example"); example != "" {
		return "it like " + example
	}
	return "[a, b]"
}

// itemTag returns the tags of a key of list items.
func itemTag(list reflect.Type, key string) reflect.StructTag {
	for _, f := range strict.FieldsOf(list.Elem()) {
		if f.Name == key {
			return f.Tag
		}
	}
	return ""
}

// numbersAsTexts returns a list of texts in which numbers need no quotes.
func numbersAsTexts(check string, n *strict.Node) *strict.Node {
	out := *n
	out.Items = slices.Clone(n.Items)
	for i, item := range out.Items {
		if item.Kind == strict.Int && isNumber(check, item.Text) {
			out.Items[i] = &strict.Node{Kind: strict.String, Line: item.Line, Text: item.Text}
		}
	}
	return &out
}

// isNumber reports whether an unquoted number is the ID of a user or group. Forms that YAML
// interprets as a different number are excluded.
func isNumber(check, text string) bool {
	switch check {
	case "account", "uidRange", "group", "uid", "port":
		i, err := strconv.ParseUint(text, 10, 32)
		return err == nil && strconv.FormatUint(i, 10) == text
	}
	return false
}

// checkKey checks the value of a key.
func checkKey(d *strict.Decoder, f *strict.Field, n *strict.Node, v reflect.Value, clean bool) {
	switch {
	case v.Kind() == reflect.Slice:
		checkList(d, f, n, v, clean)
	case !clean:
	case v.Kind() == reflect.String:
		if why := checkTag(f.Tag, v.String(), false); why != "" {
			d.Faultf(n.Line, "%s", why)
		}
	case v.Kind() == reflect.Int && v.Int() < 0:
		d.Faultf(n.Line, "%d is negative; set a value >= 0, at most %d", v.Int(), f.Max)
	case v.Kind() == reflect.Int && v.Int() > int64(f.Max):
		d.Faultf(n.Line, "%d is too large; want a whole number from 0 to %d", v.Int(), f.Max)
	}
}

// checkList checks a list and sets the defaults of its items.
func checkList(d *strict.Decoder, f *strict.Field, n *strict.Node, v reflect.Value, clean bool) {
	_, absent := f.Tag.Lookup("nil")
	_, required := f.Tag.Lookup("required")
	switch {
	case n.Kind != strict.List && n.Kind != strict.Null:
	case len(n.Items) > f.Max:
		d.Faultf(n.Line, "has %d items; at most %d are allowed", len(n.Items), f.Max)
	case absent && n.Kind == strict.List && len(n.Items) == 0:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // different from an absent list
	case required && len(n.Items) == 0:
		d.Faultf(n.Line, "is empty; add at least one item")
	case v.Type().Elem().Kind() == reflect.String:
		for i, text := range n.Items {
			if why := checkTag(f.Tag, text.Text, true); clean && why != "" {
				d.EnterItem(i)
				d.Faultf(text.Line, "%s", why)
				d.Leave()
			}
		}
	default:
		for i, item := range n.Items {
			d.EnterItem(i)
			if item.Kind == strict.Mapping {
				completeItem(d, item, v, i)
			}
			d.Leave()
		}
	}
}

// completeItem sets the defaults of an item. It reports missing keys, and values that must be
// unique but equal those of an earlier item.
func completeItem(d *strict.Decoder, n *strict.Node, list reflect.Value, i int) {
	item, path := list.Index(i), d.Path()
	clean := !slices.ContainsFunc(d.Faults, func(f strict.Fault) bool { return strict.Within(f.Field, path) })
	for at, k := range fieldsOf(item, "") {
		d.Enter(k.path)
		given, _ := n.Find(k.path)
		switch {
		case given == nil && k.has("required"):
			d.Faultf(n.Line, "is required in every item")
		case given == nil:
			k.setDefault(item.Addr().Interface())
		case clean && k.has("unique"):
			for j := range i {
				if k.at.Equal(fieldsOf(list.Index(j), "")[at].at) {
					d.Faultf(n.Line, "%.64q is also in item [%d]; use different values", k.at, j)
				}
			}
		}
		d.Leave()
	}
}

// checkTag checks a text against the tags of its key. It returns a message for an invalid text, and
// "" for a valid one. item is true for an item of a list of texts, which has the tags of the list.
func checkTag(tag reflect.StructTag, s string, item bool) string {
	limit := maxPathBytes
	if n, _ := strconv.Atoi(tag.Get("max")); n > 0 && !item {
		limit = n
	}
	_, required := tag.Lookup("required")
	below := tag.Get("path")
	switch oneOf := tag.Get("oneOf"); {
	case len(s) > limit:
		return fmt.Sprintf("the text has %d bytes; at most %d are allowed", len(s), limit)
	case oneOf != "" && !slices.Contains(strings.Split(oneOf, ","), s):
		return fmt.Sprintf("%.64q is not known; one of %s", s,
			strings.ReplaceAll(strings.TrimPrefix(oneOf, ","), ",", ", "))
	case s == "" && item:
		return "is empty; set a text or remove the item"
	case below == "" && s == "" && !required:
	case below == "":
		return checkText(tag.Get("check"), s)
	case s == "" && required:
		return "is empty; set a path"
	case strings.ContainsRune(s, 0):
		return "contains a zero byte; remove it"
	case below != "." && s != "" && !filepath.IsAbs(s) && !filepath.IsLocal(s):
		return fmt.Sprintf("%q leads out of its directory; use an absolute path or one without ..", s)
	}
	return ""
}

// textNode converts the text of a variable, flag, or default to a node. A list of texts is
// comma-separated, and a list of items is YAML or JSON.
func (f field) textNode(s string) (*strict.Node, *strict.Fault) {
	n := &strict.Node{Kind: strict.String, Text: s}
	_, noInt := strconv.Atoi(s)
	switch kind := f.at.Kind(); {
	case kind == reflect.Bool && (s == "true" || s == "false"):
		n.Kind = strict.Bool
	case kind == reflect.Int && noInt == nil:
		n.Kind = strict.Int
	case kind == reflect.Slice && !f.hasItems():
		n = &strict.Node{Kind: strict.List}
		for item := range strings.SplitSeq(s, ",") {
			if item = strings.TrimSpace(item); item != "" || strings.Contains(s, ",") {
				n.Items = append(n.Items, &strict.Node{Kind: strict.String, Text: item})
			}
		}
	case kind == reflect.Slice && !(f.has("text") && !strings.HasPrefix(s, "[")):
		list, fault := strict.One([]byte(s), limits)
		if fault != nil {
			return nil, &strict.Fault{Field: f.path,
				Reason: fmt.Sprintf("%s; write it like %s", fault.Reason, f.tag.Get("example"))}
		}
		if n = list; n == nil {
			n = &strict.Node{}
		}
	}
	return n, nil
}

// nest returns a mapping in which one key has a value.
func nest(key string, n *strict.Node) *strict.Node {
	for _, step := range slices.Backward(strings.Split(key, ".")) {
		n = &strict.Node{Kind: strict.Mapping, Pairs: []strict.Pair{{Key: step, Value: n}}}
	}
	return n
}

// setDefault sets a key of a config or item to its default. A test checks that all defaults are
// valid.
func (f field) setDefault(in any) {
	text := f.tag.Get("default")
	if text == "" {
		return
	}
	if n, fault := f.textNode(text); fault == nil {
		d := newDecoder()
		d.Decode(nest(f.path, n), in)
	}
}
