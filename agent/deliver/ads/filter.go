package ads

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// filter appends to dst what is used of an encoded message and says whether the message is intact.
// Nil keeps all.
type filter func(dst, raw []byte) (out []byte, ok bool)

// field is one field of an encoded message.
type field struct {
	num   protowire.Number
	typ   protowire.Type
	whole []byte // with its tag
	value []byte // of a length-delimited field, without the length; nil for others
}

// fieldsOf yields the fields of an encoded message. After the last one ok says whether the message
// is intact.
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

// onlyFields keeps the fields with these numbers, each by its filter.
func onlyFields(kept map[protowire.Number]filter) filter {
	return func(dst, raw []byte) (_ []byte, ok bool) {
		for f := range fieldsOf(raw, &ok) {
			keep, used := kept[f.num]
			switch {
			case !used:
			case keep == nil || f.typ != protowire.BytesType:
				dst = append(dst, f.whole...)
			default:
				value, intact := keep(nil, f.value)
				if !intact {
					return dst, false
				}
				dst = appendField(dst, f.num, value)
			}
		}
		return dst, ok
	}
}

// Field numbers of google.protobuf.Struct, its entries and google.protobuf.Value.
const (
	fieldStructFields = 1
	fieldEntryKey     = 1
	fieldEntryValue   = 2
	fieldNullValue    = 1
	fieldStringValue  = 3
	fieldStructValue  = 5
	fieldListValue    = 6
)

// onlyTexts keeps those fields of a google.protobuf.Struct that lie at one of the paths: texts as
// they are, and in the place of anything else null, which a reader finds to be no text either.
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
						key = "" // no path has it
					} else {
						key = string(e.value)
					}
				case fieldEntryValue:
					value = append(value[:len(value):len(value)], e.value...) // of several the last of each field counts
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

// maxKeyBytes bounds the names that are looked for in metadata.
const maxKeyBytes = 256

// pathsBelow returns what follows a key in those paths that begin with it, and whether there are
// any.
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

// onlyText returns a google.protobuf.Value with what is used of it: a text, or where there are
// paths below it, what lies at these.
func onlyText(below [][]string, raw []byte) (value []byte, ok bool) {
	var last field // of a oneof the last one counts
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
