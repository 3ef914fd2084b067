package jsonpatch

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Diff returns the patch from a to b: applied to a, it gives b. It is empty if they are equal. It
// uses only add, remove, and replace, and is deterministic.
//
// The patch is made for reading. Objects are compared by member. List items are matched by a member
// such as "name" that identifies all items, and otherwise by equality, so an inserted item does not
// shift the others. If an object or list has no unchanged parts, it is replaced as a whole if that
// takes fewer operations. This does not apply to the document itself and its members, so documents
// of the form {kind: {name: value}} are compared by name.
func Diff(a, b any) Patch {
	var d differ
	d.diff(a, b)
	return d.out
}

type differ struct {
	out   Patch
	path  []byte
	depth int
}

// named is the depth from which objects and lists may be replaced as a whole.
const named = 2

// diff adds the operations from a to b at the current path and reports whether the values have
// common parts.
func (d *differ) diff(a, b any) (shared bool) {
	ra, isRaw := a.(json.RawMessage)
	if rb, ok := b.(json.RawMessage); ok && isRaw && bytes.Equal(ra, rb) {
		return true
	}
	from := len(d.out)
	switch x := plain(a).(type) {
	case map[string]any:
		if y, ok := plain(b).(map[string]any); ok {
			if sameType(x, y) {
				shared = d.objects(x, y)
			} else {
				d.replace(b)
			}
			return d.whole(from, shared, b)
		}
	case []any:
		if y, ok := plain(b).([]any); ok {
			shared = d.lists(x, y)
			return d.whole(from, shared, b)
		}
	}
	if Equal(a, b) {
		return true
	}
	d.replace(b)
	return false
}

// typeMember is the type of an object in the JSON form of protobuf messages.
const typeMember = "@type"

// sameType is false if the objects have different types.
func sameType(a, b map[string]any) bool {
	s, ok := a[typeMember].(string)
	t, also := b[typeMember].(string)
	return !ok || !also || s == t
}

func (d *differ) replace(b any) {
	d.out = append(d.out, Operation{Op: Replace, Path: string(d.path), Value: b})
}

// whole replaces the operations since from by a single replace if nothing is shared.
func (d *differ) whole(from int, shared bool, b any) bool {
	switch {
	case len(d.out) == from: // equal, even if empty
		return true
	case !shared && d.depth >= named && len(d.out)-from > 1:
		d.out = slices.Delete(d.out, from, len(d.out))
		d.replace(b)
	}
	return shared
}

func (d *differ) objects(a, b map[string]any) (shared bool) {
	for _, k := range union(a, b) {
		x, had := a[k]
		y, has := b[k]
		switch {
		case !has:
			d.out = append(d.out, Operation{Op: Remove, Path: d.join(k)})
		case !had:
			d.out = append(d.out, Operation{Op: Add, Path: d.join(k), Value: y})
		case d.in(k, x, y) && k != typeMember:
			shared = true
		}
	}
	return shared
}

// union returns the sorted keys of two objects.
func union(a, b map[string]any) []string {
	keys := slices.AppendSeq(make([]string, 0, len(a)), maps.Keys(a))
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// in calls diff one level deeper.
func (d *differ) in(token string, a, b any) bool {
	n := len(d.path)
	d.path = appendToken(d.path, token)
	d.depth++
	shared := d.diff(a, b)
	d.path = d.path[:n]
	d.depth--
	return shared
}

func (d *differ) join(token string) string {
	return string(appendToken(slices.Clip(d.path), token))
}

// Equal compares two values as defined in RFC 6902 section 4.6: numbers by value, objects without
// regard to order.
func Equal(a, b any) bool {
	ra, isRaw := a.(json.RawMessage)
	if rb, ok := b.(json.RawMessage); ok && isRaw && bytes.Equal(ra, rb) {
		return true
	}
	switch a := plain(a).(type) {
	case nil, bool, string:
		return a == plain(b)
	case map[string]any:
		b, ok := plain(b).(map[string]any)
		return ok && maps.EqualFunc(a, b, Equal)
	case []any:
		b, ok := plain(b).([]any)
		return ok && slices.EqualFunc(a, b, Equal)
	case float64, json.Number:
		b := plain(b)
		return a == b || sameNumber(a, b)
	}
	return false // not a JSON value
}

// plain decodes a raw part. Invalid JSON is returned unchanged and equals only the same bytes.
func plain(v any) any {
	raw, ok := v.(json.RawMessage)
	if !ok {
		return v
	}
	d, err := Decode(raw)
	if err != nil {
		return v
	}
	return d
}

// sameNumber compares two numbers by value.
func sameNumber(a, b any) bool {
	x, y := rational(a), rational(b)
	return x != nil && y != nil && x.Cmp(y) == 0
}

// maxExponent limits the exponents of numbers that are compared: 1e999999999 has a billion digits.
const maxExponent = 1000

// rational returns the value of a number, or nil for other values and for numbers beyond
// [maxExponent].
func rational(v any) *big.Rat {
	var text string
	switch v := v.(type) {
	case float64:
		return new(big.Rat).SetFloat64(v) // nil if not finite
	case json.Number:
		text = string(v)
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if e, err := strconv.Atoi(text[i+1:]); err != nil || e < -maxExponent || e > maxExponent {
			return nil
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return r
}
