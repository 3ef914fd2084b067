package check

import (
	udpatypev1 "github.com/cncf/xds/go/udpa/type/v1"
	xdstypev3 "github.com/cncf/xds/go/xds/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// structured is a message in JSON form. Patches use it for extensions whose types they lack.
type structured struct {
	url   string
	value *structpb.Struct
}

func typedStruct(m proto.Message) (structured, bool) {
	switch m := m.(type) {
	case *xdstypev3.TypedStruct:
		return structured{m.GetTypeUrl(), m.GetValue()}, true
	case *udpatypev1.TypedStruct:
		return structured{m.GetTypeUrl(), m.GetValue()}, true
	}
	return structured{}, false
}

// into decodes the value into a message.
func (s structured) into(m proto.Message) error {
	text, err := protojson.Marshal(s.value)
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{RecursionLimit: 100}.Unmarshal(text, m)
}
