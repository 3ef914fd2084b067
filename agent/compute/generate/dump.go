package generate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"

	"github.com/nearside-mesh/nearside/agent/base/redact"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// RedactDump returns Envoy's answer to /config_dump without secrets: those that are hidden in
// configs, and Envoy's own credentials, such as the token in its bootstrap. It replaces a message
// of an unknown type with the name of the type.
func RedactDump(body []byte) (json.RawMessage, error) {
	marked, err := secrets()
	if err != nil {
		return nil, err
	}
	dump := &adminv3.ConfigDump{}
	read := protojson.UnmarshalOptions{DiscardUnknown: true, AllowPartial: true}
	if err := read.Unmarshal(body, dump); err != nil {
		var known []byte
		if known, err = withoutUnknown(body); err == nil {
			err = read.Unmarshal(known, dump)
		}
		if err != nil {
			return nil, fmt.Errorf("what the Envoy says is not a config dump: %s",
				strings.ReplaceAll(err.Error(), "\u00a0", " "))
		}
	}
	wire, err := proto.MarshalOptions{AllowPartial: true}.Marshal(dump)
	if err != nil {
		return nil, fmt.Errorf("config dump: %w", err)
	}
	out, err := redact.New(func(f protoreflect.FieldDescriptor) redact.Secrecy {
		switch f.FullName() {
		case "envoy.config.core.v3.GrpcService.initial_metadata",
			"envoy.config.core.v3.GrpcService.GoogleGrpc.call_credentials":
			return redact.Hide
		case "envoy.config.core.v3.HeaderValue.key":
			return redact.Show
		}
		return marked(f)
	}).JSON(dump.ProtoReflect().Type(), wire)
	if err != nil {
		return nil, fmt.Errorf("config dump: %w", err)
	}
	return secret.WithoutKeys(out)
}

// withoutUnknown replaces messages of unknown types with the names of the types.
func withoutUnknown(body []byte) ([]byte, error) {
	var doc any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	return json.Marshal(known(doc))
}

func known(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = known(v[i])
		}
	case map[string]any:
		if url, packed := v["@type"].(string); packed {
			if _, err := protoregistry.GlobalTypes.FindMessageByURL(url); err != nil {
				return map[string]any{"@type": "type.googleapis.com/google.protobuf.StringValue",
					"value": url + " is not known to this version, and not shown"}
			}
		}
		for k := range v {
			v[k] = known(v[k])
		}
	}
	return v
}
