package resource

import (
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
	ti := &typeInfo{}
	p := reflect.PointerTo(t)
	ti.node = p.Implements(nodeDecoderType)
	ti.text = p.Implements(textUnmarshalerType)
	if t.Kind() == reflect.Struct {
		ti.fields = fieldsOf(t, nil)
	}
	d.types[t] = ti
	return ti
}

func fieldsOf(t reflect.Type, at []int) []fieldInfo {
	var out []fieldInfo
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(append([]int(nil), at...), i)
		switch {
		case name == "-":
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			out = append(out, fieldsOf(f.Type, index)...)
		case !f.IsExported():
		case name == "":
			out = append(out, fieldInfo{f.Name, index, f.Tag.Get("check")})
		default:
			out = append(out, fieldInfo{name, index, f.Tag.Get("check")})
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
