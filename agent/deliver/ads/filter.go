package ads

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// filter appends the used fields of an encoded message to dst, and reports whether the message is
// valid. A nil filter uses all fields.
type filter func(dst, raw []byte) (out []byte, ok bool)

// field is one field of an encoded message.
type field struct {
	num   protowire.Number
	typ   protowire.Type
	whole []byte // including the tag
	value []byte // value of a length-delimited field, without the length; nil for others
}

// fieldsOf yields the fields of an encoded message. Afterwards ok reports whether the message is
// valid.
func fieldsOf(raw []byte, ok *bool) iter.Seq[field] {
	return func(yield func(field) bool) {
		*ok = true
		for len(raw) > 0 {
			num, typ, tag := protowire.ConsumeTag(raw)
			if tag < 0 {
				*ok = false
				return
			}
			n := protowire.ConsumeFieldValue(num, typ, raw[tag:])
			if n < 0 {
				*ok = false
				return
			}
			f := field{num: num, typ: typ, whole: raw[:tag+n]}
			if typ == protowire.BytesType {
				f.value, _ = protowire.ConsumeBytes(raw[tag:])
			}
			if !yield(f) {
				return
			}
			raw = raw[tag+n:]
		}
	}
}

// onlyFields returns a filter for the fields with these numbers, each with its own filter.
func onlyFields(kept map[protowire.Number]filter) filter {
	return func(dst, raw []byte) (_ []byte, ok bool) {
		for f := range fieldsOf(raw, &ok) {
			nested, used := kept[f.num]
			switch {
			case !used:
			case nested == nil || f.typ != protowire.BytesType:
				dst = append(dst, f.whole...)
			default:
				value, intact := nested(nil, f.value)
				if !intact {
					return dst, false
				}
				dst = appendField(dst, f.num, value)
			}
		}
		return dst, ok
	}
}

// Field numbers of google.protobuf.Struct, its map entries, and google.protobuf.Value.
const (
	fieldStructFields = 1
	fieldEntryKey     = 1
	fieldEntryValue   = 2
	fieldNullValue    = 1
	fieldStringValue  = 3
	fieldStructValue  = 5
	fieldListValue    = 6
)

// onlyTexts returns a filter for the fields of a google.protobuf.Struct at the given paths. Strings
// are used, all other values are replaced by null.
func onlyTexts(paths [][]string) filter {
	return func(dst, raw []byte) (_ []byte, ok bool) {
		for f := range fieldsOf(raw, &ok) {
			if f.num != fieldStructFields {
				continue
			}
			var key string
			var value []byte
			var intact bool
			for e := range fieldsOf(f.value, &intact) {
				switch e.num {
				case fieldEntryKey:
					if len(e.value) > maxKeyBytes {
						key = "" // matches no path
					} else {
						key = string(e.value)
					}
				case fieldEntryValue:
					value = append(value[:len(value):len(value)], e.value...) // if a field is repeated, the last one counts
				}
			}
			if !intact {
				return dst, false
			}
			below, used := pathsBelow(paths, key)
			if !used {
				continue
			}
			if value, intact = onlyText(below, value); !intact {
				return dst, false
			}
			entry := appendField(nil, fieldEntryKey, []byte(key))
			dst = appendField(dst, fieldStructFields, appendField(entry, fieldEntryValue, value))
		}
		return dst, ok
	}
}

// maxKeyBytes is the maximum length of a used key in the metadata.
const maxKeyBytes = 256

// pathsBelow returns the remainders of the paths that begin with a key, and whether there are such
// paths.
func pathsBelow(paths [][]string, key string) (below [][]string, used bool) {
	for _, p := range paths {
		if p[0] == key {
			used = true
			if len(p) > 1 {
				below = append(below, p[1:])
			}
		}
	}
	return below, used
}

// onlyText returns the used part of a google.protobuf.Value: a string, or, if paths are given, the
// fields at these paths.
func onlyText(below [][]string, raw []byte) (value []byte, ok bool) {
	var last field // the last member of a oneof counts
	for f := range fieldsOf(raw, &ok) {
		if f.num >= fieldNullValue && f.num <= fieldListValue {
			last = f
		}
	}
	switch {
	case !ok:
		return nil, false
	case len(below) == 0 && last.num == fieldStringValue:
		return slices.Clone(last.whole), true
	case len(below) > 0 && last.num == fieldStructValue:
		inner, intact := onlyTexts(below)(nil, last.value)
		return appendField(nil, fieldStructValue, inner), intact
	}
	return protowire.AppendVarint(protowire.AppendTag(nil, fieldNullValue, protowire.VarintType), 0), true
}

func appendField(dst []byte, n protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, n, protowire.BytesType), value)
}
