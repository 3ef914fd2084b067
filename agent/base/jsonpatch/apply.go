package jsonpatch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxCopied limits the number of values that the copy operations of a patch add in total, so that a
// short patch cannot create a huge document.
const maxCopied = 1 << 20

// Options relaxes RFC 6902 for patches that users write for documents without empty values.
type Options struct {
	// CreateParents makes add create missing or null parents: a list if the next token is an index
	// or "-", otherwise an object.
	CreateParents bool
	// IgnoreAbsent makes remove succeed if the value does not exist.
	IgnoreAbsent bool
}

// Error reports which operation of a patch failed and why.
type Error struct {
	Index     int // index of the operation
	Operation Operation
	Err       error
}

// Error returns the operation, its path, and the reason.
func (e *Error) Error() string {
	return fmt.Sprintf("operation %d (%s %s): %v", e.Index, short(e.Operation.Op), short(e.Operation.Path), e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Apply returns the result of applying the patch to doc, which it does not modify. If an operation
// fails, Apply returns an *Error and no document (RFC 6902 section 5).
func (p Patch) Apply(doc any) (any, error) { return p.ApplyWith(doc, Options{}) }

// ApplyWith is Apply with relaxed rules.
func (p Patch) ApplyWith(doc any, o Options) (any, error) {
	a := applier{Options: o, doc: clone(doc)}
	for i, op := range p {
		if err := a.apply(op); err != nil {
			return nil, &Error{Index: i, Operation: op, Err: err}
		}
	}
	return a.doc, nil
}

// applier modifies its own copy of a document.
type applier struct {
	Options
	doc    any
	copied int
}

func (a *applier) apply(op Operation) error {
	path, err := ParsePointer(op.Path)
	if err != nil {
		return fmt.Errorf("path: %w", err)
	}
	switch op.Op {
	case Add:
		return a.add(path, clone(op.Value), a.CreateParents)
	case Remove:
		_, err := a.remove(path)
		if absent := absentError(""); a.IgnoreAbsent && errors.As(err, &absent) {
			return nil
		}
		return err
	case Replace:
		if len(path) == 0 {
			a.doc = clone(op.Value)
			return nil
		}
		return a.edit(path, false, func(in any, token string) (any, error) {
			_, err := child(in, token)
			if err == nil {
				setChild(in, token, clone(op.Value))
			}
			return in, err
		})
	case Test:
		have, err := a.find(path)
		if err == nil && !Equal(have, op.Value) {
			err = fmt.Errorf("the value is %s, not %s", show(have), show(op.Value))
		}
		return err
	case Move, Copy:
		from, err := ParsePointer(op.From)
		if err != nil {
			return fmt.Errorf("from: %w", err)
		}
		if op.Op == Copy {
			return a.copy(from, path)
		}
		return a.move(from, path)
	}
	return fmt.Errorf("%q is not an operation: use add, remove, replace, move, copy, or test", short(op.Op))
}

func (a *applier) copy(from, path []string) error {
	v, err := a.find(from)
	if err != nil {
		return fmt.Errorf("from: %w", err)
	}
	if a.copied += weight(v, maxCopied+1); a.copied > maxCopied {
		return fmt.Errorf("the patch copies more than %d values", maxCopied)
	}
	return a.add(path, clone(v), false)
}

// move removes a value and adds it elsewhere. A value cannot move into itself (RFC 6902 section
// 4.4).
func (a *applier) move(from, path []string) error {
	if len(path) > len(from) && slices.Equal(path[:len(from)], from) {
		return fmt.Errorf("%q is inside %q, so the value cannot be moved there",
			short(FormatPointer(path)), short(FormatPointer(from)))
	}
	if slices.Equal(from, path) {
		_, err := a.find(from)
		return err
	}
	v, err := a.remove(from)
	if err != nil {
		return fmt.Errorf("from: %w", err)
	}
	return a.add(path, v, false)
}

// find returns the value at a path.
func (a *applier) find(path []string) (any, error) {
	v := a.doc
	for i, t := range path {
		next, err := child(v, t)
		if err != nil {
			return nil, at(path[:i], err)
		}
		v = next
	}
	return v, nil
}

// edit replaces the parent of a path's last token by the result of change.
func (a *applier) edit(path []string, parents bool, change func(in any, token string) (any, error)) error {
	last := len(path) - 1
	var descend func(v any, i int) (any, error)
	descend = func(v any, i int) (_ any, err error) {
		v = plain(v)
		if i == last {
			if v, err = change(v, path[i]); err != nil {
				err = at(path[:i], err)
			}
			return v, err
		}
		if parents {
			v = makeChild(v, path[i], path[i+1])
		}
		next, err := child(v, path[i])
		if err != nil {
			return nil, at(path[:i], err)
		}
		if next, err = descend(next, i+1); err != nil {
			return nil, err
		}
		setChild(v, path[i], next)
		return v, nil
	}
	doc, err := descend(a.doc, 0)
	if err == nil {
		a.doc = doc
	}
	return err
}

// add adds a value at a path: it sets a member or inserts an item.
func (a *applier) add(path []string, v any, parents bool) error {
	if len(path) == 0 {
		a.doc = v
		return nil
	}
	return a.edit(path, parents, func(in any, token string) (any, error) {
		switch in := in.(type) {
		case map[string]any:
			in[token] = v
			return in, nil
		case []any:
			if token == "-" {
				return append(in, v), nil
			}
			i, err := itemIndex(in, token, len(in))
			if err != nil {
				return nil, err
			}
			return slices.Insert(in, i, v), nil
		}
		return nil, fmt.Errorf("%s has no members", show(in))
	})
}

// remove removes the value at a path and returns it.
func (a *applier) remove(path []string) (v any, err error) {
	if len(path) == 0 {
		v, a.doc = a.doc, nil
		return v, nil
	}
	err = a.edit(path, false, func(in any, token string) (any, error) {
		var err error
		if v, err = child(in, token); err != nil {
			return nil, err
		}
		if list, ok := in.([]any); ok {
			i, _ := index(token)
			return slices.Delete(list, i, i+1), nil
		}
		delete(in.(map[string]any), token)
		return in, nil
	})
	return v, err
}

// child returns the member or item of a value.
func child(v any, token string) (any, error) {
	switch v := plain(v).(type) {
	case map[string]any:
		if c, ok := v[token]; ok {
			return c, nil
		}
		return nil, absentError(fmt.Sprintf("the object has no member %q", short(token)))
	case []any:
		i, err := itemIndex(v, token, len(v)-1)
		if err != nil {
			return nil, err
		}
		return v[i], nil
	default:
		return nil, fmt.Errorf("%s has no members", show(v))
	}
}

// setChild replaces an existing member or item.
func setChild(v any, token string, to any) {
	switch v := v.(type) {
	case map[string]any:
		v[token] = to
	case []any:
		i, _ := index(token)
		v[i] = to
	}
}

// makeChild creates a container for the next token if the member is missing or null, or as the item
// after the last one. It returns the value.
func makeChild(v any, token, next string) any {
	var created any = map[string]any{}
	if _, err := index(next); err == nil || next == "-" {
		created = []any{}
	}
	switch v := v.(type) {
	case map[string]any:
		if plain(v[token]) == nil {
			v[token] = created
		}
	case []any:
		if i, err := index(token); err == nil && i == len(v) {
			return append(v, created)
		}
	}
	return v
}

// itemIndex parses a list index of at most last.
func itemIndex(list []any, token string, last int) (int, error) {
	if token == "-" {
		return 0, absentError(`"-" is the position after the last item: only add, copy, and move can use it`)
	}
	i, err := index(token)
	if err != nil {
		return 0, err
	}
	if i > last {
		return 0, absentError(fmt.Sprintf("index %d is out of range: the list length is %d", i, len(list)))
	}
	return i, nil
}

// clone copies a value except for raw parts, which are immutable.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, c := range v {
			out[k] = clone(c)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, c := range v {
			out[i] = clone(c)
		}
		return out
	}
	return v
}

// weight returns the number of values in a value. It stops counting at limit.
func weight(v any, limit int) int {
	sum := 1
	children := slices.Values([]any(nil))
	switch v := plain(v).(type) {
	case map[string]any:
		children = maps.Values(v)
	case []any:
		children = slices.Values(v)
	}
	for c := range children {
		if sum += weight(c, limit-sum); sum >= limit {
			break
		}
	}
	return sum
}

// absentError reports that there is no value at a path.
type absentError string

func (e absentError) Error() string { return string(e) }

// at adds the path to an error.
func at(path []string, err error) error {
	if len(path) == 0 {
		return err
	}
	return fmt.Errorf("at %s: %w", short(FormatPointer(path)), err)
}

// show formats a value for a message: scalars by value, containers by type.
func show(v any) string {
	switch v := plain(v).(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("%q", short(v))
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	default:
		return short(strings.TrimSpace(fmt.Sprint(v)))
	}
}
