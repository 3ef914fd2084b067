package strict

import (
	"cmp"
	"encoding"
	"reflect"
	"strconv"
	"strings"
)

// NodeDecoder is implemented by types that decode themselves from nodes.
type NodeDecoder interface {
	DecodeNode(d *Decoder, n *Node)
}

// nullDecoder is a [NodeDecoder] that accepts null.
type nullDecoder interface{ DecodesNull() }

// Field describes a field of a struct to the hooks of a decoder.
type Field struct {
	Name  string            // in documents
	Tag   reflect.StructTag // of the Go field
	Check string            // value of the tag "check"
	Max   int               // value of the tag "max"; 0 if not set
	index []int
}

// Types caches information about the types that decoders fill. It is not safe for concurrent use.
type Types map[reflect.Type]*typeInfo

type typeInfo struct {
	node, null, text bool // decodes nodes; accepts null; decodes text
	fields           []Field
}

var (
	nodeDecoderType     = reflect.TypeFor[NodeDecoder]()
	nullDecoderType     = reflect.TypeFor[nullDecoder]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// IsValue reports whether a type decodes itself, so its Go fields are not fields of the document.
func IsValue(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(nodeDecoderType) || IsText(t)
}

// IsText reports whether a type decodes itself from strings.
func IsText(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(textUnmarshalerType) && !p.Implements(nodeDecoderType)
}

func (ts Types) of(t reflect.Type) *typeInfo {
	if ti, ok := ts[t]; ok {
		return ti
	}
	p := reflect.PointerTo(t)
	ti := &typeInfo{
		node: p.Implements(nodeDecoderType), null: p.Implements(nullDecoderType), text: p.Implements(textUnmarshalerType),
	}
	if t.Kind() == reflect.Struct {
		ti.fields = FieldsOf(t)
	}
	ts[t] = ti
	return ti
}

// FieldsOf returns the document fields of a struct, including those of embedded structs.
func FieldsOf(t reflect.Type) []Field {
	var out []Field
	for _, f := range reflect.VisibleFields(t) { // fields of embedded structs follow
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "-" && f.IsExported() && (name != "" || !f.Anonymous) {
			limit, _ := strconv.Atoi(f.Tag.Get("max"))
			out = append(out, Field{cmp.Or(name, f.Name), f.Tag, f.Tag.Get("check"), limit, f.Index})
		}
	}
	return out
}

// In returns the Go field in a struct type and the struct that declares it.
func (f *Field) In(t reflect.Type) (field reflect.StructField, holder reflect.Type) {
	holder = t
	if above := f.index[:len(f.index)-1]; len(above) > 0 {
		holder = t.FieldByIndex(above).Type
	}
	return t.FieldByIndex(f.index), holder
}

func (ti *typeInfo) find(name string) *Field {
	for i := range ti.fields {
		if ti.fields[i].Name == name {
			return &ti.fields[i]
		}
	}
	return nil
}

// names returns the names of the fields.
func (ti *typeInfo) names() []string {
	names := make([]string, len(ti.fields))
	for i := range ti.fields {
		names[i] = ti.fields[i].Name
	}
	return names
}

// fewFields is the maximum number of fields that a message lists.
const fewFields = 8

// list returns a suffix for messages that lists the fields; "" if there are none or too many.
func (ti *typeInfo) list() string {
	if len(ti.fields) == 0 || len(ti.fields) > fewFields {
		return ""
	}
	return "; its fields: " + strings.Join(ti.names(), ", ")
}
