package accesslog

import (
	"slices"
	"strings"

	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy"
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

// fileLog is the config of Envoy's file logger, packed. A proxy has one for every outbound, so its wire form is written
// directly: building the messages first costs several times as much.
func fileLog(path, prefix string, t *template, v *values) *anypb.Any {
	var format []byte
	if t.json {
		format = appendBytes(format, fieldJSONFormat, t.jsonStruct(v))
	}
	if t.omitEmpty {
		format = protowire.AppendTag(format, fieldOmitEmpty, protowire.VarintType)
		format = protowire.AppendVarint(format, 1)
	}
	if !t.json {
		line := append(make([]byte, 0, 512), prefix...)
		line = append(envoy.AppendFormat(line, t.text, v.of), '\n')
		format = appendBytes(format, fieldTextSource, appendBytes(nil, fieldInlineString, line))
	}
	b := make([]byte, 0, len(path)+len(format)+16)
	b = protowire.AppendTag(b, fieldPath, protowire.BytesType)
	b = protowire.AppendString(b, path)
	return &anypb.Any{TypeUrl: urlFile, Value: appendBytes(b, fieldLogFormat, format)}
}

func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, value)
}

// jsonStruct is a JSON format as google.protobuf.Struct, its fields sorted by key. Envoy adds the line break itself.
func (t *template) jsonStruct(v *values) []byte {
	order := make([]int, len(t.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(t.keys[a], t.keys[b]) })
	var out []byte
	for _, i := range order {
		out = draft.AppendTag(out, t.keys[i], string(envoy.AppendFormat(nil, t.values[i], v.of)))
	}
	return out
}
