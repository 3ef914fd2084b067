package wirejson

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// scalar renders one value that is no message.
func scalar(dst []byte, f *field, o *found, hidden bool) ([]byte, error) {
	v := o.number
	if hidden && !f.isText() {
		v = 0
	}
	switch f.kind {
	case protoreflect.StringKind:
		if hidden {
			return quote(dst, []byte(Redacted)), nil
		}
		if !f.utf8 && !utf8.Valid(o.body) {
			return dst, errUTF8
		}
		return quote(dst, o.body), nil
	case protoreflect.BytesKind:
		body := o.body
		if hidden {
			body = []byte(Redacted)
		}
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, body)
		return append(dst, '"'), nil
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, v != 0), nil
	case protoreflect.EnumKind:
		return enum(dst, f, int64(v)), nil
	case protoreflect.FloatKind:
		return float(dst, float64(math.Float32frombits(uint32(v))), 32), nil
	case protoreflect.DoubleKind:
		return float(dst, math.Float64frombits(v), 64), nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return strconv.AppendUint(dst, v, 10), nil
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return append(strconv.AppendInt(append(dst, '"'), int64(v), 10), '"'), nil
	default: // uint64, fixed64
		return append(strconv.AppendUint(append(dst, '"'), v, 10), '"'), nil
	}
}

// enum renders an enum by its name, or by its number where the number has none.
func enum(dst []byte, f *field, v int64) []byte {
	if f.isNull {
		return append(dst, "null"...)
	}
	if d := f.values.ByNumber(protoreflect.EnumNumber(v)); d != nil {
		dst = append(dst, '"')
		dst = append(dst, d.Name()...)
		return append(dst, '"')
	}
	return strconv.AppendInt(dst, v, 10)
}

// float renders a floating number as encoding/json does, and what JSON has no number for as text.
func float(dst []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	}
	format := byte('f')
	abs := math.Abs(v)
	if abs != 0 && (bits == 64 && (abs < 1e-6 || abs >= 1e21) || bits == 32 && (float32(abs) < 1e-6 || float32(abs) >= 1e21)) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, v, format, -1, bits)
	if n := len(dst); format == 'e' && n >= 4 && string(dst[n-4:n-1]) == "e-0" {
		dst[n-2] = dst[n-1] // e-09 to e-9
		dst = dst[:n-1]
	}
	return dst
}

// plain are the bytes that stand for themselves in a JSON string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

// quote renders a text that is UTF-8.
func quote(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i, c := range s {
		if plain[c] {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// entry is one entry of a map: its key, and where on the stack its values lie.
type entry struct {
	key    found
	lo, hi int
}

// entriesOf renders a map, sorted by key. Of entries with the same key the last one holds.
func (r *Renderer) entriesOf(dst []byte, f *field, lo, hi, depth int, hidden bool) ([]byte, error) {
	key, value := r.field(f.message, 1), r.field(f.message, 2)
	stack, base := len(r.stack), len(r.entries)
	for i := lo; i < hi; i++ {
		from, err := r.open(f.message, i, i+1, depth+1)
		if err != nil {
			return dst, err
		}
		e := entry{lo: from, hi: len(r.stack)}
		for ; e.lo < e.hi && r.stack[e.lo].field == key; e.lo++ {
			e.key = r.stack[e.lo]
		}
		r.entries = append(r.entries, e)
	}
	list := r.entries[base:]
	byKey := func(a, b entry) int { return compareKeys(key, &a.key, &b.key) }
	if !slices.IsSortedFunc(list, byKey) {
		slices.SortStableFunc(list, byKey)
	}
	hidden = value.hides(hidden)
	start := len(dst)
	for i := base; i < base+len(list); i++ {
		e := r.entries[i]
		if i+1 < base+len(list) && compareKeys(key, &e.key, &r.entries[i+1].key) == 0 {
			for k := e.lo; k < e.hi; k++ {
				if err := r.check(value, r.stack[k].body, depth+2); err != nil {
					return dst, within(value, err)
				}
			}
			continue
		}
		dst = mapKey(append(dst, ','), key, &e.key)
		var err error
		switch {
		case value.message != nil:
			dst, err = r.message(append(dst, ':'), value.message, e.lo, e.hi, depth+2, hidden)
		case e.lo == e.hi:
			dst, err = scalar(append(dst, ':'), value, &found{}, hidden)
		default:
			dst, err = scalar(append(dst, ':'), value, &r.stack[e.hi-1], hidden)
		}
		if err != nil {
			return dst, err
		}
	}
	r.entries = r.entries[:base]
	r.stack = r.stack[:stack]
	if len(dst) == start { // a google.protobuf.Struct without fields
		return append(dst, '{', '}'), nil
	}
	dst[start] = '{'
	return append(dst, '}'), nil
}

// mapKey renders a key; all kinds of keys become text.
func mapKey(dst []byte, f *field, k *found) []byte {
	switch f.kind {
	case protoreflect.StringKind:
		return quote(dst, k.body)
	case protoreflect.BoolKind:
		dst = strconv.AppendBool(append(dst, '"'), k.number != 0)
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		dst = strconv.AppendUint(append(dst, '"'), k.number, 10)
	default:
		dst = strconv.AppendInt(append(dst, '"'), int64(k.number), 10)
	}
	return append(dst, '"')
}

func compareKeys(f *field, a, b *found) int {
	switch f.kind {
	case protoreflect.StringKind:
		return bytes.Compare(a.body, b.body)
	case protoreflect.BoolKind, protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return cmp.Compare(a.number, b.number)
	default:
		return cmp.Compare(int64(a.number), int64(b.number))
	}
}
