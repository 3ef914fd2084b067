package jsonpatch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxCopied is how many values the copy operations of one patch may add in all, so that a short patch cannot make a
// huge document.
const maxCopied = 1 << 20

// Options loosens the rules of RFC 6902 for patches that people write by hand against documents that leave out what is
// empty.
type Options struct {
	// CreateParents lets add make what its path leads through: where a member of an object is absent or null, a list
	// when the next token is an index or "-", else an object.
	CreateParents bool
	// IgnoreAbsent lets remove succeed where there is nothing.
	IgnoreAbsent bool
}

// Error says which operation of a patch failed and why.
type Error struct {
	Index     int // of the operation
	Operation Operation
	Err       error
}

// Error names the operation, its path and the reason.
func (e *Error) Error() string {
	return fmt.Sprintf("operation %d (%s %s): %v", e.Index, clip(e.Operation.Op), clip(e.Operation.Path), e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Apply returns the document that the patch makes of doc, which stays as it is. When an operation fails the result is
// an *Error, and nothing was applied (RFC 6902 section 5).
func (p Patch) Apply(doc any) (any, error) { return p.ApplyWith(doc, Options{}) }

// ApplyWith is Apply with looser rules.
func (p Patch) ApplyWith(doc any, o Options) (any, error) {
	a := applier{root: &node{value: doc}, Options: o}
	for i, op := range p {
		if err := a.apply(op); err != nil {
			return nil, &Error{Index: i, Operation: op, Err: err}
		}
	}
	return a.root.freeze(), nil
}

type applier struct {
	Options
	root   *node
	copied int
}

func (a *applier) apply(op Operation) error {
	path, err := ParsePointer(op.Path)
	if err != nil {
		return fmt.Errorf("path: %w", err)
	}
	switch op.Op {
	case Add:
		return a.add(path, &node{value: op.Value}, a.CreateParents)
	case Remove:
		_, err := a.remove(path, a.IgnoreAbsent)
		return err
	case Replace:
		n, err := a.find(path)
		if err != nil {
			return err
		}
		*n = node{value: op.Value}
		return nil
	case Test:
		n, err := a.find(path)
		if err != nil {
			return err
		}
		if have := n.clone().freeze(); !Equal(have, op.Value) {
			return fmt.Errorf("the value is %s, not %s", show(have), show(op.Value))
		}
		return nil
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
	return fmt.Errorf("%q is not an operation: give add, remove, replace, move, copy or test", clip(op.Op))
}

func (a *applier) copy(from, path []string) error {
	n, err := a.find(from)
	if err != nil {
		return fmt.Errorf("from: %w", err)
	}
	if a.copied += n.weight(maxCopied + 1); a.copied > maxCopied {
		return fmt.Errorf("the patch copies more than %d values: copy less", maxCopied)
	}
	return a.add(path, n.clone(), false)
}

// move is a remove and an add; the place must not lie inside what is moved (RFC 6902 section 4.4).
func (a *applier) move(from, path []string) error {
	if len(path) > len(from) && slices.Equal(path[:len(from)], from) {
		return fmt.Errorf("%q lies inside %q, so it cannot be moved there", clip(FormatPointer(path)), clip(FormatPointer(from)))
	}
	if slices.Equal(from, path) {
		_, err := a.find(from)
		return err
	}
	n, err := a.remove(from, false)
	if err != nil {
		return fmt.Errorf("from: %w", err)
	}
	return a.add(path, n, false)
}

// find returns the node at a path.
func (a *applier) find(path []string) (*node, error) {
	n := a.root
	for i, t := range path {
		next, err := n.child(t)
		if err != nil {
			return nil, at(path[:i], err)
		}
		n = next
	}
	return n, nil
}

// child returns the member or item of a node.
func (n *node) child(token string) (*node, error) {
	switch n.open() {
	case object:
		if c := n.object[token]; c != nil {
			return c, nil
		}
		return nil, absentError(fmt.Sprintf("the object has no member %q", clip(token)))
	case list:
		i, err := n.index(token, len(n.list)-1)
		if err != nil {
			return nil, err
		}
		return n.list[i], nil
	}
	return nil, fmt.Errorf("%s has no members", show(n.value))
}

// index reads the index of an item up to last.
func (n *node) index(token string, last int) (int, error) {
	if token == "-" {
		return 0, absentError(`"-" is the place behind the last item: only add, copy and move can go there`)
	}
	i, err := index(token)
	if err != nil {
		return 0, err
	}
	if i > last {
		return 0, absentError(fmt.Sprintf("the list has %d items, so there is no place %d", len(n.list), i))
	}
	return i, nil
}

// add puts a node at a path: it sets a member, or inserts an item.
func (a *applier) add(path []string, v *node, parents bool) error {
	if len(path) == 0 {
		*a.root = *v
		return nil
	}
	n := a.root
	last := len(path) - 1
	for i, t := range path[:last] {
		if parents {
			n.make(t, path[i+1])
		}
		next, err := n.child(t)
		if err != nil {
			return at(path[:i], err)
		}
		n = next
	}
	switch t := path[last]; n.open() {
	case object:
		n.object[t] = v
		return nil
	case list:
		if t == "-" {
			n.list = append(n.list, v)
			return nil
		}
		i, err := n.index(t, len(n.list))
		if err != nil {
			return at(path[:last], err)
		}
		n.list = slices.Insert(n.list, i, v)
		return nil
	}
	return at(path[:last], fmt.Errorf("%s has no members", show(n.value)))
}

// absent is true for no node and for null.
func (n *node) absent() bool {
	return n == nil || n.object == nil && !n.isList && plain(n.value) == nil
}

// make sees to it that the child of a token is there, as something that the next token can lead into.
func (n *node) make(token, next string) {
	switch n.open() {
	case object:
		if n.object[token].absent() {
			n.object[token] = parentOf(next)
		}
	case list:
		if i, err := index(token); err == nil && i == len(n.list) {
			n.list = append(n.list, parentOf(next))
		}
	}
}

// parentOf returns the empty container that a token can lead into.
func parentOf(token string) *node {
	if _, err := index(token); err == nil || token == "-" {
		return &node{isList: true}
	}
	return &node{object: map[string]*node{}}
}

// remove takes the node at a path out and returns it.
func (a *applier) remove(path []string, ignoreAbsent bool) (*node, error) {
	if len(path) == 0 {
		n := *a.root
		*a.root = node{}
		return &n, nil
	}
	last := len(path) - 1
	parent, err := a.find(path[:last])
	if err == nil {
		var n *node
		if n, err = parent.child(path[last]); err == nil {
			if parent.isList {
				i, _ := index(path[last])
				parent.list = slices.Delete(parent.list, i, i+1)
			} else {
				delete(parent.object, path[last])
			}
			return n, nil
		}
		err = at(path[:last], err)
	}
	var absent absentError
	if ignoreAbsent && errors.As(err, &absent) {
		return nil, nil
	}
	return nil, err
}

// absentError says that there is nothing at a path.
type absentError string

func (e absentError) Error() string { return string(e) }

// at says where in the document a step failed.
func at(path []string, err error) error {
	if len(path) == 0 {
		return err
	}
	return fmt.Errorf("at %s: %w", clip(FormatPointer(path)), err)
}

// show names a value in a message: scalars as they are, containers by what they are.
func show(v any) string {
	switch v := plain(v).(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("%q", clip(v))
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	default:
		return clip(strings.TrimSpace(fmt.Sprint(v)))
	}
}
