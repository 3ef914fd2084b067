package redact_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/nearside-mesh/nearside/agent/base/redact"
)

// rare uses features of protobuf that Envoy's API rarely or never uses: groups, enums that do not
// begin at zero, strings that are not UTF-8, and map keys of all kinds.
const rare = `
name: "rare.proto" package: "rare" syntax: "proto2"
enum_type { name: "Level" value { name: "HIGH" number: 3 } value { name: "LOW" number: -2 } }
enum_type { name: "State" value { name: "OFF" number: 0 } value { name: "ON" number: 1 } }
message_type {
  name: "All"
  field { name: "a_bool" number: 1 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "an_sint32" number: 2 type: TYPE_SINT32 label: LABEL_OPTIONAL }
  field { name: "an_sint64" number: 3 type: TYPE_SINT64 label: LABEL_REPEATED }
  field { name: "an_sfixed32" number: 4 type: TYPE_SFIXED32 label: LABEL_REPEATED options { packed: true } }
  field { name: "an_sfixed64" number: 5 type: TYPE_SFIXED64 label: LABEL_OPTIONAL }
  field { name: "a_fixed32" number: 6 type: TYPE_FIXED32 label: LABEL_OPTIONAL }
  field { name: "a_fixed64" number: 7 type: TYPE_FIXED64 label: LABEL_REPEATED options { packed: true } }
  field { name: "a_float" number: 8 type: TYPE_FLOAT label: LABEL_REPEATED }
  field { name: "a_double" number: 9 type: TYPE_DOUBLE label: LABEL_REPEATED options { packed: true } }
  field { name: "level" number: 10 type: TYPE_ENUM type_name: ".rare.Level" label: LABEL_OPTIONAL }
  field { name: "text" number: 11 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "group" number: 12 type: TYPE_GROUP type_name: ".rare.All.Group" label: LABEL_OPTIONAL }
  field { name: "groups" number: 13 type: TYPE_GROUP type_name: ".rare.All.Groups" label: LABEL_REPEATED }
  field { name: "one" number: 14 type: TYPE_GROUP type_name: ".rare.All.One" label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "other" number: 15 type: TYPE_MESSAGE type_name: ".rare.All" label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "third" number: 1000 type: TYPE_UINT32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "by_bool" number: 20 type: TYPE_MESSAGE type_name: ".rare.All.ByBoolEntry" label: LABEL_REPEATED }
  field { name: "by_sint64" number: 21 type: TYPE_MESSAGE type_name: ".rare.All.BySint64Entry" label: LABEL_REPEATED }
  field { name: "by_fixed32" number: 22 type: TYPE_MESSAGE type_name: ".rare.All.ByFixed32Entry" label: LABEL_REPEATED }
  field { name: "by_uint64" number: 24 type: TYPE_MESSAGE type_name: ".rare.All.ByUint64Entry" label: LABEL_REPEATED }
  field { name: "renamed" number: 23 type: TYPE_INT32 label: LABEL_OPTIONAL json_name: "a \"name\"" }
  oneof_decl { name: "choice" }
  nested_type {
    name: "Group"
    field { name: "inner" number: 1 type: TYPE_MESSAGE type_name: ".rare.All" label: LABEL_OPTIONAL }
    field { name: "text" number: 2 type: TYPE_STRING label: LABEL_REPEATED }
  }
  nested_type { name: "Groups" field { name: "inner" number: 1 type: TYPE_MESSAGE type_name: ".rare.All" label: LABEL_REPEATED } }
  nested_type { name: "One" field { name: "level" number: 5 type: TYPE_ENUM type_name: ".rare.Level" label: LABEL_OPTIONAL } }
  nested_type {
    name: "ByBoolEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_BOOL label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_ENUM type_name: ".rare.State" label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "BySint64Entry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_SINT64 label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "ByUint64Entry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_UINT64 label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "ByFixed32Entry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_FIXED32 label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".rare.All" label: LABEL_OPTIONAL }
  }
}`

// editions is the equivalent of rare in protobuf editions.
const editions = `
name: "editions.proto" package: "editions" syntax: "editions" edition: EDITION_2023
message_type {
  name: "All"
  field { name: "text" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL options { features { field_presence: IMPLICIT } } }
  field { name: "loose" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL options { features { utf8_validation: NONE } } }
  field { name: "inner" number: 3 type: TYPE_MESSAGE type_name: ".editions.All" label: LABEL_REPEATED options { features { message_encoding: DELIMITED } } }
  field { name: "number" number: 4 type: TYPE_UINT64 label: LABEL_OPTIONAL }
}`

func dynamic(t testing.TB, file string) protoreflect.MessageType {
	t.Helper()
	var f descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(file), &f); err != nil {
		t.Fatal(err)
	}
	d, err := protodesc.NewFile(&f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return dynamicpb.NewMessageType(d.Messages().Get(0))
}

// TestRareParts renders random messages with features that Envoy's API does not use.
func TestRareParts(t *testing.T) {
	for _, file := range []string{rare, editions} {
		mt := dynamic(t, file)
		r := redact.New(nil)
		rendered := 0
		for seed := range uint64(800) {
			rnd := newRandom(seed)
			m := mt.New()
			rnd.fill(m, 4)
			wire, err := proto.Marshal(m.Interface())
			if err != nil {
				t.Fatal(err)
			}
			if compare(t, r, mt, wire, nil) {
				rendered++
			}
			wire = rnd.mangle(mt.Descriptor(), wire, 5)
			compare(t, r, mt, wire, nil)
			if len(wire) > 0 {
				wire[rnd.IntN(len(wire))] ^= 1 << rnd.IntN(8)
			}
			compare(t, r, mt, wire, nil)
		}
		if rendered < 500 {
			t.Errorf("%s: only %d messages were rendered", mt.Descriptor().FullName(), rendered)
		}
	}
}

// TestTextThatIsNone sets invalid UTF-8 in string fields, with and without a later value that
// replaces it.
func TestTextThatIsNone(t *testing.T) {
	for _, file := range []string{rare, editions} {
		mt := dynamic(t, file)
		for _, name := range []protoreflect.Name{"text", "loose"} {
			fd := mt.Descriptor().Fields().ByName(name)
			if fd == nil {
				continue
			}
			bad := textRecord(fd.Number(), []byte("a\xff"))
			r := redact.New(nil)
			if compare(t, r, mt, join([]record{bad}), nil) {
				t.Errorf("%s: bytes that are no text were rendered", fd.FullName())
			}
			compare(t, r, mt, join([]record{bad, textRecord(fd.Number(), []byte("b"))}), nil)
		}
	}
}
