package accesslog

import (
	"slices"
	"strings"

	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/substitution"
)

const nameFile = "envoy.access_loggers.file"

var urlFile = typeURL(&filev3.FileAccessLog{})

// typeURL is the type of a packed message. What is packed here is written without the message, but whoever shows it
// needs the type to be known.
func typeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

// Field numbers of envoy.extensions.access_loggers.file.v3.FileAccessLog, and of the SubstitutionFormatString and the
// DataSource (envoy.config.core.v3) inside it.
const (
	fieldPath         = 1
	fieldLogFormat    = 5
	fieldJSONFormat   = 2
	fieldOmitEmpty    = 3
	fieldTextSource   = 5
	fieldInlineString = 3
)

// fileLog is the config of Envoy's file logger. A proxy has one for every outbound, so its wire form is written
// directly: building the messages first costs several times as much. scratch is room that may be used until it returns.
func fileLog(path, prefix string, t *template, v *values, scratch *[]byte) []byte {
	field, body := protowire.Number(fieldTextSource), (*scratch)[:0]
	if t.json {
		field, body = fieldJSONFormat, t.jsonStruct(body, v)
	} else {
		body = append(body, prefix...)
		body = append(substitution.AppendFormat(body, t.text, v.of), '\n')
	}
	*scratch = body
	inner := len(body) // of the field with the format
	if !t.json {
		inner = protowire.SizeTag(fieldInlineString) + protowire.SizeBytes(len(body))
	}
	format := protowire.SizeTag(field) + protowire.SizeBytes(inner)
	if t.omitEmpty {
		format += protowire.SizeTag(fieldOmitEmpty) + 1
	}
	size := protowire.SizeTag(fieldPath) + protowire.SizeBytes(len(path)) + protowire.SizeTag(fieldLogFormat) + protowire.SizeBytes(format)

	b := make([]byte, 0, size)
	b = protowire.AppendTag(b, fieldPath, protowire.BytesType)
	b = protowire.AppendString(b, path)
	b = appendLength(b, fieldLogFormat, format)
	if t.omitEmpty { // the library writes what is no oneof first
		b = protowire.AppendTag(b, fieldOmitEmpty, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	}
	b = appendLength(b, field, inner)
	if !t.json {
		b = appendLength(b, fieldInlineString, len(body))
	}
	return append(b, body...)
}

// appendLength begins a field whose value has n bytes.
func appendLength(b []byte, field protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(n))
}

// jsonStruct appends a JSON format as google.protobuf.Struct, its fields sorted by key. Envoy adds the line break itself.
func (t *template) jsonStruct(b []byte, v *values) []byte {
	order := make([]int, len(t.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(t.keys[a], t.keys[b]) })
	for _, i := range order {
		b = draft.AppendTag(b, t.keys[i], string(substitution.AppendFormat(nil, t.values[i], v.of)))
	}
	return b
}
