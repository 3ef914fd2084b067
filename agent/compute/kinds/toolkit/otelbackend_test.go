package toolkit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func decodeBackend(spec string) resource.Faults {
	_, faults := kinds.Registry().Decode("", fmt.Appendf(nil,
		`{"type":"MeshOpenTelemetryBackend","mesh":"default","name":"b","spec":%s}`, spec))
	return faults
}

func TestOTelBackend(t *testing.T) {
	for _, spec := range []string{
		`{}`,
		`{"endpoint":{}}`,
		`{"endpoint":{"address":"otel.example","port":4318,"path":"/x"},"protocol":"http"}`,
		`{"endpoint":{"address":"fd00::1"},"protocol":"grpc","env":{"mode":"Disabled"}}`,
		`{"env":{"mode":"Optional","precedence":"ExplicitFirst","allowSignalOverrides":false}}`,
	} {
		if faults := decodeBackend(spec); len(faults) > 0 {
			t.Errorf("%s: %v", spec, faults)
		}
	}
	for _, c := range []struct{ spec, field, reason string }{
		{`{"endpoint":{"address":"http://otel"}}`, "endpoint.address", ""},
		{`{"endpoint":{"port":0}}`, "endpoint.port", ""},
		{`{"endpoint":{"path":"/x"}}`, "endpoint.path", "requires protocol http"},
		{`{"endpoint":{"path":"x"},"protocol":"http"}`, "endpoint.path", "must begin with /"},
		{`{"endpoint":{"path":"/x?y"},"protocol":"http"}`, "endpoint.path", "a query"},
		{`{"protocol":"https"}`, "protocol", "grpc"},
		{`{"env":{"mode":"Required"}}`, "env.mode", "Give the collector in endpoint"},
		{`{"env":{"mode":"On"}}`, "env.mode", "Optional"},
		{`{"env":{"precedence":"First"}}`, "env.precedence", "EnvFirst"},
	} {
		faults := decodeBackend(c.spec)
		if len(faults) != 1 || faults[0].Field != "spec."+c.field || !strings.Contains(faults[0].Reason, c.reason) {
			t.Errorf("%s: want a fault at %s with %q, got %v", c.spec, c.field, c.reason, faults)
		}
	}
}

// TestOTelReference checks the collector of OpenTelemetry backends in all policies that have them.
func TestOTelReference(t *testing.T) {
	for kind, form := range map[string]string{
		"MeshTrace":     `{"default":{"backends":[{"type":"OpenTelemetry","openTelemetry":%s}]}}`,
		"MeshMetric":    `{"default":{"backends":[{"type":"OpenTelemetry","openTelemetry":%s}]}}`,
		"MeshAccessLog": `{"to":[{"targetRef":{"kind":"Mesh"},"default":{"backends":[{"type":"OpenTelemetry","openTelemetry":%s}]}}]}`,
	} {
		for _, c := range []struct{ conf, field, reason string }{
			{`{"backendRef":{"kind":"MeshOpenTelemetryBackend","labels":{"a":"b"}}}`, "", ""},
			{`{"endpoint":"otel"}`, "", ""},
			{`{}`, "endpoint", "missing"},
			{`{"endpoint":"otel","backendRef":{"kind":"MeshOpenTelemetryBackend","labels":{"a":"b"}}}`, "endpoint",
				"cannot be combined"},
			{`{"backendRef":{"kind":"MeshOpenTelemetryBackend"}}`, "backendRef.labels", "missing"},
			{`{"backendRef":{"kind":"MeshService","labels":{"a":"b"}}}`, "backendRef.kind", "MeshOpenTelemetryBackend"},
		} {
			_, faults := kinds.Registry().Decode("", fmt.Appendf(nil, `{"type":%q,"mesh":"default","name":"p","spec":%s}`,
				kind, fmt.Sprintf(form, c.conf)))
			ok := len(faults) == 0
			if c.field != "" {
				ok = len(faults) == 1 && strings.HasSuffix(faults[0].Field, ".openTelemetry."+c.field) &&
					strings.Contains(faults[0].Reason, c.reason)
			}
			if !ok {
				t.Errorf("%s %s: want a fault at %q with %q, got %v", kind, c.conf, c.field, c.reason, faults)
			}
		}
	}
}
