package check

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// structFields maps the Go field names of a generated struct to the field names in the proto file.
func structFields(m proto.Message) map[string]string {
	out := map[string]string{}
	t := reflect.TypeOf(m).Elem()
	for i := range t.NumField() {
		for _, option := range strings.Split(t.Field(i).Tag.Get("protobuf"), ",") {
			if name, ok := strings.CutPrefix(option, "name="); ok {
				out[name] = t.Field(i).Name
			}
		}
	}
	return out
}

// TestFieldsByGoName checks that fieldOf finds the fields of all messages by their Go names,
// which validation errors contain.
func TestFieldsByGoName(t *testing.T) {
	n := 0
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		if !strings.HasPrefix(string(mt.Descriptor().FullName()), "envoy.") || mt.Descriptor().IsMapEntry() {
			return true
		}
		names := structFields(mt.New().Interface())
		for i := range mt.Descriptor().Fields().Len() {
			fd := mt.Descriptor().Fields().Get(i)
			if fd.ContainingOneof() != nil {
				continue // a field of a different struct
			}
			n++
			if jsonName, found, _ := fieldOf(names[string(fd.Name())], mt.New()); found != fd || jsonName != fd.JSONName() {
				t.Errorf("%s: %q is found as %v, %q", fd.FullName(), names[string(fd.Name())], found, jsonName)
			}
		}
		return true
	})
	if n < 1000 {
		t.Errorf("only %d fields were compared", n)
	}
}
