package proxypatch

import (
	"reflect"
	"strings"

	"google.golang.org/protobuf/proto"
)

// structFields returns the fields of a generated struct by the names that they have in the proto file.
func structFields(m proto.Message) map[string]string {
	out := map[string]string{}
	t := reflect.TypeOf(m).Elem()
	for i := range t.NumField() {
		for _, part := range strings.Split(t.Field(i).Tag.Get("protobuf"), ",") {
			if name, ok := strings.CutPrefix(part, "name="); ok {
				out[name] = t.Field(i).Name
			}
		}
	}
	return out
}
