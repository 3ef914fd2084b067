package danger_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nearside-mesh/nearside/agent/compute/danger"
)

// suspicious are parts of the names of fields that may name a file, a socket, or code.
var suspicious = []string{"path", "file", "dir", "pipe", "socket", "unix", "command", "exec", "script", "code", "lib",
	"plugin", "module", "env", "admin", "descriptor", "bpf"}

// TestEveryFieldIsJudged checks that each text field of Envoy's API whose name suggests a file, a
// socket, or code is either dangerous or in a list of harmless fields, so that an upgrade of the
// API cannot add one unnoticed.
func TestEveryFieldIsJudged(t *testing.T) {
	const list = "testdata/harmless-fields.txt"
	var got []string
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		md := mt.Descriptor()
		if !strings.HasPrefix(string(md.FullName()), "envoy.") || strings.HasPrefix(string(md.FullName()), "envoy.data.") {
			return true
		}
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			text := fd.Kind() == protoreflect.StringKind || fd.Kind() == protoreflect.BytesKind
			if text && danger.FieldReason(fd) == "" && slices.ContainsFunc(suspicious, func(word string) bool {
				return strings.Contains(string(fd.Name()), word)
			}) {
				got = append(got, string(fd.FullName()))
			}
		}
		return true
	})
	slices.Sort(got)
	text := strings.Join(got, "\n") + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(list, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("the harmless fields are\n%s\nCheck new ones: add them to the sinks, or update %s", text, list)
	}
}
