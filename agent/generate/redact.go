package generate

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nearside-mesh/nearside/agent/redact"
)

// sensitive is the option by which Envoy's API marks fields with private keys and the like.
const sensitive = "udpa.annotations.sensitive"

// secrets returns what is hidden when a config is shown: the fields that Envoy's API marks, but not where a secret is
// kept. It fails when the program does not know the mark, so that nothing is shown for want of it.
func secrets() (func(protoreflect.FieldDescriptor) redact.Secrecy, error) {
	mark, err := protoregistry.GlobalTypes.FindExtensionByName(sensitive)
	if err != nil {
		return nil, fmt.Errorf("secret fields cannot be told from others without the option %s: %w", sensitive, err)
	}
	return func(f protoreflect.FieldDescriptor) redact.Secrecy {
		switch f.FullName() {
		case "envoy.config.core.v3.DataSource.filename",
			"envoy.config.core.v3.DataSource.environment_variable",
			"envoy.config.core.v3.DataSource.watched_directory":
			return redact.Show
		}
		if marked, ok := proto.GetExtension(f.Options(), mark).(bool); ok && marked {
			return redact.Hide
		}
		return redact.Inherit
	}, nil
}
