package offline

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
)

// explainer applies a patch from one config to another step by step and finds the reasons for its
// operations.
type explainer struct {
	docs    map[string]map[string]any // resources by type and name, after the operations so far
	changes []policy.Change
}

func newExplainer(from *generate.Proxy, changes []policy.Change) (*explainer, error) {
	j, err := from.JSON()
	if err != nil {
		return nil, err
	}
	docs := make(map[string]map[string]any, len(j))
	for typeURL, list := range j {
		docs[typeURL] = make(map[string]any, len(list))
		for name, body := range list {
			docs[typeURL][name] = body
		}
	}
	return &explainer{docs: docs, changes: changes}, nil
}

// next explains one operation and applies it.
func (e *explainer) next(op jsonpatch.Operation) (MigrationChange, error) {
	out := MigrationChange{Op: op.Op, Path: op.Path, Why: []string{}}
	tokens, err := jsonpatch.ParsePointer(op.Path)
	if err != nil {
		return out, err
	}
	if len(tokens) == 0 {
		return out, errors.New("the patch replaces a config as a whole")
	}
	out.Type = tokens[0]
	path := []string{out.Type[strings.LastIndexByte(out.Type, '.')+1:]}
	var before, after any
	if op.Op != jsonpatch.Remove {
		after, out.Value = op.Value, jsonpatch.Compact(op.Value)
	}
	switch list := e.docs[out.Type]; {
	case len(tokens) == 1: // all resources of the type
		if list != nil {
			before = list
		}
		delete(e.docs, out.Type)
		if all, ok := after.(map[string]any); ok {
			e.docs[out.Type] = maps.Clone(all)
		}
	case len(tokens) == 2:
		out.Name = tokens[1]
		path = append(path, out.Name)
		before = list[out.Name]
		switch {
		case after == nil:
			delete(list, out.Name)
		case list == nil:
			e.docs[out.Type] = map[string]any{out.Name: after}
		default:
			list[out.Name] = after
		}
	default:
		out.Name = tokens[1]
		var inside []string
		if inside, out.Field, before, err = find(list[out.Name], tokens[2:], op); err != nil {
			return out, err
		}
		path = append(append(path, out.Name), inside...)
		op.Path = jsonpatch.FormatPointer(tokens[2:])
		if list[out.Name], err = (jsonpatch.Patch{op}).Apply(list[out.Name]); err != nil {
			return out, err
		}
	}
	if op.Op != jsonpatch.Add {
		out.Before = jsonpatch.Compact(before)
	}
	out.Why, out.Same = e.why(path, before, after)
	return out, nil
}

// find follows the tokens of an operation in a resource. It returns the path in the notation of
// [policy.Change], the path for display, and the value at the path before the operation, nil if
// absent.
func find(at any, tokens []string, op jsonpatch.Operation) (path []string, field string, before any, err error) {
	var words strings.Builder
	for i, t := range tokens {
		switch v := jsonpatch.Open(at).(type) {
		case map[string]any:
			at = v[t]
			path = append(path, t)
			jsonpatch.WriteKey(&words, t)
		case []any:
			n, err := strconv.Atoi(t)
			added := i == len(tokens)-1 && op.Op == jsonpatch.Add
			if err != nil || n < 0 || n >= len(v) && !added {
				return nil, "", nil, fmt.Errorf("%s: item %s does not exist", op.Path, t)
			}
			var name string
			if added {
				name, at = itemName(append(slices.Clone(v), op.Value), len(v), n), nil
			} else {
				name, at = itemName(v, n, n), v[n]
			}
			path = append(path, name)
			words.WriteString("[" + name + "]")
		default:
			return nil, "", nil, fmt.Errorf("%s: %s does not exist", op.Path, t)
		}
	}
	if op.Op == jsonpatch.Add {
		at = nil
	}
	return path, strings.TrimPrefix(words.String(), "."), at, nil
}

// itemName returns the name of a list item. If the name is missing or not unique, it is, or
// contains, the index shown.
func itemName(list []any, i, shown int) string {
	name := func(v any) string {
		o, _ := jsonpatch.Open(v).(map[string]any)
		s, _ := o["name"].(string)
		return s
	}
	own := name(list[i])
	if own == "" {
		return strconv.Itoa(shown)
	}
	for j := range list {
		if j != i && name(list[j]) == own {
			return own + "#" + strconv.Itoa(shown)
		}
	}
	return own
}

// why returns the reasons for a change of a value (nil: absent) and whether Envoy behaves the same.
// If no reason covers the whole value, each changed field needs one.
func (e *explainer) why(path []string, before, after any) (why []string, same bool) {
	a, b := map[string]string{}, map[string]string{}
	for _, s := range []struct {
		value any
		into  map[string]string
	}{{before, a}, {after, b}} {
		if s.value == nil {
			continue
		}
		s.into[""] = string(jsonpatch.Compact(s.value))
	}
	holds := func(c *policy.Change) bool {
		if c.If == nil {
			return true
		}
		x, err := decoded(a[""])
		y, err2 := decoded(b[""])
		return err == nil && err2 == nil && c.If(x, y)
	}
	if c := e.reason(path, a[""], b[""], holds); c != nil {
		return []string{c.Why}, c.Same
	}
	flatten(before, "", a)
	flatten(after, "", b)
	fields := map[string]bool{}
	for _, m := range []map[string]string{a, b} {
		for f := range m {
			fields[f] = f != "" && a[f] != b[f]
		}
	}
	same = true
	why = []string{}
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		if !fields[f] {
			continue
		}
		c := e.reason(slices.Concat(path, strings.Split(f[1:], "\x00")), a[f], b[f], func(c *policy.Change) bool {
			return c.If == nil
		})
		if c == nil {
			return []string{}, false
		}
		same = same && c.Same
		successor.AddNote(&why, c.Why)
	}
	return why, same && len(why) > 0
}

// reason returns the first change that explains the values and for which also returns true.
func (e *explainer) reason(path []string, before, after string, also func(*policy.Change) bool) *policy.Change {
	for i := range e.changes {
		if c := &e.changes[i]; c.Explains(path, before, after) && also(c) {
			return c
		}
	}
	return nil
}

// flatten adds the JSON of each field below a value under its path. Each element of the path is
// preceded by NUL.
func flatten(v any, way string, into map[string]string) {
	switch v := jsonpatch.Open(v).(type) {
	case map[string]any:
		if len(v) == 0 && way != "" {
			into[way] = "{}"
		}
		for k, x := range v {
			flatten(x, way+"\x00"+k, into)
		}
	case []any:
		if len(v) == 0 && way != "" {
			into[way] = "[]"
		}
		for i, x := range v {
			flatten(x, way+"\x00"+itemName(v, i, i), into)
		}
	default:
		if way != "" {
			into[way] = string(jsonpatch.Compact(v))
		}
	}
}

// decoded parses JSON; "" is nil.
func decoded(s string) (any, error) {
	if s == "" {
		return nil, nil
	}
	return jsonpatch.Decode([]byte(s))
}
