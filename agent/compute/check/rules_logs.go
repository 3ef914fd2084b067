package check

//lint:file-ignore SA1019 fields that Envoy still reads are checked

import (
	"maps"
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	fluentdv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/fluentd/v3"
	otelv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// checkFileLog checks a file access log and records its file.
func checkFileLog(s *subject, m *filelogv3.FileAccessLog) {
	s.out.files = append(s.out.files, sink{s.pointer("path"), m.GetPath()})
	checkFormatText(s, 105, m.GetFormat(), "format")
	checkJSONFormat(s, m.GetJsonFormat(), "jsonFormat", nil)
	checkJSONFormat(s, m.GetTypedJsonFormat(), "typedJsonFormat", nil)
}

// checkFormat checks the format of a log or of a local reply's body.
func checkFormat(s *subject, m *corev3.SubstitutionFormatString) {
	rule := 105
	if s.inside("envoy.extensions.filters.network.http_connection_manager.v3.LocalReplyConfig") {
		rule = 50
	}
	formatters := m.GetFormatters()
	checkFormatText(s, rule, m.GetTextFormat(), "textFormat", formatters...)
	if text, ok := inline(m.GetTextFormatSource()); ok {
		checkFormatText(s, rule, string(text), "textFormatSource", formatters...)
	}
	checkJSONFormat(s, m.GetJsonFormat(), "jsonFormat", formatters)
}

// checkCELFilter checks the expression of a log filter.
func checkCELFilter(s *subject, m *celfilterv3.ExpressionFilter) {
	if why := syntax.CELFault(m.GetExpression()); why != "" {
		s.report(107, finding.Reject, "expression", "%q is not a CEL expression: %s", clip.Value(m.GetExpression()), why)
	}
}

// checkExtensionFilter checks the type of a log filter.
func checkExtensionFilter(s *subject, m *accesslogv3.ExtensionFilter) {
	if m.GetTypedConfig() == nil {
		s.report(107, finding.Reject, "typedConfig", "filter %q has no typed_config, and Envoy needs its type",
			clip.Value(m.GetName()))
	}
}

// checkFluentd checks a fluentd access log. When Envoy loads it, it looks for its cluster among
// those of the bootstrap.
func checkFluentd(s *subject, m *fluentdv3.FluentdAccessLogConfig) {
	s.refer(staticCluster, m.GetCluster(), "cluster", 108, finding.Reject,
		"a fluentd log can only use a cluster of the bootstrap")
	checkJSONFormat(s, m.GetRecord(), "record", m.GetFormatters())
	if b := m.GetRetryOptions().GetBackoffOptions(); b.GetMaxInterval() != nil &&
		b.GetMaxInterval().AsDuration() < b.GetBaseInterval().AsDuration() {
		s.report(66, finding.Reject, "retryOptions/backoffOptions/maxInterval", "max_interval %v is below base_interval %v",
			b.GetMaxInterval().AsDuration(), b.GetBaseInterval().AsDuration())
	}
}

// checkCustomTag checks a tag of traces.
func checkCustomTag(s *subject, m *tracingv3.CustomTag) {
	if v, is := m.GetType().(*tracingv3.CustomTag_Value); is {
		s.out.uses.add(versioned["CustomTag.value"])
		checkFormatText(s, 50, v.Value, "value")
	}
}

// checkJSONFormat checks the values of a JSON format. Keys are literal.
func checkJSONFormat(s *subject, m *structpb.Struct, at string, formatters []*corev3.TypedExtensionConfig) {
	for _, k := range slices.Sorted(maps.Keys(m.GetFields())) {
		checkJSONValue(s, m.GetFields()[k], at+"/"+finding.PointerKey(k), formatters)
	}
}

func checkJSONValue(s *subject, v *structpb.Value, at string, formatters []*corev3.TypedExtensionConfig) {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		checkFormatText(s, 105, k.StringValue, at, formatters...)
	case *structpb.Value_StructValue:
		checkJSONFormat(s, k.StructValue, at, formatters)
	case *structpb.Value_ListValue:
		for i, e := range k.ListValue.GetValues() {
			checkJSONValue(s, e, at+"/"+index(i), formatters)
		}
	case *structpb.Value_BoolValue, *structpb.Value_NullValue:
		s.report(105, finding.Warning, at, "older Envoys do not accept true, false, or null in a JSON format: use a string")
	}
}

// checkTelemetryLog checks an OpenTelemetry access log: strings are formats, and no other plain
// values are allowed.
func checkTelemetryLog(s *subject, m *otelv3.OpenTelemetryAccessLogConfig) {
	checkTelemetryValue(s, m.GetBody(), "body")
	for i, kv := range m.GetAttributes().GetValues() {
		checkTelemetryValue(s, kv.GetValue(), finding.Item("attributes/values", i, "value"))
	}
}

func checkTelemetryValue(s *subject, v *commonv1.AnyValue, at string) {
	switch k := v.GetValue().(type) {
	case nil:
	case *commonv1.AnyValue_StringValue:
		checkFormatText(s, 105, k.StringValue, at+"/stringValue")
	case *commonv1.AnyValue_KvlistValue:
		for i, kv := range k.KvlistValue.GetValues() {
			checkTelemetryValue(s, kv.GetValue(), finding.Item(at+"/kvlistValue/values", i, "value"))
		}
	case *commonv1.AnyValue_ArrayValue:
		for i, e := range k.ArrayValue.GetValues() {
			checkTelemetryValue(s, e, finding.Item(at+"/arrayValue/values", i))
		}
	default:
		s.report(105, finding.Reject, at, "Envoy accepts only strings, lists, and nested keys here: use a string")
	}
}

// checkEnvoyGRPC records the cluster of a gRPC service. Envoy looks it up when it loads the
// service's user.
func checkEnvoyGRPC(s *subject, m *corev3.GrpcService_EnvoyGrpc) {
	if s.inside("envoy.config.core.v3.ApiConfigSource") {
		s.refer(staticCluster, m.GetClusterName(), "clusterName", 81, finding.Reject,
			"config can only come from a cluster of the bootstrap")
		return
	}
	s.refer(envoy.KindCluster, m.GetClusterName(), "clusterName", 108, finding.Warning,
		"logs sent to it are lost until it does")
}

// staticCluster is the kind of a reference to a cluster of the bootstrap.
const staticCluster = envoy.NumKinds + 1

func checkHTTPURI(s *subject, m *corev3.HttpUri) {
	if m.GetCluster() != "" {
		s.refer(envoy.KindCluster, m.GetCluster(), "cluster", 108, finding.Warning, "what is sent there is lost")
	}
}

func checkAPISource(s *subject, m *corev3.ApiConfigSource) {
	for i, c := range m.GetClusterNames() {
		s.refer(staticCluster, c, finding.Item("clusterNames", i), 81, finding.Reject,
			"config can only come from a cluster of the bootstrap")
	}
}

func checkZipkin(s *subject, m *tracev3.ZipkinConfig)   { checkCollector(s, m.GetCollectorCluster()) }
func checkDatadog(s *subject, m *tracev3.DatadogConfig) { checkCollector(s, m.GetCollectorCluster()) }

// checkCollector records the cluster that receives traces.
func checkCollector(s *subject, name string) {
	if name != "" {
		s.refer(envoy.KindCluster, name, "collectorCluster", 51, finding.Reject,
			"Envoy looks for it when it loads the tracer")
	}
}
