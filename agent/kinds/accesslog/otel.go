package accesslog

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/envoy/substitution"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// maxAttributes bounds the attributes of a record.
const maxAttributes = 128

func (o *OTel) validate(v *resource.Validator) {
	toolkit.CheckCollector(v.Field("endpoint"), o.Endpoint)
	if toolkit.AtMost(v.Field("attributes"), len(o.Attributes), maxAttributes, "attributes") {
		seen := map[string]int{}
		for i, a := range o.Attributes {
			at := v.Field("attributes").Index(i)
			if first, ok := seen[a.Key]; ok {
				at.Field("key").Faultf("%q is already the key of attributes[%d]: each attribute has its own", toolkit.Clip(a.Key), first)
			} else if a.Key == "" {
				at.Field("key").Faultf("the key is missing")
			}
			seen[a.Key] = i
			parse(at.Field("value"), a.Value)
		}
	}
	if o.Body != nil {
		readBody(v.Field("body"), o.Body.JSON)
	}
}

// anyValue is an OTLP AnyValue of those that Envoy fills in: a text, a list, or fields with names.
type anyValue struct {
	text   []substitution.Segment
	list   []anyValue // not nil for a list
	fields []anyField // not nil for fields
}

type anyField struct {
	key   string
	value anyValue
}

// readBody reads a body: a format string, or an AnyValue in its JSON form.
func readBody(v *resource.Validator, raw json.RawMessage) anyValue {
	if s, ok := str(raw); ok {
		return anyValue{text: parse(v, s)}
	}
	return readAny(v, raw)
}

// readAny reads an AnyValue in the JSON form of protobuf, with names in either spelling.
func readAny(v *resource.Validator, raw json.RawMessage) anyValue {
	fields, ok := object(raw)
	if !ok || len(fields) != 1 {
		v.Faultf("a value is one of {stringValue: …}, {arrayValue: {values: […]}} and {kvlistValue: {values: [{key: …, value: …}]}}")
		return anyValue{}
	}
	for name, inner := range fields {
		at := v.Field(toolkit.Clip(name))
		switch name {
		case "stringValue", "string_value":
			s, ok := str(inner)
			if !ok {
				at.Faultf("a string is wanted: write it in quotes")
			}
			return anyValue{text: parse(at, s)}
		case "arrayValue", "array_value":
			out := anyValue{list: []anyValue{}}
			for i, item := range valuesIn(at, inner) {
				out.list = append(out.list, readAny(at.Field("values").Index(i), item))
			}
			return out
		case "kvlistValue", "kvlist_value":
			out := anyValue{fields: []anyField{}}
			for i, item := range valuesIn(at, inner) {
				out.fields = append(out.fields, readAnyField(at.Field("values").Index(i), item))
			}
			return out
		case "boolValue", "bool_value", "intValue", "int_value", "doubleValue", "double_value", "bytesValue", "bytes_value":
			at.Faultf("Envoy takes no values but strings, lists and fields: write it as stringValue")
		default:
			at.Faultf("unknown field; known here: stringValue, arrayValue, kvlistValue")
		}
	}
	return anyValue{}
}

// valuesIn reads {values: […]}.
func valuesIn(v *resource.Validator, raw json.RawMessage) []json.RawMessage {
	fields, ok := object(raw)
	if !ok {
		v.Faultf("{values: […]} is wanted")
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if k != "values" {
			v.Field(toolkit.Clip(k)).Faultf("unknown field; known here: values")
		}
	}
	items, ok := list(fields["values"])
	if !ok && fields["values"] != nil {
		v.Field("values").Faultf("a list is wanted")
	}
	return items
}

func readAnyField(v *resource.Validator, raw json.RawMessage) anyField {
	fields, ok := object(raw)
	if !ok {
		v.Faultf("{key: …, value: …} is wanted")
		return anyField{}
	}
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if k != "key" && k != "value" {
			v.Field(toolkit.Clip(k)).Faultf("unknown field; known here: key, value")
		}
	}
	key, _ := str(fields["key"])
	if key == "" {
		v.Field("key").Faultf("the key is missing")
	}
	return anyField{key: key, value: readAny(v.Field("value"), fields["value"])}
}
