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

// Diff returns the patch that leads from a to b: applied to a it gives b, and it is empty when they
// are equal. It uses add, remove and replace alone, and the same values give the same patch.
//
// The patch is made to be read. Objects are compared member by member. Lists are compared by what
// their items are known by: a member "name", or another one of a few, that tells all items apart,
// else by equality; so an item that was inserted shifts nothing. An object or list of which nothing
// has stayed is replaced as a whole where that takes fewer operations; this is not done for the
// document itself and its members, so that documents of the form {kind: {name: value}} are compared
// name by name.
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

// named is the depth below which objects and lists may be replaced as a whole.
const named = 2

// diff adds the operations that lead from a to b at the path, and reports whether something was
// kept.
func (d *differ) diff(a, b any) (kept bool) {
	ra, isRaw := a.(json.RawMessage)
	if rb, ok := b.(json.RawMessage); ok && isRaw && bytes.Equal(ra, rb) {
		return true
	}
	from := len(d.out)
	switch x := plain(a).(type) {
	case map[string]any:
		if y, ok := plain(b).(map[string]any); ok {
			if sameType(x, y) {
				kept = d.objects(x, y)
			} else {
				d.replace(b)
			}
			return d.whole(from, kept, b)
		}
	case []any:
		if y, ok := plain(b).([]any); ok {
			kept = d.lists(x, y)
			return d.whole(from, kept, b)
		}
	}
	if Equal(a, b) {
		return true
	}
	d.replace(b)
	return false
}

// typeMember says what an object is, in the JSON form of protobuf messages.
const typeMember = "@type"

// sameType is false for objects that say that they are different things.
func sameType(a, b map[string]any) bool {
	s, ok := a[typeMember].(string)
	t, also := b[typeMember].(string)
	return !ok || !also || s == t
}

func (d *differ) replace(b any) {
	d.out = append(d.out, Operation{Op: Replace, Path: string(d.path), Value: b})
}

// whole replaces the operations since from by a single one where nothing was kept.
func (d *differ) whole(from int, kept bool, b any) bool {
	switch {
	case len(d.out) == from: // equal, be it empty
		return true
	case !kept && d.depth >= named && len(d.out)-from > 1:
		d.out = slices.Delete(d.out, from, len(d.out))
		d.replace(b)
	}
	return kept
}

func (d *differ) objects(a, b map[string]any) (kept bool) {
	for _, k := range union(a, b) {
		x, had := a[k]
		y, has := b[k]
		switch {
		case !has:
			d.out = append(d.out, Operation{Op: Remove, Path: d.join(k)})
		case !had:
			d.out = append(d.out, Operation{Op: Add, Path: d.join(k), Value: y})
		case d.in(k, x, y) && k != typeMember:
			kept = true
		}
	}
	return kept
}

// union returns the keys of two objects, sorted.
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

// in is diff one level deeper.
func (d *differ) in(token string, a, b any) bool {
	n := len(d.path)
	d.path = appendToken(d.path, token)
	d.depth++
	kept := d.diff(a, b)
	d.path = d.path[:n]
	d.depth--
	return kept
}

func (d *differ) join(token string) string {
	return string(appendToken(slices.Clip(d.path), token))
}

// Equal compares two values as RFC 6902 section 4.6 has it: numbers by their value, objects without
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
	return false // no JSON value
}

// plain decodes a raw part. What is not JSON stays as it is and equals nothing but the same bytes.
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

// sameNumber compares two numbers by their value.
func sameNumber(a, b any) bool {
	x, y := rational(a), rational(b)
	return x != nil && y != nil && x.Cmp(y) == 0
}

// maxExponent bounds the exponents of numbers that are compared: 1e999999999 has a billion digits.
const maxExponent = 1000

// rational returns the value of a number, nil for other values and for numbers beyond
// [maxExponent].
func rational(v any) *big.Rat {
	var text string
	switch v := v.(type) {
	case float64:
		return new(big.Rat).SetFloat64(v) // nil for what is not finite
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
