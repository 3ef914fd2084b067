package resource

import (
	"cmp"
	"encoding"
	"reflect"
	"strings"
)

// typeInfo is what the decoder needs to know of a type.
type typeInfo struct {
	node, text bool // decodes nodes, decodes text
	fields     []fieldInfo
}

type fieldInfo struct {
	name  string
	index []int
	check string // its tag of that name
}

var (
	nodeDecoderType     = reflect.TypeFor[nodeDecoder]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (d *decoder) info(t reflect.Type) *typeInfo {
	if ti, ok := d.types[t]; ok {
		return ti
	}
	p := reflect.PointerTo(t)
	ti := &typeInfo{node: p.Implements(nodeDecoderType), text: p.Implements(textUnmarshalerType)}
	if t.Kind() == reflect.Struct {
		ti.fields = fieldsOf(t)
	}
	d.types[t] = ti
	return ti
}

func fieldsOf(t reflect.Type) []fieldInfo {
	var out []fieldInfo
	for _, f := range reflect.VisibleFields(t) { // those of embedded structs follow these
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "-" && f.IsExported() && (name != "" || !f.Anonymous) {
			out = append(out, fieldInfo{cmp.Or(name, f.Name), f.Index, f.Tag.Get("check")})
		}
	}
	return out
}

func (ti *typeInfo) find(name string) *fieldInfo {
	for i := range ti.fields {
		if ti.fields[i].name == name {
			return &ti.fields[i]
		}
	}
	return nil
}
